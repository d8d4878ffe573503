"""Linux system-call numbers of the supported machines, and calls to the kernel through ctypes.

The tables list only the calls that a sandboxed program may make (see ``seccomp.py``); ``BUILD``
lists those that set up the sandbox. The numbers are from the kernel's ``unistd_64.h`` (x86_64) and
``asm-generic/unistd.h`` (aarch64).
"""

from __future__ import annotations

import ctypes
import os
import platform
from dataclasses import dataclass

_X86_64 = """
read=0 write=1 readv=19 writev=20 pread64=17 pwrite64=18 preadv=295 pwritev=296 preadv2=327
pwritev2=328 lseek=8 open=2 openat=257 close=3 close_range=436 creat=85 stat=4 lstat=6 fstat=5
newfstatat=262 statx=332 access=21 faccessat=269 faccessat2=439 readlink=89 readlinkat=267
getdents=78 getdents64=217 statfs=137 fstatfs=138 dup=32 dup2=33 dup3=292 pipe=22 pipe2=293
fcntl=72 ioctl=16 flock=73 ftruncate=77 truncate=76 fsync=74 fdatasync=75 fallocate=285
fadvise64=221 sendfile=40 copy_file_range=326 poll=7 ppoll=271 select=23 pselect6=270
epoll_create=213 epoll_create1=291 epoll_ctl=233 epoll_wait=232 epoll_pwait=281 eventfd=284
eventfd2=290 timerfd_create=283 timerfd_settime=286 timerfd_gettime=287 signalfd=282
signalfd4=289 mmap=9 munmap=11 mremap=25 mprotect=10 madvise=28 brk=12 msync=26
rt_sigaction=13 rt_sigprocmask=14 rt_sigreturn=15 rt_sigsuspend=130 rt_sigpending=127
rt_sigtimedwait=128 sigaltstack=131 restart_syscall=219 pause=34 kill=62 tgkill=234 alarm=37
setitimer=38 getitimer=36 timer_create=222 timer_settime=223 timer_gettime=224
timer_getoverrun=225 timer_delete=226 nanosleep=35 clock_nanosleep=230 clock_gettime=228
clock_getres=229 gettimeofday=96 time=201 times=100 getrusage=98 sched_yield=24
sched_getaffinity=204 sched_getparam=143 sched_getscheduler=145 sched_get_priority_max=146
sched_get_priority_min=147 getpriority=140 getcpu=309 clone=56 clone3=435 futex=202
set_robust_list=273 get_robust_list=274 set_tid_address=218 rseq=334 membarrier=324 exit=60
exit_group=231 wait4=61 waitid=247 arch_prctl=158 prctl=157 getpid=39 getppid=110 gettid=186
getpgrp=111 getpgid=121 getsid=124 getuid=102 geteuid=107 getgid=104 getegid=108 getresuid=118
getresgid=120 getgroups=115 uname=63 umask=95 capget=125 getrlimit=97 setrlimit=160
prlimit64=302 getrandom=318 getcwd=79 chdir=80 fchdir=81 mkdir=83 mkdirat=258 rmdir=84 unlink=87
unlinkat=263 rename=82 renameat=264 renameat2=316 link=86 linkat=265 symlink=88 symlinkat=266
chmod=90 fchmod=91 fchmodat=268 fchmodat2=452 utime=132 utimes=235 utimensat=280 futimesat=261
socketpair=53 sendto=44 recvfrom=45 setpriority=141 sched_setaffinity=203
"""

_AARCH64 = """
read=63 write=64 readv=65 writev=66 pread64=67 pwrite64=68 preadv=69 pwritev=70 preadv2=286
pwritev2=287 lseek=62 openat=56 close=57 close_range=436 fstat=80 newfstatat=79 statx=291
faccessat=48 faccessat2=439 readlinkat=78 getdents64=61 statfs=43 fstatfs=44 dup=23 dup3=24
pipe2=59 fcntl=25 ioctl=29 flock=32 ftruncate=46 truncate=45 fsync=82 fdatasync=83 fallocate=47
fadvise64=223 sendfile=71 copy_file_range=285 ppoll=73 pselect6=72 epoll_create1=20 epoll_ctl=21
epoll_pwait=22 eventfd2=19 timerfd_create=85 timerfd_settime=86 timerfd_gettime=87 signalfd4=74
mmap=222 munmap=215 mremap=216 mprotect=226 madvise=233 brk=214 msync=227
rt_sigaction=134 rt_sigprocmask=135 rt_sigreturn=139 rt_sigsuspend=133 rt_sigpending=136
rt_sigtimedwait=137 sigaltstack=132 restart_syscall=128 kill=129 tgkill=131 setitimer=103
getitimer=102 timer_create=107 timer_settime=110 timer_gettime=108 timer_getoverrun=109
timer_delete=111 nanosleep=101 clock_nanosleep=115 clock_gettime=113 clock_getres=114
gettimeofday=169 times=153 getrusage=165 sched_yield=124 sched_getaffinity=123
sched_getparam=121 sched_getscheduler=120 sched_get_priority_max=125 sched_get_priority_min=126
getpriority=141 getcpu=168 clone=220 clone3=435 futex=98 set_robust_list=99 get_robust_list=100
set_tid_address=96 rseq=293 membarrier=283 exit=93 exit_group=94 wait4=260 waitid=95 prctl=167
getpid=172 getppid=173 gettid=178 getpgid=155 getsid=156 getuid=174 geteuid=175 getgid=176
getegid=177 getresuid=148 getresgid=150 getgroups=158 uname=160 umask=166 capget=90
getrlimit=163 setrlimit=164 prlimit64=261 getrandom=278 getcwd=17 chdir=49 fchdir=50 mkdirat=34
unlinkat=35 renameat=38 renameat2=276 linkat=37 symlinkat=36 fchmod=52 fchmodat=53 fchmodat2=452
utimensat=88 socketpair=199 sendto=206 recvfrom=207 setpriority=140 sched_setaffinity=122
"""

#: Calls with the same number on every machine: newer calls have unified numbers.
BUILD = {
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
    "mount_setattr": 442,
}


@dataclass(frozen=True)
class Machine:
    """The constants of a machine that a system-call filter needs.

    Attributes:
        audit: its ``AUDIT_ARCH`` constant.
        numbers: name -> number of its system calls.
        pivot_root: number of ``pivot_root``, which libc does not wrap.
    """

    audit: int
    numbers: dict[str, int]
    pivot_root: int


def _parse_table(table: str) -> dict[str, int]:
    pairs = (entry.split("=") for entry in table.split())
    return {name: int(number) for name, number in pairs}


_MACHINES = {
    "x86_64": Machine(0xC000003E, _parse_table(_X86_64), pivot_root=155),
    "aarch64": Machine(0xC00000B7, _parse_table(_AARCH64), pivot_root=41),
}


class Refused(Exception):
    """The kernel or this machine refuses a feature that a tier needs."""


def find_machine() -> Machine:
    """Find the constants of the machine that this interpreter runs on.

    Raises:
        Refused: the machine is not supported, since its system calls are not in the tables.
    """
    name = platform.machine()
    is_64_bit = ctypes.sizeof(ctypes.c_void_p) == 8
    if platform.system() != "Linux" or name not in _MACHINES or not is_64_bit:
        raise Refused(
            f"found {platform.system()} on {name}; the sandbox supports 64-bit Linux on "
            f"{' and '.join(_MACHINES)}"
        )
    return _MACHINES[name]


libc = ctypes.CDLL(None, use_errno=True)


def check_result(result: int, action: str) -> int:
    """Return a C result; raise ``Refused``, which names the action, if it is -1."""
    if result == -1:
        number = ctypes.get_errno()
        raise Refused(f"{action}: {os.strerror(number)} (errno {number})")
    return result


def syscall(action: str, number: int, *arguments: object) -> int:
    """Make a raw system call; ``action`` names it in errors. Integers are passed as C longs."""
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return check_result(libc.syscall(ctypes.c_long(number), *words), action)
