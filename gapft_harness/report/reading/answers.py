"""Read the answers in responses to the audit, as codes. No statistics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.redistribution import NO_ANSWER
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.report.reading.columns import DEPLOYED, read_columns
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import require_consistent


class NoAnswersError(UserError):
    """The run's answers cannot be redistributed over problems; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to the audit as codes, one for each text; ``NO_ANSWER`` for a missing answer.

    A response passes exactly where its answer equals the gold answer.

    Attributes:
        golds: shape (P,).
        source: shape (P,), of the source's decode.
        arms: by arm, shape (P,).
    """

    golds: NDArray[np.int64]
    source: NDArray[np.int64]
    arms: Mapping[Arm, NDArray[np.int64]]


def read_answers(run_path: Path, task: Mapping[str, Any], tables: Mapping[Arm, str]) -> Answers:
    """Read the recorded answers, and check that each agrees with its verdict.

    Args:
        run_path: the run directory.
        task: the task's facts.
        tables: the trained models whose answers are read, besides the source's, with the tables of
            their decisions, as ``adapters.find_tables`` returns them.

    Raises:
        NoAnswersError: the verifier gives no answers, gold answers are not texts, or a verdict
            differs from the comparison of the answer with the gold answer.
        GapftError: the tables contain different problems.
    """
    problems = read_columns(run_path / layout.problems_path("audit"), ("problem_id", "gold"))
    ids = problems["problem_id"]
    golds = [_read_gold(gold, task) for gold in problems["gold"]]
    source = layout.responses_path("audit")
    answers: dict[str, Sequence[str | None]] = {}
    for table in dict.fromkeys((source, *tables.values())):
        rows = read_columns(run_path / table, ("problem_id", "status", "answer"), DEPLOYED)
        if table == source and not any(rows["answer"]):
            raise NoAnswersError(
                f"the verifier {task['verifier']!r} gives no answers to redistribute (the column "
                f"'answer' of {source} is empty); only a verifier with a method answer(text), such "
                "as option_letter, gives some"
            )
        require_consistent(
            rows["problem_id"] == ids, f"{run_path / table}: contains other problems than the audit"
        )
        _check_verdicts(table, golds, rows, task)
        answers[table] = rows["answer"]
    given = {text for texts in answers.values() for text in texts if text is not None}
    distinct = sorted({*golds, *given})
    codes: dict[str | None, int] = {text: number for number, text in enumerate(distinct)}
    codes[None] = NO_ANSWER

    def encode_texts(texts: Sequence[str | None]) -> NDArray[np.int64]:
        return np.array([codes[text] for text in texts], dtype=np.int64)

    return Answers(
        golds=encode_texts(golds),
        source=encode_texts(answers[source]),
        arms={arm: encode_texts(answers[table]) for arm, table in tables.items()},
    )


def _read_gold(text: str, task: Mapping[str, Any]) -> str:
    """Read the right answer from a recorded gold: the gold itself, or its value ``answer``."""
    value = json.loads(text)
    answer = value.get("answer") if isinstance(value, dict) else value
    if isinstance(answer, str):
        return answer
    raise NoAnswersError(
        f"the gold answers of task {task['name']!r} are not texts, and do not have a text under "
        f"'answer' (one is {text:.60}); answers can be redistributed only where the gold is the "
        "right answer"
    )


def _check_verdicts(
    table: str, golds: Sequence[str], rows: Mapping[str, Sequence[Any]], task: Mapping[str, Any]
) -> None:
    for problem_id, gold, answer, status in zip(
        rows["problem_id"], golds, rows["answer"], rows["status"], strict=True
    ):
        if (status == "pass") != (answer == gold):
            raise NoAnswersError(
                f"{table}: answers cannot be redistributed: the verdict of the verifier "
                f"{task['verifier']!r} differs from a comparison of the answer with the gold "
                f"answer, for example {problem_id} (gold {gold!r:.40}, answer {answer!r:.40}, "
                f"verdict {status}). So it is unknown which answers would be right for other "
                "problems"
            )
