"""The system-call filter: a list of the calls that a program may make; all others are refused.

It lists allowed calls, not forbidden ones, so that calls of future kernels are refused. Among
others it refuses: all ways to start a process or a program, sockets (except a connected pair
without a name), ptrace, mounts and namespaces, shared and anonymous memory files, keys, bpf, perf,
io_uring, and all calls that affect other processes. A refused call fails with ``EPERM``, or with
the error that lets ordinary programs continue: ``ENOSYS``, ``EINVAL``, ``ENOTTY``, ``EACCES`` or
``EOPNOTSUPP``. Some calls, such as locks, instead return success and do nothing.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import struct
from collections.abc import Iterable, Sequence

from gapft_harness.sandbox.confinement.syscalls import check_result, find_machine, libc

#: BPF instructions
_LOAD, _JUMP, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06
#: Results of the filter (SECCOMP_RET_*)
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
#: Offsets in ``struct seccomp_data``
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16

_SUCCESS = 0  # a refused call with this error number returns success

_CLONE_THREAD = 0x00010000
#: NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, and PARENT, PTRACE, UNTRACED
_CLONE_FORBIDDEN = 0x7E020080 | 0x00008000 | 0x00002000 | 0x00800000
_O_TRUNC = 0x200
#: ``O_TMPFILE`` without ``O_DIRECTORY``. Such a file is visible only in the count of inodes.
_TMPFILE = 0x400000
_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

#: DUPFD, GETFD, SETFD, GETFL, SETFL, DUPFD_CLOEXEC, GETPIPE_SZ, GET_SEALS. Not SETOWN and SETSIG
#: (signals to others), SETLEASE (blocks others) and GETLK (reveals others' locks).
_FCNTL = (0, 1, 2, 3, 4, 1030, 1032, 1034)
#: SETLK, SETLKW and their OFD variants: a lock on a system file would be visible to others. No
#: other process uses a program's own files, so these calls succeed without locking.
_LOCK = (6, 7, 37, 38)
#: TCGETS (isatty), TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
#: GET_DUMPABLE, SET_NAME, GET_NAME, CAPBSET_READ, GET_NO_NEW_PRIVS, SET_VMA (glibc names its maps)
_PRCTL = (3, 15, 16, 23, 39, 0x53564D41)

#: Flags of a read or write: HIPRI, DSYNC, SYNC, APPEND. Not NOWAIT, which reveals whether a page
#: was read before, and not DONTCACHE, which removes it from the page cache.
_READ_FLAGS = 1 | 2 | 4 | 16
#: NORMAL, RANDOM, SEQUENTIAL, WILLNEED, DONTNEED, FREE, DONTFORK, DOFORK, HUGEPAGE, NOHUGEPAGE,
#: DONTDUMP, DODUMP, GUARD_INSTALL, GUARD_REMOVE: for the process's own memory. Not COLD, PAGEOUT,
#: COLLAPSE and POPULATE_READ, which affect the pages of files, and not MERGEABLE.
_MADVISE = (0, 1, 2, 3, 4, 8, 10, 11, 14, 15, 16, 17, 102, 103)

#: Calls that change a file's mode or times, also of a file opened for reading. Landlock does not
#: control them, so in that tier they would reach files outside.
_ATTRIBUTE_CALLS = frozenset(
    "chmod fchmod fchmodat fchmodat2 utime utimes utimensat futimesat".split()  # noqa: SIM905
)

_AF_UNIX = 1
#: SOCK_STREAM, without or with SOCK_NONBLOCK, SOCK_CLOEXEC or both
_STREAM = (1, 1 | 0x800, 1 | 0x80000, 1 | 0x80800)

#: Placeholder for the process's own id until it is known; no process id is that large.
_OWN_PID = 0x7EADBEEF

_Instruction = tuple[int, int, int, int]
_Rule = tuple[_Instruction, ...]


class Filter:
    """The filter in the kernel's form, built once and installed by each fork.

    Args:
        refuse_attribute_changes: also refuse calls that change a file's mode or times
            (landlock tier).
        stop_truncation: refuse opening with ``O_TRUNC`` and truncating by name (if landlock is too
            old to control truncation).

    Raises:
        Refused: the machine is not supported.
    """

    def __init__(self, *, refuse_attribute_changes: bool, stop_truncation: bool) -> None:
        code = _build_code(refuse_attribute_changes, stop_truncation)
        self._code = ctypes.create_string_buffer(code, len(code))
        header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(self._code))
        self._arguments = (22, 2, ctypes.c_char_p(header), 0, 0)  # PR_SET_SECCOMP, MODE_FILTER
        marker = struct.pack("I", _OWN_PID)
        self._pid_offsets = [i for i in range(4, len(code), 8) if code[i : i + 4] == marker]

    def install(self, own_pid: int) -> None:
        """Install the filter permanently in the calling process. It needs ``no_new_privs``.

        Args:
            own_pid: the only process that may be signaled or have its limits changed.

        Raises:
            Refused: the kernel does not accept the filter.
        """
        for offset in self._pid_offsets:
            struct.pack_into("I", self._code, offset, own_pid)
        check_result(libc.prctl(*self._arguments), "seccomp filter")


def _build_code(refuse_attribute_changes: bool, stop_truncation: bool) -> bytes:
    """Build the filter as BPF code for this machine, with ``_OWN_PID`` in place of the own id."""
    current_machine = find_machine()
    # Allow every listed call, except for these rules.
    rules: dict[str, _Rule] = dict.fromkeys(current_machine.numbers, (_return(_ALLOW),))
    rules |= {
        "clone": (
            _load(0),
            (_ANY_BIT, 0, 1, _CLONE_FORBIDDEN),
            _refuse(errno.EPERM),
            (_ANY_BIT, 1, 0, _CLONE_THREAD),
            _refuse(errno.EPERM),
            _return(_ALLOW),
        ),
        # Its flags are in memory, which a filter cannot read; libc falls back to clone.
        "clone3": (_refuse(errno.ENOSYS),),
        "kill": (*_refuse_unless(0, [_OWN_PID]), *_refuse_if(1, _STOPS), _return(_ALLOW)),
        "tgkill": (*_refuse_unless(0, [_OWN_PID]), *_refuse_if(2, _STOPS), _return(_ALLOW)),
        "prlimit64": (*_refuse_unless(0, [0, _OWN_PID]), _return(_ALLOW)),
        "fcntl": (
            *_refuse_if(1, _LOCK, _SUCCESS),
            *_refuse_unless(1, _FCNTL),
            _return(_ALLOW),
        ),
        "flock": (_refuse(_SUCCESS),),
        # asyncio needs it for its wake-up: a connected pair without a name.
        "socketpair": (
            *_refuse_unless(0, [_AF_UNIX]),
            *_refuse_unless(1, _STREAM),
            *_refuse_unless(2, [0]),
            _return(_ALLOW),
        ),
        # No flags (so no out-of-band data) and no address. Other calls would pass descriptors.
        "sendto": (*_refuse_unless(3, [0]), *_refuse_unless(5, [0]), _return(_ALLOW)),
        "recvfrom": (*_refuse_unless(3, [0]), _return(_ALLOW)),
        # Setting the current priority, or any affinity, succeeds without a change.
        "setpriority": (
            *_refuse_unless(0, [os.PRIO_PROCESS]),
            *_refuse_unless(1, [0, _OWN_PID]),
            *_refuse_unless(2, [os.getpriority(os.PRIO_PROCESS, 0) & 0xFFFFFFFF]),
            _refuse(_SUCCESS),
        ),
        "sched_setaffinity": (*_refuse_unless(0, [0, _OWN_PID]), _refuse(_SUCCESS)),
        # Advice is optional, and its effect on the page cache would be visible to later programs.
        "fadvise64": (_refuse(_SUCCESS),),
        "madvise": (*_refuse_unless(2, _MADVISE, errno.EINVAL), _return(_ALLOW)),
        # It reveals mounts by unique numbers. libc falls back to stat.
        "statx": (_refuse(errno.ENOSYS),),
        "ioctl": (*_refuse_unless(1, _IOCTL, errno.ENOTTY), _return(_ALLOW)),
        "prctl": (*_refuse_unless(0, _PRCTL), _return(_ALLOW)),
    }
    # The clock of a different process reveals what it did. Bit 2: an own thread's clock.
    own_clock: _Rule = (
        _load(0),
        (_ANY_BIT, 0, 2, 1 << 31),
        (_ANY_BIT, 1, 0, 4),
        _refuse(errno.EINVAL),
        _return(_ALLOW),
    )
    for name in ("clock_gettime", "clock_getres", "clock_nanosleep", "timer_create"):
        rules[name] = own_clock
    for name in ("getpgid", "getsid"):
        rules[name] = (*_refuse_unless(0, [0, _OWN_PID]), _return(_ALLOW))
    for name in ("preadv2", "pwritev2"):
        forbidden = ~_READ_FLAGS & 0xFFFFFFFF
        rules[name] = (*_refuse_bits(5, forbidden, errno.EOPNOTSUPP), _return(_ALLOW))
    for name, argument in (("open", 1), ("openat", 2)):
        truncation = _refuse_bits(argument, _O_TRUNC, errno.EACCES) if stop_truncation else []
        unnamed = _refuse_bits(argument, _TMPFILE, errno.EOPNOTSUPP)
        rules[name] = (*truncation, *unnamed, _return(_ALLOW))
    if stop_truncation:
        rules |= dict.fromkeys(("truncate", "creat"), (_refuse(errno.EACCES),))
    # Remove calls that this machine lacks or this tier refuses.
    rules = {
        name: rule
        for name, rule in rules.items()
        if name in current_machine.numbers
        and not (refuse_attribute_changes and name in _ATTRIBUTE_CALLS)
    }
    by_number = {current_machine.numbers[name]: rule for name, rule in rules.items()}
    # Kill a foreign architecture, then search for the rule.
    code: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_EQUAL, 1, 0, current_machine.audit),
        _return(_KILL),
        (_LOAD, 0, 0, _NUMBER),
        *_build_search(_merge_intervals(by_number)),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def _merge_intervals(by_number: dict[int, _Rule]) -> list[tuple[int, _Rule]]:
    """Merge neighboring numbers with the same rule to (first number, rule); gaps are refused."""
    refuse: _Rule = (_refuse(errno.EPERM),)
    merged: list[tuple[int, _Rule]] = []
    for number in range(max(by_number) + 2):
        rule = by_number.get(number, refuse)
        if not merged or merged[-1][1] != rule:
            merged.append((number, rule))
    return merged


def _build_search(intervals: list[tuple[int, _Rule]]) -> list[_Instruction]:
    """Build a binary search for the rule of a number.

    At every installation, and so for every test, the kernel evaluates the filter for every call it
    knows; a binary search makes this many times faster than a list of comparisons.
    """
    if len(intervals) == 1:
        return list(intervals[0][1])
    middle = len(intervals) // 2
    below = _build_search(intervals[:middle])
    above = _build_search(intervals[middle:])
    first = intervals[middle][0]
    if len(below) < 256:
        return [(_AT_LEAST, len(below), 0, first), *below, *above]
    return [(_AT_LEAST, 0, 1, first), (_JUMP, 0, 0, len(below)), *below, *above]


def _load(argument: int) -> _Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * argument)  # the low half: machines are little-endian


def _return(value: int) -> _Instruction:
    return (_RETURN, 0, 0, value)


def _refuse(error: int) -> _Instruction:
    return _return(_ERRNO | error)


def _refuse_unless(
    argument: int, allowed: Sequence[int], error: int = errno.EPERM
) -> list[_Instruction]:
    """Refuse the call unless the argument is one of the allowed values."""
    last = len(allowed) - 1
    return [
        _load(argument),
        *((_EQUAL, last - i + 1, 0, value) for i, value in enumerate(allowed)),
        _refuse(error),
    ]


def _refuse_bits(argument: int, bits: int, error: int) -> list[_Instruction]:
    """Refuse the call if the argument has any of these bits."""
    return [_load(argument), (_ANY_BIT, 0, 1, bits), _refuse(error)]


def _refuse_if(
    argument: int, values: Iterable[int], error: int = errno.EPERM
) -> list[_Instruction]:
    code = [_load(argument)]
    for value in values:
        code += [(_EQUAL, 0, 1, int(value)), _refuse(error)]
    return code
