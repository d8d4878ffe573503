"""The explorer's content of a run: the audit under the source and all trained models."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from gapft_harness.core.records import Arm
from gapft_harness.presentation.explorer import (
    Explored,
    ExploredModel,
    ExploredProblem,
    ExploredResponse,
    name_verdict,
)
from gapft_harness.report.names import condition_name, name_source
from gapft_harness.report.reading.columns import format_gold
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import require_consistent
from gapft_harness.run_directory.parquet import read_rows

_COLUMNS = ("problem_id", "text", "status", "reason", "answer", "attempts", "reasoning")


def explore_audit(inputs: ReportInputs, run_path: Path, title: str) -> Explored:
    """Build the content of explorer.html.

    Args:
        inputs: the run.
        run_path: its directory, whose responses are read while the page is written: they are large.
        title: the page's title.
    """
    trained = [
        ExploredModel(condition_name(item.arm.condition), str(item.arm.seed))
        for item in inputs.arms
    ]
    attempts = inputs.task["episode"]["attempts"]
    return Explored(
        title,
        [ExploredModel(name_source(inputs.deployment)), *trained],
        lambda: _read_problems(inputs, run_path),
        f"The last of up to {attempts} attempts is shown; earlier attempts can be unfolded."
        if attempts > 1
        else "",
    )


def _read_problems(inputs: ReportInputs, run_path: Path) -> Iterator[ExploredProblem]:
    """Yield the audit's problems.

    Raises:
        GapftError: a table has the responses in a different order.
    """
    audit = inputs.audit
    arms = (None, *(item.arm for item in inputs.arms))
    rows = zip(*(_read_responses(run_path, arm) for arm in arms), strict=True)
    for position, (name, by_model) in enumerate(zip(audit.ids.tolist(), rows, strict=True)):
        row_ids = {row_id for row_id, _ in by_model}
        require_consistent(
            row_ids == {name},
            f"{run_path / 'audit'}: expected rows of problem {name}, found "
            f"{sorted(map(str, row_ids))}",
        )
        (before, *samples), *after = (responses for _, responses in by_model)
        yield ExploredProblem(
            str(name),
            {
                "state": str(audit.states[position]),
                "samples": f"{audit.verdicts.passing[position]}/{inputs.k}",
            },
            audit.prompts[position],
            format_gold(audit.golds[position]),
            [before, *(responses[0] for responses in after)],
            samples,
        )


def _read_responses(
    run_path: Path, arm: Arm | None
) -> Iterator[tuple[str, list[ExploredResponse]]]:
    """Yield problem ids with an arm's responses; without an arm the source's, samples last."""
    table = layout.responses_path("audit") if arm is None else layout.decisions_path(arm)
    for name, rows in groupby(read_rows(run_path / table, _COLUMNS), key=itemgetter("problem_id")):
        responses = [
            ExploredResponse(
                row["text"],
                name_verdict(row["status"]),
                row["reason"],
                row["answer"] or "",
                row["reasoning"],
                [(attempt["text"], attempt["feedback"]) for attempt in row["attempts"]],
            )
            for row in rows
        ]
        yield name, responses
