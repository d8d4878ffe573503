"""Collect the explorer's content of a run: the audit under the source and all trained models."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.report.explorer.content import (
    ExplorerContent,
    ExplorerModel,
    ProblemTexts,
    classify_outcome,
    format_verdict,
)
from gapft_harness.report.names import condition_name, name_source
from gapft_harness.report.reading.columns import format_gold
from gapft_harness.report.reading.inputs import STATUSES, ReportInputs
from gapft_harness.report.reading.texts import JudgedText
from gapft_harness.run_directory.directory import require_consistent


def collect_audit(inputs: ReportInputs, title: str) -> ExplorerContent:
    """Collect the content of the audit's page.

    Args:
        inputs: the run.
        title: the page's title.
    """
    audit, passed = inputs.audit, inputs.audit.deployed.passed.tolist()
    return ExplorerContent(
        title=title,
        remark=_describe_responses(inputs),
        noun="problem",
        before=name_source(inputs.deployment),
        ids=[str(name) for name in audit.ids],
        verdicts=_format_codes(audit.deployed.statuses),
        models=[
            ExplorerModel(
                condition=trained.arm.condition,
                label=condition_name(trained.arm.condition),
                seed=str(trained.arm.seed),
                verdicts=_format_codes(trained.deployed.statuses),
                outcomes="".join(map(classify_outcome, passed, trained.deployed.passed.tolist())),
            )
            for trained in inputs.arms
        ],
        states="".join(audit.states.tolist()),
        k=inputs.k,
        passing=audit.verdicts.passing.tolist(),
        samples=[_format_codes(row) for row in audit.samples],
        entries=lambda: _read_entries(inputs),
        report=True,
    )


def _describe_responses(inputs: ReportInputs) -> str:
    """Describe which response of a model is shown; empty if it has only one."""
    attempts = inputs.task["episode"]["attempts"]
    if attempts == 1:
        return ""
    return f"The last of up to {attempts} attempts is shown; earlier attempts can be unfolded."


def _read_entries(inputs: ReportInputs) -> Iterator[ProblemTexts]:
    audit = inputs.audit
    decodes = [audit.deployed, *(item.deployed for item in inputs.arms)]
    for position, (document, by_model) in enumerate(_read_texts(inputs)):
        samples = by_model[0][1:]
        first_responses = [item for responses in by_model for item in responses[:1]]
        yield ProblemTexts(
            prompt=audit.prompts[position],
            gold=format_gold(audit.golds[position]),
            responses=(
                *(item.texts[position] for item in decodes),
                *(text for text, _ in samples),
            ),
            document=document,
            judged=[item for _, item in (*first_responses, *samples)],
        )


def _read_texts(
    inputs: ReportInputs,
) -> Iterator[tuple[dict[str, Any], list[list[JudgedText]]]]:
    """Yield each problem's record, and the responses of the source and of each arm."""
    texts, names = inputs.texts, inputs.audit.ids.tolist()
    if texts is None:
        yield from repeat(({}, [[] for _ in (None, *inputs.arms)]), len(names))
        return
    tables = [texts.read_responses(), *(texts.read_responses(item.arm) for item in inputs.arms)]
    for name, (item, document), *arm_rows in zip(
        names, texts.read_documents(), *tables, strict=False
    ):
        row_ids = {item, *(item for item, _ in arm_rows)}
        require_consistent(
            row_ids == {name},
            f"{texts.folder}: expected rows of problem {name}, found {sorted(map(str, row_ids))}",
        )
        yield document, [responses for _, responses in arm_rows]


def _format_codes(codes: NDArray[np.uint8]) -> list[str]:
    words = list(map(format_verdict, STATUSES))
    return [words[code] for code in codes.tolist()]
