"""What responses to the audit give as their answers, as codes. Reading only."""

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

#: Problems whose answer is not the verdict's that a message names.
_NAMED = 3


class NoAnswersError(UserError):
    """The run's answers cannot be moved from problem to problem; the message says why."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers to the audit as codes, one for each text; ``NO_ANSWER`` where there is none.

    A response is right exactly where its answer is the gold one.

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
    """Reads the sealed answers, and holds each to its verdict.

    Args:
        run_path: the run directory.
        task: the manifest's section of that name.
        arms: the trained models whose answers to read besides the source's; may be none. A mapping
            also says from which tables, as ``adapters.tables`` does.

    Raises:
        NoAnswersError: the verifier gives no answers, golds are no texts, or some response is right
            though its answer is not the gold one, or wrong though it is.
        GapftError: the tables are not of the same problems.
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
        require(given["problem_id"] == ids, f"{path}: holds other problems than the audit")
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
    """Return the answers as of ``read_answers``, or None and the reason why there are none.

    Args:
        run_path: the run directory.
        task: the manifest's section of that name.
        arms: as ``read_answers`` takes them.

    Raises:
        GapftError: the tables are not of the same problems.
    """
    try:
        return read_answers(run_path, task, arms), ""
    except NoAnswersError as error:
        return None, str(error)


def _none_given(task: Mapping[str, Any]) -> str:
    return (
        f"the verifier {task['verifier']!r} gives no answers (the column 'answer' of "
        f"{layout.responses('audit')} is empty), and answers are what is redistributed; leave the "
        "experiment out, or search with a verifier that has a method answer(text), such as "
        "option_letter, in a new run directory"
    )


def _gold(text: str, task: Mapping[str, Any]) -> str:
    """The right answer that a sealed gold names: itself, or what it has under ``answer``."""
    value = json.loads(text)
    answer = value.get("answer") if isinstance(value, dict) else value
    if isinstance(answer, str):
        return answer
    raise NoAnswersError(
        f"the gold answers of task {task['name']!r} are no texts, and have none under 'answer' "
        f"(one is {text:.60}); answers can be redistributed only where a gold names the right one"
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
            f"{table}: the verifier {task['verifier']!r} judges some responses otherwise than by "
            f"whether their answer is the gold one: {', '.join(wrong[:_NAMED])}{more}. So it is "
            "not known which answers would be right elsewhere, and they cannot be redistributed"
        )
