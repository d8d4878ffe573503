"""lm-eval's code tasks: the sandbox compared with the hub's unconfined ``code_eval``.

The hub's code is not part of this project. ``GAPFT_CODE_EVAL_AT`` names its folder, such as
``metrics/code_eval`` in a clone of github.com/huggingface/evaluate. It runs in a process with
lm_eval's imports, as in an evaluation.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

from gapft_harness.lm_eval_bridge.code_eval import CodeEval
from tests.benchmarks.measure import Figure, time_in_turn
from tests.lm_eval_bridge.test_code_eval import CANDIDATES

PLACE = "GAPFT_CODE_EVAL_AT"
_TASKS, _CANDIDATES, _ROUNDS = 24, 8, 5
#: Confinement refuses these, so they pass with the hub's metric and fail in the sandbox.
_CONFINED = ("subprocess.run", "/etc/passwd")


def measure(folder: Path) -> list[Figure]:
    """Time programs that end at once, and compare verdicts on candidate programs."""
    import evaluate
    import lm_eval.evaluator  # noqa: F401

    if not os.environ.get(PLACE):
        sys.exit(f"{PLACE} is not set: name the folder metrics/code_eval of huggingface/evaluate")
    os.environ["HF_ALLOW_CODE_EVAL"] = "1"
    hub_metric, own_metric = evaluate.load(os.environ[PLACE], cache_dir=str(folder)), CodeEval()
    predictions = [
        [f"def f(x):\n    return x + {task} + {number % 2}" for number in range(_CANDIDATES)]
        for task in range(_TASKS)
    ]
    tests = [f"assert [f(x) for x in range(9)] == [x + {task} for x in range(9)]"
             for task in range(_TASKS)]  # fmt: skip
    programs = {"predictions": predictions, "references": tests, "k": [1, 4]}
    rates = own_metric.compute(**programs)[0], hub_metric.compute(**programs)[0]
    for name, rate in rates[0].items():
        assert math.isclose(rate, rates[1][name]), rates
    ratio, own_seconds, hub_seconds = time_in_turn(
        lambda: own_metric.compute(**programs), lambda: hub_metric.compute(**programs), _ROUNDS
    )
    count = _TASKS * _CANDIDATES
    detail = f"{count / own_seconds:.0f} and {count / hub_seconds:.0f} programs a second"
    return [
        Figure("time for programs that end at once", ratio, 0.2, detail=detail),
        compare_verdicts(own_metric, hub_metric),
    ]


def compare_verdicts(own_metric: CodeEval, hub_metric: object) -> Figure:
    """Compare verdicts on candidates, except those that only confinement refuses."""
    candidates = [
        candidate for candidate in CANDIDATES if not any(part in candidate for part in _CONFINED)
    ]
    programs = {"predictions": [candidates], "references": ["assert add(2, 3) == 5"], "k": [1]}
    passed = [
        [outcome["passed"] for _, outcome in metric.compute(**programs)[1][0]]  # type: ignore[attr-defined]
        for metric in (own_metric, hub_metric)
    ]
    differ = [candidate for candidate, a, b in zip(candidates, *passed, strict=True) if a != b]
    return Figure(
        "verdicts that differ", len(differ), 0, f"of {len(candidates)}", detail=str(differ or "")
    )
