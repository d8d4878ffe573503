"""Time two ways of one job in turn, and whole processes with their peak memory."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gapft_harness.engine.store import STORE_VARIABLE

#: The environment variable with the folders of real models, separated as in ``PATH``.
MODELS = "GAPFT_BENCH_MODELS"


@dataclass(frozen=True)
class Figure:
    """A measured figure and its limit; without a limit it is for information."""

    name: str
    value: float
    limit: float | None
    unit: str = "times"
    detail: str = ""

    @property
    def holds(self) -> bool:
        """Whether the figure is within its limit."""
        return self.limit is None or self.value <= self.limit


@dataclass(frozen=True)
class Process:
    """A finished process: wall seconds and peak memory in GB."""

    seconds: float
    peak_gb: float


def time_in_turn(
    ours: Callable[[], object],
    other: Callable[[], object],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float, float]:
    """Run both in turn and compare them pairwise, since the machine's speed drifts.

    Args:
        ours: the first way.
        other: the second way.
        rounds: the number of runs of each.
        clock: returns seconds of wall or process time.

    Returns:
        The median ratio ours / other, and both medians in seconds.
    """
    pairs = []
    for turn in range(rounds):
        # the order alternates
        if turn % 2:
            b, a = time_call(other, clock), time_call(ours, clock)
        else:
            a, b = time_call(ours, clock), time_call(other, clock)
        pairs.append((a, b))
    return (
        statistics.median(a / b for a, b in pairs),
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
    )


def run_process(command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> Process:
    """Run a whole process; a failure ends the benchmark with its output.

    The process has its own store, so it reuses no earlier results.
    """
    store = {STORE_VARIABLE: str(cwd / f"store{time.monotonic_ns()}")}
    start = time.perf_counter()
    child = subprocess.Popen(
        list(command),
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", **store, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert child.stdout is not None
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - start
    if child.returncode:
        sys.exit(f"{' '.join(command)}\nended with {child.returncode}:\n{output[-3000:]}")
    return Process(seconds, usage.ru_maxrss * _RSS_UNIT / 1e9)


def list_models(benchmark: str) -> list[Path]:
    """Return the model folders named by the environment; exit with a message if there are none.

    Args:
        benchmark: the benchmark's name, for the message.
    """
    folders = [Path(name) for name in os.environ.get(MODELS, "").split(os.pathsep) if name]
    if not folders:
        print(f"{benchmark}: no real model is measured: {MODELS} names none", file=sys.stderr)
    if missing := [str(folder) for folder in folders if not (folder / "config.json").is_file()]:
        sys.exit(f"{MODELS}: no model folder: {', '.join(missing)}")
    return folders


def read_vocabulary_size(model: Path) -> int:
    """Read the size of a model's vocabulary."""
    size: int = json.loads((model / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    return size


def time_call(function: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    function()
    return clock() - start


#: ru_maxrss counts KiB on Linux, bytes on macOS
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
