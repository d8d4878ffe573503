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
from gapft_harness.core.records import GREEDY, Arm
from gapft_harness.report.reading.columns import columns
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import require

#: Problems with an unexpected verdict that an error message names.
_NAMED = 3


class NoAnswersError(UserError):
    """The run's answers cannot be redistributed over problems; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to the audit as codes, one for each text; ``NO_ANSWER`` for a missing answer.

    A response passes exactly where its answer equals the gold answer.

    Attributes:
        golds: shape (P,).
        source: shape (P,), of the source's greedy decode.
        arms: by arm, shape (P,).
    """

    golds: NDArray[np.int64]
    source: NDArray[np.int64]
    arms: Mapping[Arm, NDArray[np.int64]]


def read_answers(
    run_path: Path, task: Mapping[str, Any], arms: Sequence[Arm] | Mapping[Arm, str]
) -> Answers:
    """Read the sealed answers, and check that each agrees with its verdict.

    Args:
        run_path: the run directory.
        task: the manifest's section of that name.
        arms: the trained models whose answers are read, besides the source's; may be empty. A
            mapping also has their tables, as ``adapters.find_tables`` returns them.

    Raises:
        NoAnswersError: the verifier gives no answers, gold answers are not texts, or a verdict
            differs from the comparison of the answer with the gold answer.
        GapftError: the tables contain different problems.
    """
    problems = columns(run_path / layout.problems("audit"), ("problem_id", "gold"))
    ids = problems["problem_id"]
    golds = [_gold(text, task) for text in problems["gold"]]
    source, found = layout.responses("audit"), {}
    tables = arms if isinstance(arms, Mapping) else {arm: layout.decisions(arm) for arm in arms}
    for table in dict.fromkeys((source, *tables.values())):
        path = run_path / table
        given = columns(path, ("problem_id", "status", "answer"), [("index", "=", GREEDY)])
        if table == source and not any(given["answer"]):
            raise NoAnswersError(_none_given(task))
        require(given["problem_id"] == ids, f"{path}: contains other problems than the audit")
        _require_verdicts(table, golds, given, task)
        found[table] = given["answer"]
    known = sorted({*golds, *(a for given in found.values() for a in given if a is not None)})
    code = {text: number for number, text in enumerate(known)} | {None: NO_ANSWER}

    def codes(texts: Sequence[str | None]) -> NDArray[np.int64]:
        return np.array([code[text] for text in texts], dtype=np.int64)

    return Answers(
        golds=codes(golds),
        source=codes(found[source]),
        arms={arm: codes(found[table]) for arm, table in tables.items()},
    )


def answers_or_why(
    run_path: Path, task: Mapping[str, Any], arms: Sequence[Arm] | Mapping[Arm, str]
) -> tuple[Answers | None, str]:
    """Return the answers as ``read_answers`` does, or None and the reason why they are missing.

    Args:
        run_path: the run directory.
        task: the manifest's section of that name.
        arms: as for ``read_answers``.

    Raises:
        GapftError: the tables contain different problems.
    """
    try:
        return read_answers(run_path, task, arms), ""
    except NoAnswersError as error:
        return None, str(error)


def _none_given(task: Mapping[str, Any]) -> str:
    return (
        f"the verifier {task['verifier']!r} gives no answers to redistribute (the column 'answer' "
        f"of {layout.responses('audit')} is empty); remove the experiment, or use a verifier that "
        "has a method answer(text), such as option_letter, in a new run directory"
    )


def _gold(text: str, task: Mapping[str, Any]) -> str:
    """Read the right answer from a sealed gold: the gold itself, or its value ``answer``."""
    value = json.loads(text)
    answer = value.get("answer") if isinstance(value, dict) else value
    if isinstance(answer, str):
        return answer
    raise NoAnswersError(
        f"the gold answers of task {task['name']!r} are not texts, and do not have a text under "
        f"'answer' (one is {text:.60}); answers can be redistributed only where the gold is the "
        "right answer"
    )


def _require_verdicts(
    table: str, golds: Sequence[str], given: Mapping[str, Sequence[Any]], task: Mapping[str, Any]
) -> None:
    rows = zip(given["problem_id"], golds, given["answer"], given["status"], strict=True)
    wrong = [
        f"{problem_id} (gold {gold!r:.40}, answer {answer!r:.40}, verdict {status})"
        for problem_id, gold, answer, status in rows
        if (status == "pass") != (answer == gold)
    ]
    if wrong:
        more = f" and {len(wrong) - _NAMED} more" if wrong[_NAMED:] else ""
        raise NoAnswersError(
            f"{table}: answers cannot be redistributed: some verdicts of the verifier "
            f"{task['verifier']!r} differ from a comparison of the answer with the gold answer: "
            f"{', '.join(wrong[:_NAMED])}{more}. So it is unknown which answers would be right for "
            "other problems"
        )
