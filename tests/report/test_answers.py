"""Answers read from sealed tables: their codes, and what is refused by the verifier's name."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapft_harness.analysis.redistribution import NO_ANSWER
from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import Arm
from gapft_harness.report.reading.adapters import stacked
from gapft_harness.report.reading.answers import NoAnswersError, read_answers

TASK = {"name": "options", "verifier": "letters"}
ARMS = [Arm("gapft", 21), Arm("gapft", 13), Arm("uniform", 13)]
GOLDS = ("B", "A", "C")


def written(
    folder: Path,
    *,
    golds: Sequence[Any] = GOLDS,
    source: Sequence[str | None] = ("B", None, "D"),
    given: Sequence[str | None] = ("A", "A", "C"),
    statuses: Sequence[str] = (),
) -> Path:
    """A run's tables of three problems; statuses default to those of exact answers."""
    ids = ["p1", "p2", "p3"]

    def table(name: str, columns: dict[str, Any]) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path)

    def judged(answers: Sequence[str | None], index: int) -> dict[str, Any]:
        right = [g["answer"] if isinstance(g, dict) else g for g in golds]
        verdicts = ["pass" if a == g else "fail" for a, g in zip(answers, right, strict=True)]
        return {
            "problem_id": ids,
            "index": [index] * 3,
            "status": statuses or verdicts,
            "answer": pa.array(answers, pa.string()),
        }

    table("audit/problems.parquet", {"problem_id": ids, "gold": [json.dumps(g) for g in golds]})
    greedy, sample = judged(source, -1), judged(["A"] * 3, 0)
    both = pa.concat_tables([pa.table(greedy), pa.table(sample)])
    pq.write_table(both, folder / "audit/responses.parquet")
    for arm in ARMS:
        table(f"decisions/{arm.name}.parquet", judged(given, -1))
    return folder


def test_answers_have_codes_and_none_has_its_own(tmp_path: Path) -> None:
    found = read_answers(written(tmp_path), TASK, ARMS)
    assert found.golds.tolist() == [1, 0, 2]
    assert found.source.tolist() == [1, NO_ANSWER, 3]
    assert stacked(found.arms, "gapft").tolist() == [[0, 0, 2]] * 2
    assert stacked(found.arms, "uniform").shape == (1, 3)
    assert read_answers(tmp_path, TASK, ()).arms == {}


def test_a_gold_may_be_an_object_with_an_answer(tmp_path: Path) -> None:
    golds = [{"answer": gold, "options": ["x", "y"]} for gold in GOLDS]
    assert read_answers(written(tmp_path, golds=golds), TASK, ARMS).golds.tolist() == [1, 0, 2]


def test_seeds_ascend() -> None:
    arms = {
        Arm("gapft", 21): np.array([2, 3]),
        Arm("b", 1): np.zeros(2),
        Arm("gapft", 13): np.ones(2),
    }
    assert stacked(arms, "gapft").tolist() == [[1, 1], [2, 3]]


REFUSED: dict[str, dict[str, Any]] = {
    "'letters'": {"source": [None] * 3},
    r"gapft-seed21.parquet: .*'letters' .*p1 \(gold 'B', answer 'A', verdict pass\)": {
        "statuses": ["pass", "pass", "pass"],
        "source": GOLDS,
    },
    r"p2 \(gold 'A', answer None, verdict pass\)": {
        "given": ["B", None, "C"],
        "source": GOLDS,
        "statuses": ["pass", "pass", "pass"],
    },
    r"'options'.*\{.answer.: 3\}": {"golds": ({"answer": 3}, "A", "C")},
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_redistributed_is_refused_by_name(tmp_path: Path, why: str) -> None:
    with pytest.raises(NoAnswersError, match=why) as caught:
        read_answers(written(tmp_path, **REFUSED[why]), TASK, ARMS)
    assert str(tmp_path) not in str(caught.value), "the report may quote it, on any machine"


def test_tables_of_other_problems_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path) / "decisions/uniform-seed13.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(GapftError, match="other problems than the audit"):
        read_answers(tmp_path, TASK, ARMS)
