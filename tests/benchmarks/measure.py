"""Time two ways of one job in turn, and whole processes."""

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

from gapft_harness.core.cpu import describe_slow_dtype
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

    def time_call(function: Callable[[], object]) -> float:
        start = clock()
        function()
        return clock() - start

    own_times, other_times = [], []
    for turn in range(rounds):
        if turn % 2:  # the order alternates
            other_times.append(time_call(other))
        own_times.append(time_call(ours))
        if turn % 2 == 0:
            other_times.append(time_call(other))
    ratios = [a / b for a, b in zip(own_times, other_times, strict=True)]
    return (
        statistics.median(ratios),
        statistics.median(own_times),
        statistics.median(other_times),
    )


def run_process(command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> float:
    """Run a whole process and return its seconds; a failure ends the benchmark with its output.

    The process has its own store, so it reuses no earlier results.
    """
    store = {STORE_VARIABLE: str(cwd / f"store{time.monotonic_ns()}")}
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **store, **(env or {})}
    start = time.perf_counter()
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True)
    if done.returncode:
        output = f"{done.stdout}{done.stderr}"[-3000:]
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{output}")
    return time.perf_counter() - start


def list_models(benchmark: str) -> list[Path]:
    """Return the model folders named by the environment; print a message if there are none.

    Args:
        benchmark: the benchmark's name, for the message.
    """
    folders = [Path(name) for name in os.environ.get(MODELS, "").split(os.pathsep) if name]
    if not folders:
        print(f"{benchmark}: no real model is measured: {MODELS} names none", file=sys.stderr)
    return folders


def choose_dtype() -> str:
    """Return the dtype in which this CPU computes a real model fastest."""
    return "float32" if describe_slow_dtype("cpu", "bfloat16", "") else "bfloat16"


def read_vocabulary_size(model: Path) -> int:
    """Read the size of a model's vocabulary."""
    size: int = json.loads((model / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    return size
