"""A process that imports the libraries once and forks commands.

Importing torch, transformers, peft and lm_eval took half of the CPU time of all tests: two seconds
a command and six a worker; importing the harness with its plugins takes another 0.4 seconds each.
Commands and their workers are forks of a process that has imported all of this. The rest is as in
a new process: environment, folder, arguments, descriptors, exit status, parent.
Real starts are tested by the commands that ``tests/laws/test_resume.py`` kills, by
``tests/executors`` and by README.

``python -m tests.kit.forking`` reads one command a line, and prints its pid and exit status.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LIBRARIES = (
    "torch", "transformers", "datasets", "lm_eval.tasks", "lm_eval.models.huggingface", "peft",
    "pyarrow.parquet", "scipy.stats", "typer",
)  # fmt: skip

#: Variables that libraries read when they are imported, without those that they set: lm_eval sets
#: HF_XET_HIGH_PERFORMANCE and torch sets TORCHINDUCTOR_CACHE_DIR.
_READ_AT_IMPORT = re.compile(
    "OMP_|HF_(?!XET_HIGH)|HUGGING|TRANSFORMERS_|TORCH(?!INDUCTOR_CACHE)|PYTHON|CUDA|LM_EVAL|GAPFT_NO"
)

_WORKER = "from gapft_harness.core.processes import begin"
_PR_SET_CHILD_SUBREAPER = 36


def select_import_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that libraries read when they are imported."""
    return {k: v for k, v in environment.items() if _READ_AT_IMPORT.match(k)}


def run_as_process(
    run: Callable[[], Any], environment: Mapping[str, str], path: Sequence[str]
) -> None:
    """Run a function as a new process would, and exit with its status."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        try:
            run()
            status = 0
        except SystemExit as end:
            if end.code is None or isinstance(end.code, int):
                status = end.code or 0
            else:
                print(end.code, file=sys.stderr)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status & 0xFF)


def move_descriptors(descriptors: Mapping[int, int]) -> None:
    """Move descriptors to their target numbers, and close all others."""
    above = max([2, *descriptors, *descriptors.values()]) + 1
    copies = {number: os.dup2(held, above + number) for held, number in descriptors.items()}
    for number, copy in copies.items():
        os.dup2(copy, number, inheritable=True)
    last = -1
    for number in [*sorted(descriptors.values()), 65536]:
        if number > last + 1:
            os.closerange(last + 1, number)
        last = number


class Popen(subprocess.Popen[Any]):
    """Forks workers; starts other commands as usual."""

    nursery: socket.socket
    environment: dict[str, str]

    def __init__(self, args: Any, *rest: Any, **options: Any) -> None:
        environment = options.get("env") or os.environ
        if (
            not isinstance(args, list)
            or len(args) != 5
            or not str(args[3]).count(_WORKER)
            or select_import_variables(environment) != self.environment
        ):
            super().__init__(args, *rest, **options)
            return
        passed = options["pass_fds"]
        output = options["stdout"].fileno()
        message = json.dumps(
            [args[4], dict(environment), os.getcwd(), os.getpid(), passed]
        ).encode()
        socket.send_fds(self.nursery, [len(message).to_bytes(4)], [output, *passed])
        self.nursery.sendall(message)
        self.args, self.returncode, self._child_created = args, None, True
        self.stdin = self.stdout = self.stderr = None
        self._waitpid_lock = threading.Lock()
        self.pid = int.from_bytes(self.nursery.recv(4))


def serve_workers(requests: socket.socket) -> None:
    """Fork workers, which become children of the command, because it is a subreaper."""
    while head := socket.recv_fds(requests, 4, 8):
        size, descriptors = head[:2]
        if not size:
            os._exit(0)
        message = b""
        while len(message) < int.from_bytes(size):
            message += requests.recv(1 << 20)
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        if os.fork():
            os._exit(0)
        arguments, environment, folder, command, passed = json.loads(message)
        while os.getppid() != command:
            time.sleep(0.001)
        requests.sendall(os.getpid().to_bytes(4))
        os.setsid()
        output, *pipes = descriptors
        null = os.open(os.devnull, os.O_RDONLY)
        errors = os.dup(output)
        move_descriptors({null: 0, output: 1, errors: 2, **dict(zip(pipes, passed, strict=True))})
        os.chdir(folder)
        path, *rest = json.loads(arguments)
        sys.argv[:] = ["-c", arguments]

        def run(rest: list[Any] = rest) -> None:
            importlib.import_module("gapft_harness.core.processes").begin(*rest)

        run_as_process(run, environment, path)


def become_command(request: dict[str, Any]) -> None:
    """Turn this process into ``python -m gapft_harness.cli.main ARGUMENTS``."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    null = os.open(os.devnull, os.O_RDONLY)
    output, errors = (os.open(request[key], os.O_WRONLY | os.O_APPEND) for key in ("out", "err"))
    move_descriptors({null: 0, output: 1, errors: 2})
    os.chdir(request["cwd"])
    Popen.nursery, requests = socket.socketpair()
    Popen.environment = select_import_variables(os.environ)
    if not os.fork():
        Popen.nursery.close()
        serve_workers(requests)
    requests.close()
    subprocess.Popen = Popen  # type: ignore[misc]
    sys.argv[:] = ["gapft", *request["arguments"]]
    path = [request["cwd"], *sys.path[1:]]

    def run() -> None:
        runpy.run_module("gapft_harness.cli.main", run_name="__main__", alter_sys=True)

    run_as_process(run, request["env"], path)


def serve() -> None:
    """Import the libraries and the harness, then fork a command for every line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.fsync = lambda fd: None  # as in tests/conftest.py
    for name in LIBRARIES:
        importlib.import_module(name)
    importlib.import_module("gapft_harness.hooks.manager").load_plugins()
    importlib.import_module("gapft_harness.cli.runs")
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            become_command(json.loads(line))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
