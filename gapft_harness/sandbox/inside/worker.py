"""The worker: a preloaded, confined interpreter that forks for every test and watches the fork.

The worker is trusted code inside the sandbox's namespaces, and the parent of untrusted programs. It
receives programs and inputs only as descriptors, so that its memory, which every fork inherits,
never contains them.
"""

from __future__ import annotations

import contextlib
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
import time
from _signal import signal as set_handler  # type: ignore[import-not-found]
from dataclasses import dataclass
from typing import Any

from gapft_harness.sandbox.confinement import folders, fresh, landlock, namespaces, seccomp
from gapft_harness.sandbox.confinement.limits import (
    ProcessLimits,
    compute_cpu_limits,
    read_address_space,
    widen_stack,
)
from gapft_harness.sandbox.confinement.streams import patch_open
from gapft_harness.sandbox.confinement.syscalls import Refused
from gapft_harness.sandbox.inside import execute
from gapft_harness.sandbox.inside.crowd import Crowd
from gapft_harness.sandbox.inside.forking import OneCpu, fork
from gapft_harness.sandbox.inside.messages import Ending, pack_ending, unpack_job
from gapft_harness.sandbox.inside.prelude import WARM, add_livecodebench_names, add_site_builtins
from gapft_harness.sandbox.inside.watch import Calls, Watch

DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
#: The first descriptor for folders of an unreachable interpreter; a fork closes those below it.
FOLDERS_FROM = 200
_THREAD_STACK = 8 << 20
#: The first word that a program's process writes to ``STAGE``; the program's stage follows.
_CONFINED = b"ok"


@dataclass(frozen=True)
class Settings:
    """The settings that the harness passes to a worker at its start.

    Attributes:
        tier: ``namespaces`` or ``landlock``.
        control: descriptor of the socket to the harness.
        high_id: for root, the user id to switch to; None for an ordinary user.
        memory_bytes: see ``Limits``; also ``output_bytes``, ``disk_bytes``, ``files``,
            ``threads``.
        preload: modules to import in addition to the usual ones.
        path: the harness's import path, to import them from.
        share: the number of workers per usable core, at least 1.
        prelude: the names that programs have without import; see ``Sandbox``.
    """

    tier: str
    control: int
    high_id: int | None
    memory_bytes: int
    output_bytes: int
    disk_bytes: int
    files: int
    threads: int
    preload: list[str]
    path: list[str]
    share: float
    prelude: str


def start(settings: dict[str, Any]) -> Worker:
    """Confine this process and return its worker, whose ``serve`` runs the tests."""
    parsed_settings = Settings(**settings)
    if widen_stack(parsed_settings.memory_bytes):
        os.execve(sys.executable, sys.orig_argv, os.environ)
    _reset_signals()
    threading.stack_size(_THREAD_STACK)  # the default is the size of the large main stack
    control = socket.socket(fileno=fcntl.fcntl(parsed_settings.control, fcntl.F_DUPFD_CLOEXEC, 6))
    os.close(parsed_settings.control)
    _occupy_low_descriptors()
    try:
        worker = Worker(parsed_settings, control)
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
        self._pids: fresh.PidNamespaces | None = None
        self._work: fresh.WorkFolder | None = None
        self._rules: int | None = None
        self._cpu = OneCpu()
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("500")
        if settings.tier == "namespaces":
            namespaces.enter_user_namespace(settings.high_id)
            namespaces.enter_pid_namespace()
            self._warm_up(settings)
            self._enter_namespaces(settings)
        else:
            self._warm_up(settings)
            self._enter_landlock(settings)
        by_landlock = settings.tier == "landlock"
        self._filter = seccomp.Filter(
            only_descriptors=by_landlock,
            stop_truncation=by_landlock and landlock.read_abi() < landlock.TRUNCATION_ABI,
        )
        self._limits.apply()
        namespaces.forbid_new_privileges()
        _hide_harness_modules()
        execute.remember_modules()
        execute.seed_random()
        gc.collect()
        gc.freeze()

    def _warm_up(self, settings: Settings) -> None:
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
        disk = settings.disk_bytes if settings.tier == "namespaces" else 0
        # The kernel counts tasks per user. Without a user namespace, an ordinary user's other
        # processes count too; in that case the worker counts a program's threads itself.
        has_own_limit = settings.tier == "namespaces" or settings.high_id is not None
        self._crowd = Crowd(settings.share, None if has_own_limit else settings.threads)
        self._limits = ProcessLimits(
            address_space=read_address_space() + settings.memory_bytes,
            file_bytes=max(settings.output_bytes, disk) + 1,
            tasks=settings.threads + 5 if has_own_limit else None,
        )

    def _enter_namespaces(self, settings: Settings) -> None:
        work = namespaces.build_root(folders.find_needed_folders(settings.path), DEVICES)
        if settings.high_id is not None:
            namespaces.become_first_user()
        namespaces.keep_admin_capability()
        namespaces.die_with_parent()
        self._pids = fresh.PidNamespaces()
        self._work = fresh.WorkFolder(work, settings.disk_bytes, settings.files)

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
        message, descriptors, _, _ = socket.recv_fds(self._control, 4096, 8)
        if not message:
            os._exit(0)
        cpu_s, wall_s = unpack_job(message)
        ending = self._run_program(cpu_s, wall_s, descriptors)
        if ending is None:
            return False
        self._control.send(pack_ending(ending))
        if self._work is not None:  # the harness judges in the meantime
            self._work.clean()
        return True

    def _run_program(self, cpu_s: float, wall_s: float, descriptors: list[int]) -> Ending | None:
        """Run a program until it ends or is stopped; return its ending, or None in the fork."""
        start_time = time.monotonic()
        self._cpu.pin()
        if self._work is not None:
            self._work.prepare()
        if self._pids is not None:
            self._pids.open()
        input_file, *files, source = descriptors[:5]
        calls = None
        if len(descriptors) > 5:
            is_folder_untouched = (
                self._work.is_untouched if self._work is not None else lambda: True
            )
            calls, input_file = Calls.open(
                descriptors, self._limits.file_bytes, is_folder_untouched
            )
        stage_reader, stage_writer = os.pipe()
        seconds = compute_cpu_limits(cpu_s)
        child = fork()
        if child == 0:
            self._become_program([input_file, *files, source], stage_writer, seconds)
            return None
        if self._pids is not None:
            self._pids.leave()
        os.close(stage_writer)
        if calls is not None:
            os.close(input_file)
            descriptors = [*descriptors, calls.channel]
        result = Watch(child, cpu_s, wall_s, self._control.fileno(), self._crowd, calls).wait()
        if self._pids is not None:
            self._pids.end()
        for descriptor in descriptors:
            os.close(descriptor)
        self._cpu.unpin()
        word = os.read(stage_reader, 1000)
        os.close(stage_reader)
        if self._pids is not None:
            self._pids.close()
        setup = "" if word.startswith(_CONFINED) else word.decode(errors="replace") or "it ended"
        compiled = word == _CONFINED + execute.COMPILED
        return Ending(*result, compiled, time.monotonic() - start_time, setup)

    def _become_program(
        self, descriptors: list[int], stage_writer: int, seconds: tuple[int, int]
    ) -> None:
        try:
            self._confine(descriptors, stage_writer, seconds)
            os.write(execute.STAGE, _CONFINED)
        except BaseException as error:
            os.write(stage_writer, f"{type(error).__name__}: {error}".encode()[:1000])
            os._exit(1)

    def _confine(self, descriptors: list[int], stage_writer: int, seconds: tuple[int, int]) -> None:
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
        self._cpu.unpin()
        # The C function directly: the enumerations of ``signal.signal`` would copy many pages.
        set_handler(signal.SIGINT, signal.default_int_handler)
        resource.setrlimit(resource.RLIMIT_CPU, seconds)
        self._filter.install(os.getpid())


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
