"""The worker: a preloaded, confined interpreter that forks for every test and watches the fork.

The worker is trusted code inside the sandbox's namespaces, and the parent of untrusted programs. It
receives programs and inputs only as descriptors, so that its memory, which every fork inherits,
never contains them.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import resource
import signal
import socket
import sys
import threading
from _signal import signal as set_handler  # type: ignore[import-not-found]
from dataclasses import dataclass
from typing import Any

from gapft_harness.sandbox.confinement import folders, fresh, landlock, namespaces, seccomp
from gapft_harness.sandbox.confinement.limits import (
    compute_cpu_limits,
    limit_process,
    read_address_space,
    widen_stack,
)
from gapft_harness.sandbox.confinement.streams import patch_open
from gapft_harness.sandbox.confinement.syscalls import Refused
from gapft_harness.sandbox.inside import execute
from gapft_harness.sandbox.inside.messages import Ending, pack_ending
from gapft_harness.sandbox.inside.prelude import WARM, add_livecodebench_names, add_site_builtins
from gapft_harness.sandbox.inside.watch import watch_process
from gapft_harness.sandbox.records import Limits

DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
#: The first descriptor for folders of an unreachable interpreter; a fork closes those below it.
FOLDERS_FROM = 200
_THREAD_STACK = 8 << 20
#: The first word that a program's process writes to ``STAGE``; the program's stage follows.
_CONFINED = b"ok"
_libc = ctypes.PyDLL(None)  # keeps the interpreter lock: the worker has no other thread


@dataclass(frozen=True)
class Settings:
    """The settings that the harness passes to a worker at its start.

    Attributes:
        tier: ``namespaces`` or ``landlock``.
        control: descriptor of the socket to the harness.
        high_id: for root, the user id to switch to; None for an ordinary user.
        limits: the limits of a test.
        preload: modules to import in addition to the usual ones.
        path: the harness's import path, to import them from.
        prelude: the names that programs have without import; see ``Sandbox``.
    """

    tier: str
    control: int
    high_id: int | None
    limits: Limits
    preload: list[str]
    path: list[str]
    prelude: str


def start(values: dict[str, Any], limits: dict[str, Any]) -> Worker:
    """Confine this process and return its worker, whose ``serve`` runs the tests.

    Args:
        values: all ``Settings`` but the limits.
        limits: the values of ``Limits``.
    """
    settings = Settings(limits=Limits(**limits), **values)
    if widen_stack(settings.limits.memory_bytes):
        os.execve(sys.executable, sys.orig_argv, os.environ)
    _reset_signals()
    threading.stack_size(_THREAD_STACK)  # the default is the size of the large main stack
    control = socket.socket(fileno=fcntl.fcntl(settings.control, fcntl.F_DUPFD_CLOEXEC, 6))
    os.close(settings.control)
    _occupy_low_descriptors()
    try:
        worker = Worker(settings, control)
    except BaseException as error:
        text = str(error) if isinstance(error, Refused) else f"{type(error).__name__}: {error}"
        control.send(json.dumps({"refused": text}).encode())
        os._exit(1)
    control.send(b'{"ready": true}')
    return worker


class Worker:
    """The confinement of a worker process, and its loop over tests."""

    def __init__(self, settings: Settings, control: socket.socket) -> None:
        self._control = control
        self._limits = limits = settings.limits
        self._pids: fresh.PidNamespaces | None = None
        self._work: fresh.WorkFolder | None = None
        self._rules: int | None = None
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
        by_landlock = settings.tier == "landlock"
        if not by_landlock:
            namespaces.enter_user_namespace(settings.high_id)
            namespaces.enter_pid_namespace()
        _warm_up(settings)
        address_space = read_address_space() + limits.memory_bytes
        if by_landlock:
            self._enter_landlock(settings)
        else:
            self._enter_namespaces(settings)
        self._filter = seccomp.Filter(
            refuse_attribute_changes=by_landlock,
            stop_truncation=by_landlock and landlock.read_abi() < landlock.TRUNCATION_ABI,
        )
        # The kernel counts tasks per user. Without a user namespace, an ordinary user's other
        # processes count too; in that case the worker counts a program's threads itself.
        has_own_limit = not by_landlock or settings.high_id is not None
        self._max_threads = None if has_own_limit else limits.threads
        disk_bytes = 0 if by_landlock else limits.disk_bytes
        limit_process(
            address_space,
            file_bytes=max(limits.output_bytes, disk_bytes) + 1,
            tasks=limits.threads + 5 if has_own_limit else None,
        )
        self._cpu_limits = compute_cpu_limits(limits.cpu_s)
        namespaces.forbid_new_privileges()
        _hide_harness_modules()
        execute.seed_random()
        gc.collect()
        gc.freeze()

    def _enter_namespaces(self, settings: Settings) -> None:
        work = namespaces.build_root(folders.find_needed_folders(settings.path), DEVICES)
        if settings.high_id is not None:
            namespaces.become_first_user()
        namespaces.keep_admin_capability()
        namespaces.die_with_parent()
        self._pids = fresh.PidNamespaces()
        self._work = fresh.WorkFolder(work, self._limits.disk_bytes, self._limits.files)

    def _enter_landlock(self, settings: Settings) -> None:
        readable = folders.find_needed_folders(settings.path)
        self._rules = landlock.create_ruleset(readable, DEVICES)
        os.chdir("/")
        if settings.high_id is not None:
            descriptors = folders.open_folders(readable, FOLDERS_FROM)
            os.setgroups([])
            os.setresgid(*3 * (settings.high_id,))
            os.setresuid(*3 * (settings.high_id,))
            folders.use_descriptors_for_unreachable(descriptors)

    def serve(self) -> None:
        """Run tests one by one. In each fork it returns, and the caller runs the program.

        So no stack frame above the program contains the outcome of a different program.
        """
        while self._serve_one():
            pass

    def _serve_one(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._control, 1, 5)
        if not message:
            os._exit(0)
        ending = self._run_program(descriptors)
        if ending is None:
            return False
        self._control.send(pack_ending(ending))
        if self._work is not None:  # the harness judges in the meantime
            self._work.clean()
        return True

    def _run_program(self, descriptors: list[int]) -> Ending | None:
        """Run a program until it ends or is stopped; return its ending, or None in the fork."""
        if self._work is not None:
            self._work.prepare()
        if self._pids is not None:
            self._pids.open()
        stage_reader, stage_writer = os.pipe()
        process = _fork()
        if process == 0:
            self._become_program(descriptors, stage_writer)
            return None
        if self._pids is not None:
            self._pids.leave()
        os.close(stage_writer)
        status, cpu_s, wall_s, stopped = watch_process(
            process,
            self._limits.cpu_s,
            self._limits.wall_s,
            self._control.fileno(),
            self._max_threads,
        )
        if self._pids is not None:
            self._pids.end()
        for descriptor in descriptors:
            os.close(descriptor)
        stage = os.read(stage_reader, 1000)
        os.close(stage_reader)
        if self._pids is not None:
            self._pids.close()
        setup = "" if stage.startswith(_CONFINED) else stage.decode(errors="replace") or "it ended"
        compiled = stage == _CONFINED + execute.COMPILED
        return Ending(status, cpu_s, wall_s, stopped, compiled, setup)

    def _become_program(self, descriptors: list[int], stage_writer: int) -> None:
        try:
            self._confine(descriptors, stage_writer)
            os.write(execute.STAGE, _CONFINED)
        except BaseException as error:
            os.write(stage_writer, f"{type(error).__name__}: {error}".encode()[:1000])
            os._exit(1)

    def _confine(self, descriptors: list[int], stage_writer: int) -> None:
        """Confine a program's process; keep descriptors 0 to 5 only.

        They are input, output, errors, report, source (0 to 4) and stage (5). Every call in this
        method costs every test copied memory pages, so work that can be done once is done in the
        worker.
        """
        for number, descriptor in enumerate((*descriptors, stage_writer)):
            os.dup2(descriptor, number)
        if self._rules is not None:
            namespaces.die_with_parent()
            landlock.restrict_process(self._rules)
            os.closerange(6, FOLDERS_FROM)
        else:
            os.closerange(6, 1 << 16)
            namespaces.drop_capabilities()
        # The C function directly: the enumerations of ``signal.signal`` would copy many pages.
        set_handler(signal.SIGINT, signal.default_int_handler)
        resource.setrlimit(resource.RLIMIT_CPU, self._cpu_limits)
        self._filter.install(os.getpid())


def _warm_up(settings: Settings) -> None:
    """Import what programs use, and prepare the names that they find."""
    own = list(sys.path)
    for name in WARM:
        importlib.import_module(name)
    sys.path += [entry for entry in settings.path if entry not in own]
    try:
        for name in settings.preload:
            importlib.import_module(name)
        if "numpy" in sys.modules:
            importlib.import_module("numpy.random")  # numpy would load it at the first use
    finally:
        sys.path[:] = own
    patch_open()
    add_site_builtins()
    if settings.prelude == "lcb":
        add_livecodebench_names()


def _fork() -> int:
    """Fork without Python's own handlers, which copy pages and reseed ``random``.

    The handlers repair locks that other threads hold, but the worker has no other threads. Without
    them, every program starts with the same random state, so its answers are reproducible.
    """
    process: int = _libc.fork()
    if process < 0:
        raise OSError("fork failed")
    return process


def _reset_signals() -> None:
    """Reset signals to an interpreter's defaults, whatever was inherited (``nohup``, a mask).

    Ctrl-C is ignored, since the harness handles it; only a test's fork has Python's own handler.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _occupy_low_descriptors() -> None:
    """Occupy descriptors 3, 4 and 5, so that no received descriptor has its target's number."""
    while (descriptor := os.open("/dev/null", os.O_RDONLY)) < 6:
        pass
    os.close(descriptor)


def _hide_harness_modules() -> None:
    """Remove the harness's modules from ``sys.modules``, so that programs cannot import them."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "gapft_harness"]:
        del sys.modules[name]
