"""Programs that a sandbox must contain: at least one for each kind in docs/verifiers.md.

A program whose attempts must all fail prints ``refused`` for each failure and must be accepted,
which shows that it ran to its end. ``given`` holds names of files and processes of this machine.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

_PREFIX = """
import ctypes, json, os, signal, socket, sys, threading, time
given = json.loads(input())
libc = ctypes.CDLL(None, use_errno=True)
def attempt(action):
    try:
        result = action()
    except BaseException as error:
        return print("refused")
    print("refused" if isinstance(result, int) and result == -1 else f"REACHED {result!r}")
def call(number, *arguments):
    if os.uname().machine != "x86_64":  # the numbers are that machine's
        return print("refused")
    return attempt(lambda: libc.syscall(ctypes.c_long(number), *arguments))
"""

FAILS = frozenset({"runtime_error", "time_limit", "memory_limit", "output_limit"})


@dataclass(frozen=True)
class Hostile:
    """A program and its correct verdicts.

    Attributes:
        name: its kind and action.
        source: the program.
        verdicts: the allowed verdicts.
        expected: the output with which it is accepted; empty for a secret that it must not find.
        function: the function to call, if any.
    """

    name: str
    source: str
    verdicts: frozenset[str]
    expected: str = ""
    function: str | None = None


def build_refused(name: str, body: str) -> Hostile:
    """Build a program whose attempts (calls of ``attempt`` and ``call``) must all be refused."""
    body = textwrap.dedent(body)
    count = body.count("attempt(") + body.count("call(")
    source = f"{_PREFIX}\n{body}"
    return Hostile(name, source, frozenset({"accepted"}), "refused\n" * count)


def build_ending(name: str, body: str, *verdicts: str, function: str | None = None) -> Hostile:
    source = textwrap.dedent(body)
    if function is None:
        source = f"{_PREFIX}\n{source}"
    expected = "1" if "accepted" in verdicts else ""
    return Hostile(name, source, frozenset(verdicts), expected, function)


#: Programs whose attempts (calls of ``attempt`` and ``call``) must all be refused.
REFUSED = {
    "fork, every door to it": """
        attempt(os.fork)
        attempt(os.forkpty)
        call(57)
        call(58)
        call(56, 17, 0, 0, 0, 0)
        call(56, 0x10000 | 0x10000000, 0, 0, 0, 0)
        call(435, ctypes.create_string_buffer(88), 88)
        """,
    "exec of a shell": """
        attempt(lambda: os.execv("/bin/sh", ["sh", "-c", "echo out"]))
        attempt(lambda: os.posix_spawn("/bin/sh", ["sh", "-c", "echo out"], {}))
        call(59, b"/bin/sh", None, None)
        call(322, 3, b"", None, None, 0x1000)
        """,
    "subprocess and multiprocessing": """
        import subprocess, multiprocessing
        attempt(lambda: subprocess.run(["/bin/echo", "out"], check=True))
        attempt(lambda: multiprocessing.Process(target=print, args=("out",)).start())
        attempt(lambda: -1 if os.system("true") else 0)
        """,
    "memfd, shm, semaphores, message queues": """
        attempt(lambda: os.memfd_create("x"))
        call(319, b"x", 0)
        call(447, 0)
        call(29, 0, 1 << 20, 0o1600)
        call(64, 0, 4, 0o1600)
        call(68, 0, 0o1600)
        call(240, b"q", 0o102, 0o600, None)
        attempt(lambda: open("/dev/shm/x", "w"))
        """,
    "reading outside": """
        attempt(lambda: open("/etc/passwd").read())
        attempt(lambda: open("/etc/hostname").read())
        attempt(lambda: open(given["canary"]).read())
        attempt(lambda: open(given["here"]).read())
        attempt(lambda: os.listdir(os.path.dirname(given["canary"])))
        attempt(lambda: os.listdir("/home"))
        attempt(lambda: os.listdir("/proc"))
        attempt(lambda: open("/proc/self/environ").read())
        attempt(lambda: open("/proc/self/mem", "rb").read(1))
        attempt(lambda: open(f"/proc/{os.getppid()}/mem", "rb").read(1))
        attempt(lambda: open(f"/proc/{given['pid']}/environ").read())
        attempt(lambda: open("/proc/self/fd/5"))
        attempt(lambda: os.listdir("/sys"))
        attempt(lambda: os.environ[given["secret"]])
        """,
    "sockets": """
        attempt(lambda: socket.create_connection(("127.0.0.1", given["port"])))
        attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(
            b"x", ("127.0.0.1", given["port"])))
        attempt(lambda: socket.socket(socket.AF_UNIX).connect("\\0" + given["abstract"]))
        attempt(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
        attempt(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        attempt(lambda: socket.socketpair(40, socket.SOCK_STREAM))
        a, b = socket.socketpair()  # for asyncio; nothing but bytes goes over it
        attempt(lambda: a.connect("\\0" + given["abstract"]))
        attempt(lambda: a.bind("\\0elsewhere"))
        attempt(lambda: a.listen())
        attempt(lambda: a.accept())
        attempt(lambda: a.sendto(b"x", "\\0" + given["abstract"]))
        attempt(lambda: a.send(b"x", socket.MSG_OOB))
        attempt(lambda: a.recv(1, socket.MSG_OOB))
        attempt(lambda: a.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        attempt(lambda: socket.send_fds(a, [b"x"], [0]))
        attempt(lambda: a.sendmsg([b"x"]))
        attempt(lambda: a.recvmsg(1))
        attempt(lambda: a.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1))
        attempt(lambda: a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 30))
        attempt(lambda: a.getsockopt(socket.SOL_SOCKET, 17, 12))
        attempt(lambda: __import__("fcntl").fcntl(a, 8, given["pid"]))
        call(307, a.fileno(), ctypes.create_string_buffer(64), 1, 0)
        attempt(lambda: open(f"/dev/tcp/127.0.0.1/{given['port']}"))
        attempt(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
        call(41, 2, 1, 0)
        call(425, 8, ctypes.create_string_buffer(128))
        """,
    "signals to others": """
        attempt(lambda: os.kill(given["pid"], signal.SIGTERM))
        attempt(lambda: os.kill(os.getppid(), signal.SIGKILL))
        attempt(lambda: os.kill(-1, signal.SIGKILL))
        attempt(lambda: os.kill(0, signal.SIGTERM))
        attempt(lambda: os.killpg(os.getpgrp(), signal.SIGTERM))
        call(129, given["pid"], 15, ctypes.create_string_buffer(128))
        call(434, given["pid"], 0)
        call(234, given["pid"], given["pid"], 15)
        call(200, given["pid"], 15)
        attempt(lambda: __import__("fcntl").fcntl(0, 8, given["pid"]))
        attempt(lambda: __import__("fcntl").fcntl(0, 1024, 0))
        """,
    "ptrace and memory of others": """
        call(101, 16, given["pid"], None, None)
        call(101, 0, 0, None, None)
        call(310, given["pid"], None, 0, None, 0, 0)
        call(311, given["pid"], None, 0, None, 0, 0)
        call(312, given["pid"], given["pid"], 0, 0, 0)
        """,
    "limits and priorities of others": """
        import resource
        attempt(lambda: resource.prlimit(given["pid"], resource.RLIMIT_NOFILE, (1, 1)))
        attempt(lambda: resource.setrlimit(resource.RLIMIT_CPU, (1000, 1000)))
        attempt(lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40)))
        attempt(lambda: os.setpriority(os.PRIO_PROCESS, given["pid"], 19))
        attempt(lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))
        attempt(lambda: os.nice(1))
        attempt(lambda: os.setpriority(os.PRIO_PGRP, 0, os.getpriority(os.PRIO_PROCESS, 0)))
        attempt(lambda: os.setpriority(os.PRIO_USER, 0, os.getpriority(os.PRIO_PROCESS, 0)))
        attempt(lambda: os.sched_setaffinity(given["pid"], {0}))
        attempt(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
        attempt(lambda: open("/proc/self/oom_score_adj", "w").write("-1000"))
        attempt(lambda: open(f"/proc/{given['pid']}/oom_score_adj", "w").write("1000"))
        call(251, 1, 0, 0)
        """,
    "writing outside": """
        attempt(lambda: open(given["canary"], "a").write("x"))
        attempt(lambda: open(given["canary"] + ".new", "w"))
        attempt(lambda: os.truncate(given["canary"], 0))
        attempt(lambda: os.open(given["canary"], os.O_RDONLY | os.O_TRUNC))
        attempt(lambda: os.unlink(given["canary"]))
        attempt(lambda: os.rename(given["canary"], given["canary"] + ".moved"))
        attempt(lambda: os.link(given["canary"], given["canary"] + ".link"))
        attempt(lambda: os.chmod(given["canary"], 0))
        attempt(lambda: os.chown(given["canary"], 0, 0))
        attempt(lambda: os.utime(given["canary"], (1, 1)))
        attempt(lambda: os.setxattr(given["canary"], "user.x", b"x"))
        attempt(lambda: os.mkdir(os.path.dirname(given["canary"]) + "/folder"))
        attempt(lambda: os.symlink("/etc", os.path.dirname(given["canary"]) + "/symlink"))
        attempt(lambda: open("/root_file", "w"))
        attempt(lambda: open(json.__file__, "a"))
        attempt(lambda: os.open(json.__file__, os.O_RDONLY | os.O_TRUNC))
        attempt(lambda: os.unlink(json.__file__))
        attempt(lambda: os.chmod(json.__file__, 0))
        attempt(lambda: open(sys.executable, "a"))
        """,
    "symbolic links out": """
        def through_link():
            os.symlink(given["canary"], "/tmp/link")
            return open("/tmp/link").read()
        attempt(through_link)
        attempt(lambda: os.listdir("/tmp/../" + os.path.dirname(given["canary"])))
        attempt(lambda: os.chroot("/tmp"))
        """,
    "mount, namespaces, io_uring, keys, bpf, perf": """
        call(165, b"none", b"/tmp", b"tmpfs", 0, None)
        call(166, b"/tmp", 2)
        call(155, b"/", b"/")
        call(428, -100, b"/", 1)
        call(429, -100, b"", -100, b"", 0)
        call(430, b"tmpfs", 0)
        call(272, 0x10000000)
        call(272, 0x00020000)
        call(308, 0, 0)
        call(248, b"user", b"x", b"x", 1, -3)
        call(250, 0, -3, 0)
        call(321, 0, None, 0)
        call(298, ctypes.create_string_buffer(128), 0, -1, -1, 0)
        call(323, 0)
        call(135, 0x0040000)
        call(303, -100, b"/", None, None, 0)
        call(304, -100, None, 0)
        call(317, 1, 0, None)
        call(157, 4, 1, 0, 0, 0)
        call(105, 0)
        call(0x40000000 + 39)
        """,
}
#: Programs by their only verdict.
RUNTIME_ERROR = {
    "fork bomb": "while True: os.fork()",
    "disk filling": """
        with open("/tmp/big", "wb") as file:
            while True: file.write(b"x" * (1 << 20))
        """,
    "inode filling": "for i in range(1 << 20): open(f'/tmp/{i}', 'w').close()",
    "sparse output": "os.ftruncate(1, 1 << 40)",
    "descriptors without end": "x = []\nwhile True: x.extend(os.pipe())",
    "stopping itself": """
        for stop in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU):
            try: os.kill(os.getpid(), stop)
            except PermissionError: pass
        raise KeyError
        """,
    "segmentation fault": "ctypes.string_at(0)",
    "fork as a 32-bit program": """
        import mmap
        if os.uname().machine != "x86_64": os.abort()  # the code is that machine's
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(bytes.fromhex("b802000000cd80c3"))  # mov eax, 2; int 0x80; ret
        ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
        print(1)
        """,
}
WRONG_ANSWER = {
    "binary output": "os.write(1, bytes(range(256)) * 100)",
    "forged failure of the sandbox": """
        for fd in range(2, 1024):
            try: os.ftruncate(fd, 0); os.write(fd, b'["setup", "failed"]')
            except OSError: pass
        os.close(3)
        print(2)
        """,
    "patching the checker": """
        for name, module in list(sys.modules.items()):
            for attribute in dir(module or 0):
                if "verdict" in attribute or "same_output" in attribute or "judge" in attribute:
                    print("REACHED", name, attribute)
        import importlib
        try: importlib.import_module("gapft_harness.sandbox.verdicts"); print("REACHED")
        except ImportError: pass
        print(2)
        """,
}
TIME_LIMIT = {
    "thread that outlives": "threading.Thread(target=lambda: time.sleep(999)).start(); print(1)",
    "busy threads": """
        def spin():
            while True: pass
        for _ in range(20): threading.Thread(target=spin).start()
        """,
    "swallowing exceptions, cancelling alarms, ignoring signals": """
        for number in range(1, 65):
            try: signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError): pass
        while True:
            try:
                signal.alarm(0)
                signal.setitimer(signal.ITIMER_REAL, 0)
                while True: pass
            except BaseException: pass
        """,
}
HOSTILE = [
    *(build_refused(name, body) for name, body in REFUSED.items()),
    *(build_ending(name, body, "runtime_error") for name, body in RUNTIME_ERROR.items()),
    *(build_ending(name, body, "wrong_answer") for name, body in WRONG_ANSWER.items()),
    *(build_ending(name, body, "time_limit") for name, body in TIME_LIMIT.items()),
    build_ending(
        "allocation, swallowing",
        """
        x = []
        while True:
            try: x.append(b'x' * (16 << 20))
            except MemoryError: pass
        """,
        "time_limit",
        "memory_limit",
        "runtime_error",
    ),
    build_ending("huge power", "x = 7 ** (7 ** 9)", "time_limit", "memory_limit"),
    build_ending(
        "C stack overflow",
        """
        sys.setrecursionlimit(1 << 30)
        class A:
            def __getattr__(self, name): return getattr(self, name)
        A().x
        """,
        *("runtime_error", "memory_limit", "time_limit"),
    ),
    build_ending("stderr flood", "while True: sys.stderr.write('x' * 4096)", "output_limit"),
    build_ending(
        "forging results on every descriptor",
        """
        for fd in range(1, 1024):
            for text in (b'["value", 1]', b'ok', b'{"exit": 0, "setup": ""}', b'accepted'):
                try: os.write(fd, text + b"\\n")
                except OSError: pass
        """,
        "wrong_answer",
        "runtime_error",
    ),
    build_ending(
        "returned object equal to everything",
        """
        class Yes(list):
            def __eq__(self, other): return True
        def f(x): return Yes()
        """,
        "wrong_answer",
        function="f",
    ),
    build_ending("huge value", "def f(x): return [0] * 10_000_000", *FAILS, function="f"),
    build_ending(
        "huge number as a value",
        "def f(x): return 1 << 30_000_000",
        *("time_limit", "memory_limit", "output_limit"),
        function="f",
    ),
    build_ending(
        "tampering with json, builtins and modules",
        """
        import builtins, json, sys
        json.dumps = lambda *a, **k: '["value", 2]'
        json.loads = lambda *a, **k: 1
        builtins.len = builtins.isinstance = lambda *a: True
        for name in list(sys.modules):
            if name != "sys": sys.modules[name] = None
        def f(x): return 2
        """,
        "wrong_answer",
        "runtime_error",
        function="f",
    ),
    build_ending(
        "walking frames and scanning the collector for the answer",
        """
        import gc
        def show(x):
            try: return repr(x)
            except BaseException: return ""
        seen, frame = "", sys._getframe()
        while frame:
            seen += show(frame.f_locals) + show(frame.f_globals)
            frame = frame.f_back
        gc.unfreeze()
        seen += "".join(show(x) for x in gc.get_objects() if type(x) in (dict, list, tuple, str))
        part = "expected-" + "answer-"
        at = seen.find(part + "4")
        print(seen[at:at + 40] if at >= 0 else "nowhere")
        """,
        "wrong_answer",
        "time_limit",
    ),
    build_ending(
        "reading the C environment",
        """
        environ = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")
        i, found = 0, []
        while environ[i]: found.append(environ[i].decode()); i += 1
        print("REACHED" if any(given["secret"] in x for x in found) else 1)
        """,
        "accepted",
    ),
    build_ending(
        "capabilities and the way back to them",
        """
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        data = (ctypes.c_uint32 * 6)()
        assert libc.capget(header, data) == 0
        assert list(data) == [0] * 6, list(data)
        assert libc.prctl(39, 0, 0, 0, 0) == 1, "no_new_privs"
        for become in (os.setuid, os.setgid):
            try: become(0)
            except PermissionError: continue
            assert False, become
        assert os.getuid() != 0
        print(1)
        """,
        "accepted",
    ),
    build_ending(
        "compile bomb, nesting", "(" * 100_000 + ")" * 100_000, "compile_error", "memory_limit"
    ),
    build_ending(
        "compile bomb, constant",
        "x = (1 << 120) ** 2 * ('a' * 4000)\nx = " + "+".join(["'a' * 4000"] * 20_000),
        *("compile_error", "memory_limit", "time_limit", "runtime_error"),
    ),
    build_ending("null byte", "print(1)\0", "compile_error"),
    build_ending("lone surrogate", "print('\ud800')", "compile_error", "runtime_error"),
]
