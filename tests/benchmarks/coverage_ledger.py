"""The coverage ledger's cost: an adapter's samples compared with as many of the source's.

Also the whole ledger of an arm compared with the arm's training and greedy audit.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from gapft_harness.store.store import STORE_VARIABLE
from tests.benchmarks.measure import Figure
from tests.command import succeed

K, ROUNDS = 8, 3


def measure(folder: Path) -> list[Figure]:
    """Measure one demo arm: 400 problems, K samples each, including loading the model."""
    from gapft_harness.core.records import SOURCE, Arm
    from gapft_harness.experiments.coverage_ledger import build_ledger_path
    from gapft_harness.stages.audit import audit_arm
    from gapft_harness.stages.train.job import train_arms

    run = folder / "run"
    settings = ("conditions=[gapft]", "seeds=[13]", "data.audit_limit=400")
    succeed(
        "run",
        "demo",
        "--run-dir",
        run,
        *(word for setting in settings for word in ("--set", setting)),
    )

    def time_work(work: Callable[[], object], output: Path) -> float:
        if output.is_dir():
            output.rename(folder / f"gone{time.monotonic_ns()}")
        else:
            output.unlink(missing_ok=True)
        os.environ[STORE_VARIABLE] = str(folder / f"store{time.monotonic_ns()}")  # prevents reuse
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def sampled(condition: str, seed: int) -> float:
        file = build_ledger_path(Arm(condition, seed))
        draw = partial(audit_arm, file=file, samples=K)
        return time_work(lambda: draw(str(run), condition, seed), run / file)

    def arm() -> float:
        trained, decided = run / "adapters/gapft-seed13", run / "decisions/gapft-seed13.parquet"
        training = time_work(lambda: train_arms(str(run), [["gapft", 13]]), trained)
        return training + time_work(lambda: audit_arm(str(run), "gapft", 13), decided)

    rounds = [(sampled("gapft", 13), sampled(SOURCE, 0), arm()) for _ in range(ROUNDS)]
    ours, source, output = (statistics.median(setting) for setting in zip(*rounds, strict=True))
    ratio = statistics.median(a / b for a, b, _ in rounds)
    beside = statistics.median(a / c for a, _, c in rounds)
    detail = f"{ours:.1f} s for {400 * K:,} responses; {source:.1f} s of the source"
    return [
        Figure("samples of an adapter / of the source", ratio, 1.5, detail=detail),
        Figure(
            f"ledger of k = {K} / training and audit of an arm", beside, None,
            detail=f"an arm {output:.1f} s",
        ),
    ]  # fmt: skip
