"""The explorer's content of a run: the audit under the source and all trained models."""

from __future__ import annotations

from collections.abc import Iterator

from gapft_harness.presentation.explorer import Explored, ExploredModel, ExploredProblem
from gapft_harness.report.names import condition_name, name_source
from gapft_harness.report.reading.columns import format_gold
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.reading.texts import AuditTexts
from gapft_harness.run_directory.directory import require_consistent


def explore_audit(inputs: ReportInputs, texts: AuditTexts, title: str) -> Explored:
    """Build the content of explorer.html.

    Args:
        inputs: the run.
        texts: reads its responses.
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
        lambda: _read_problems(inputs, texts),
        f"The last of up to {attempts} attempts is shown; earlier attempts can be unfolded."
        if attempts > 1
        else "",
    )


def _read_problems(inputs: ReportInputs, texts: AuditTexts) -> Iterator[ExploredProblem]:
    """Yield the audit's problems.

    Raises:
        GapftError: a table has the responses in a different order.
    """
    audit = inputs.audit
    tables = [texts.read_responses(arm) for arm in (None, *(item.arm for item in inputs.arms))]
    rows = zip(*tables, strict=True)
    for position, (name, by_model) in enumerate(zip(audit.ids.tolist(), rows, strict=True)):
        row_ids = {row_id for row_id, _ in by_model}
        require_consistent(
            row_ids == {name},
            f"{texts.folder}: expected rows of problem {name}, found {sorted(map(str, row_ids))}",
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
