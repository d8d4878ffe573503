"""Run the benchmarks named on the command line and print each figure beside its limit.

Without names: all benchmarks that need no other engine.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path

BENCHMARKS = (
    "statistics_speed",
    "generation",
    "math_verdicts",
    "commands",
    "sandbox_speed",
    "training",
)
#: These need vLLM (``make bench-vllm``), and run only by name.
FURTHER_BENCHMARKS = ("vllm_search",)


def main(names: list[str]) -> int:
    """Run the benchmarks in turn; return 1 if a figure exceeds its limit."""
    benchmarks = BENCHMARKS + FURTHER_BENCHMARKS
    if unknown := set(names) - set(benchmarks):
        sys.exit(f"unknown benchmark {sorted(unknown)}; known: {', '.join(benchmarks)}")
    failed = False
    for name in names or BENCHMARKS:
        print(f"{name} ...", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            module = importlib.import_module(f"tests.benchmarks.{name}")
            for figure in module.measure(Path(folder)):
                failed |= not figure.holds
                limit = "no limit" if figure.limit is None else f"{figure.limit:.3g}"
                holds = "ok" if figure.holds else "BEYOND"
                value = f"{figure.value:.3g} {figure.unit} ({limit}: {holds})"
                print(f"  {figure.name}: {value}\n    {figure.detail}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
