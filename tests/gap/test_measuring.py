"""Logged verdicts are those that the figures count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gapft_harness.core.records import GREEDY, Problem, Response, Verdict
from gapft_harness.gap.measuring import _judge_problems
from gapft_harness.run_directory.tables import JudgedResponse


@pytest.mark.parametrize(("pass_at", "column"), [(None, "em"), (0.5, "pass@1")])
def test_logs_sealed_verdict(pass_at: float | None, column: str) -> None:
    """The task's verdict is now a fail, but a pass was sealed."""
    outcome = SimpleNamespace(
        verdict=Verdict("fail"), filtered="7", metrics={"em": 0.25, "f1": 0.5}
    )
    stock: Any = SimpleNamespace(
        metric="em", pass_at=pass_at, outcomes=lambda golds, texts, filter: [outcome] * len(texts)
    )
    problem = Problem("p", "?", {"q": "?"}, {})
    sealed = JudgedResponse(Response("p", GREEDY, "7", (), "stop", 0), Verdict("pass"))
    (((chosen, changed),),) = _judge_problems([(problem, [sealed])], stock, "strict", "strict")
    (((other, _),),) = _judge_problems([(problem, [sealed])], stock, "flexible", "strict")
    assert changed
    assert (chosen.verdict.passed, chosen.metrics[column], chosen.metrics["f1"]) == (True, 1, 0.5)
    assert (other.verdict.passed, other.metrics[column]) == (False, 0)
    assert next(iter(chosen.metrics)) == column
