"""Answers read from a run's tables: their codes, and answers that cannot be used."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapft_harness.analysis.redistribution import NO_ANSWER
from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import Arm
from gapft_harness.report.reading.adapters import stacked
from gapft_harness.report.reading.answers import NoAnswersError, read_answers
from gapft_harness.run_directory import layout

TASK = {"name": "options", "verifier": "letters"}
ARMS = [Arm("gapft", 21), Arm("gapft", 13), Arm("uniform", 13)]
TABLES = {arm: layout.decisions_path(arm) for arm in ARMS}
GOLDS = ("B", "A", "C")


def write_tables(
    folder: Path,
    *,
    golds: Sequence[Any] = GOLDS,
    source: Sequence[str | None] = ("B", None, "D"),
    trained: Sequence[str | None] = ("A", "A", "C"),
    status: str = "",
) -> Path:
    """Write a run's tables of three problems; by default statuses are those of exact answers."""
    ids = ["p1", "p2", "p3"]
    right = [gold["answer"] if isinstance(gold, dict) else gold for gold in golds]

    def judge(answers: Sequence[str | None], index: int) -> pa.Table:
        statuses = [
            status or ("pass" if answer == gold else "fail")
            for answer, gold in zip(answers, right, strict=True)
        ]
        column = pa.array(answers, pa.string())
        return pa.table(
            {"problem_id": ids, "index": [index] * 3, "status": statuses, "answer": column}
        )

    for name in ("audit", "decisions"):
        (folder / name).mkdir()
    problems = pa.table({"problem_id": ids, "gold": [json.dumps(gold) for gold in golds]})
    pq.write_table(problems, folder / "audit/problems.parquet")
    responses = pa.concat_tables([judge(source, -1), judge(["A"] * 3, 0)])
    pq.write_table(responses, folder / "audit/responses.parquet")
    for name in TABLES.values():
        pq.write_table(judge(trained, -1), folder / name)
    return folder


def test_codes_answers_and_missing_answers(tmp_path: Path) -> None:
    answers = read_answers(write_tables(tmp_path), TASK, TABLES)
    assert answers.golds.tolist() == [1, 0, 2]
    assert answers.source.tolist() == [1, NO_ANSWER, 3]
    assert stacked(answers.arms, "gapft").tolist() == [[0, 0, 2]] * 2
    assert stacked(answers.arms, "uniform").shape == (1, 3)


def test_an_empty_answer_is_an_answer(tmp_path: Path) -> None:
    """A rule that reads no text is not a rule that reads nothing."""
    answers = read_answers(write_tables(tmp_path, source=("", None, "D")), TASK, TABLES)
    empty, none, other = answers.source.tolist()
    assert none == NO_ANSWER
    assert len({empty, none, other, *answers.golds.tolist()}) == 6


def test_reads_gold_from_object_answer(tmp_path: Path) -> None:
    golds = [{"answer": gold, "options": ["x", "y"]} for gold in GOLDS]
    answers = read_answers(write_tables(tmp_path, golds=golds), TASK, TABLES)
    assert answers.golds.tolist() == [1, 0, 2]


INVALID_TABLES: dict[str, dict[str, Any]] = {
    "'letters'": {"source": [None] * 3},
    r"gapft-seed21.parquet: .*'letters' .*p1 \(gold 'B', answer 'A', verdict pass\)": {
        "status": "pass",
        "source": GOLDS,
    },
    r"'options'.*\{.answer.: 3\}": {"golds": ({"answer": 3}, "A", "C")},
}


@pytest.mark.parametrize("why", INVALID_TABLES)
def test_rejects_unusable_answers(tmp_path: Path, why: str) -> None:
    with pytest.raises(NoAnswersError, match=why) as caught:
        read_answers(write_tables(tmp_path, **INVALID_TABLES[why]), TASK, TABLES)
    assert str(tmp_path) not in str(caught.value), "the report may quote it, on any machine"


def test_rejects_tables_of_other_problems(tmp_path: Path) -> None:
    path = write_tables(tmp_path) / "decisions/uniform-seed13.parquet"
    pq.write_table(pq.read_table(path).slice(1), path)
    with pytest.raises(GapftError, match="uniform-seed13"):
        read_answers(tmp_path, TASK, TABLES)
