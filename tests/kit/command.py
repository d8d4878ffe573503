"""Run the real ``gapft`` and ``lm_eval`` commands in their own process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from unittest import mock

from gapft_harness.cli.main import main
from tests.kit.forking import select_import_variables
from tests.kit.patience import COMMAND_S

ROOT = Path(__file__).parents[2]
_ALONE = threading.Lock()
COMMON = {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}


@cache
def _start_server() -> tuple[subprocess.Popen[str], dict[str, str]]:
    """Start ``tests.kit.forking``; also return the variables that its libraries read."""
    environment = {**os.environ, **COMMON}
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.kit.forking"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return server, select_import_variables(environment)


def _run_forked(
    arguments: list[str], cwd: Path | None, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    server, _ = _start_server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        request = {
            "arguments": arguments, "cwd": str(Path(cwd or ".").absolute()), "env": environment,
            "out": out.name, "err": err.name,
        }  # fmt: skip
        print(json.dumps(request), file=server.stdin, flush=True)
        child = int(server.stdout.readline())
        late = threading.Timer(COMMAND_S, os.kill, (child, 9))
        late.start()
        try:
            status = int(server.stdout.readline())
        finally:
            late.cancel()
        outputs = [Path(file.name).read_text("utf-8") for file in (out, err)]
    return subprocess.CompletedProcess(arguments, status, *outputs)


def gapft(
    *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``gapft ARGUMENTS`` and capture its output; the caller checks the exit status."""
    words = [*map(str, arguments)]
    environment = {**os.environ, **COMMON, **(env or {})}
    # a parallel command and one with other library settings start a new interpreter
    if _ALONE.acquire(blocking=False):
        try:
            if select_import_variables(environment) == _start_server()[1]:
                return _run_forked(words, cwd, environment)
        finally:
            _ALONE.release()
    return subprocess.run(
        [sys.executable, "-m", "gapft_harness.cli.main", *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


def call(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``gapft ARGUMENTS`` in this process, for a command that starts no job."""
    words, status = [*map(str, arguments)], 0
    output, errors = io.StringIO(), io.StringIO()
    interrupt_handler = signal.getsignal(signal.SIGINT)
    with (
        mock.patch.object(sys, "argv", ["gapft", *words]),
        contextlib.redirect_stdout(output),
        contextlib.redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        except Exception:
            traceback.print_exc()
            status = 1
        finally:
            signal.signal(signal.SIGINT, interrupt_handler)
    return subprocess.CompletedProcess(words, status, output.getvalue(), errors.getvalue())


def succeed(
    *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``gapft ARGUMENTS`` and require exit status 0."""
    done = gapft(*arguments, cwd=cwd, env=env)
    assert done.returncode == 0, f"gapft {arguments}\n{done.stdout}\n{done.stderr}"
    return done


def lm_eval(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the stock ``lm_eval ARGUMENTS`` and require exit status 0."""
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **COMMON},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    assert done.returncode == 0, f"lm_eval {arguments}\n{done.stdout}\n{done.stderr}"
    return done


def parse_section(text: str, title: str) -> dict[str, str]:
    """Return the lines of a section of a dry run by subject; several names may share a line."""
    section = f"\n{text}\n\n".partition(f"\n# {title}\n")[2].partition("\n\n")[0]
    rows = [line.partition(": ") for line in section.splitlines()]
    return {name: value for names, _, value in rows for name in names.split(", ")}
