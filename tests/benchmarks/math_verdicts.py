"""Wrong verdicts on the pairs of tests/plugins/math_pairs.jsonl: ours and other graders'.

The other graders come from PyPI (``make bench-verdicts`` installs them in a folder of their own):
math-verify; lm-eval's Minerva equality; and those of PRM800K and Qwen2.5-Math, which verl contains.
"""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from gapft_harness.verification.mathematics.comparing import compare_answers
from gapft_harness.verification.mathematics.notation import tidy_answer
from gapft_harness.verification.mathematics.responses import find_boxed_answer
from gapft_harness.verification.pool import WorkerPool
from tests.benchmarks.measure import Figure

PAIRS = Path(__file__).parents[1] / "plugins" / "math_pairs.jsonl"
#: The folder that the other graders are installed in.
GRADERS = "GAPFT_BENCH_GRADERS"
#: The grader of a worker.
GRADER = "GAPFT_BENCH_GRADER"
NAMES = ("ours", "math_verify", "minerva", "prm800k", "qwen")
TIMEOUT_S = 5


def measure(folder: Path) -> Iterator[Figure]:
    """Count the wrong verdicts of each grader; a time-out or an exception is a rejection."""
    rows = [json.loads(line) for line in PAIRS.read_text("utf-8").splitlines()]
    rows = [row for row in rows if row["kind"] != "responses"]  # not all graders read responses
    for name in NAMES if os.environ.get(GRADERS) else NAMES[:1]:
        os.environ[GRADER] = name  # for its workers
        with WorkerPool(
            "tests.benchmarks.math_verdicts:grade",
            timeout_s=TIMEOUT_S,
            setup="tests.benchmarks.math_verdicts:find_grader",
        ) as pool:
            outcomes = pool.map([(row["gold"], find_answer(row["answer"])) for row in rows])
        verdicts = [outcome.status == "done" and bool(outcome.value) for outcome in outcomes]
        undecided = sum(outcome.status != "done" for outcome in outcomes)
        detail = f"of {len(rows)} pairs; {undecided} without a verdict (time-outs, exceptions)"
        for kind, passes in (("accepted", True), ("rejected", False)):
            wrong = sum(
                verdict == passes != row["expected"]
                for verdict, row in zip(verdicts, rows, strict=True)
            )
            limit = 0 if name == "ours" else None
            yield Figure(f"{name}: wrongly {kind}", wrong, limit, "pairs", detail)


def find_answer(answer: str) -> str:
    """Return the answer of a pair: the content of its last boxes, or all of it."""
    has_box = "\\boxed" in answer or "\\fbox" in answer
    return (find_boxed_answer(answer) or "") if has_box else answer


def grade(pair: list[str]) -> bool:
    """Return the verdict of the grader on ``[gold, answer]``."""
    return bool(find_grader()(*pair))


@cache
def find_grader() -> Callable[[str, str], object]:
    """Import the grader; a worker does so before its first pair."""
    name = os.environ[GRADER]
    if name == "ours":
        # As the verifiers do, which read golds and answers with ``tidy_answer``.
        return lambda gold, answer: compare_answers([tidy_answer(gold), tidy_answer(answer)])
    root = os.environ[GRADERS]
    sys.path.insert(0, root)
    if name == "math_verify":
        from math_verify import parse, verify

        return lambda gold, answer: verify(
            parse(f"${gold}$", parsing_timeout=None),
            parse(f"${answer}$", parsing_timeout=None),
            timeout_seconds=None,
        )
    if name == "minerva":
        from lm_eval.tasks.minerva_math.utils import is_equiv, normalize_final_answer

        return lambda gold, answer: is_equiv(
            normalize_final_answer(gold), normalize_final_answer(answer)
        )
    # verl itself imports more than its graders need.
    for package in ("verl", "verl.utils", "verl.utils.reward_score"):
        module = types.ModuleType(package)
        module.__path__ = [str(Path(root, *package.split(".")))]
        sys.modules[package] = module
    from verl.utils.reward_score import prime_math

    if name == "prm800k":
        return lambda gold, answer: prime_math.grade_answer(answer, gold)
    return lambda gold, answer: prime_math.math_equal(answer, gold)
