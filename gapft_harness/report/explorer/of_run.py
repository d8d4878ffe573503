"""Collect the explorer's content of a run: each audit under the source and all trained models."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.report.explorer.explored import (
    Entry,
    Explored,
    Model,
    outcome,
    word,
)
from gapft_harness.report.reading.columns import plain_gold
from gapft_harness.report.reading.inputs import STATUSES, ReportInputs
from gapft_harness.report.reading.unread import Read
from gapft_harness.report.rendering.wording import condition_name
from gapft_harness.run_directory.directory import require


def of_audits(inputs: ReportInputs, title: str) -> Iterator[tuple[str, Explored]]:
    """Yield the content of the run's audit, and of each further audit with its name.

    Subsets have no page of their own; they are filters.
    """
    yield "", of_run(inputs, title, _subsets(inputs, "audit"))
    for of in inputs.further:
        if not of.of:
            yield of.name, of_run(of.inputs, f"{title}: {of.name}", _subsets(inputs, of.name))


def _subsets(inputs: ReportInputs, audit: str) -> dict[str, set[str]]:
    return {of.name: {*of.inputs.audit.ids.tolist()} for of in inputs.further if of.of == audit}


def of_run(
    inputs: ReportInputs, title: str, subsets: Mapping[str, Container[str]] | None = None
) -> Explored:
    """Collect the content of an audit's page.

    Args:
        inputs: the run on this audit.
        title: the page's title.
        subsets: ids of problems by the name of a subset; each subset becomes a filter.
    """
    audit, passed = inputs.audit, inputs.audit.verdicts.greedy.tolist()
    attempts = inputs.task["episode"]["attempts"]
    return Explored(
        title=title,
        remark=f"The last of up to {attempts} attempts is shown; earlier attempts can be unfolded."
        if attempts > 1
        else "",
        noun="problem",
        before="source, greedy",
        ids=[str(name) for name in audit.ids],
        verdicts=_words(audit.greedy),
        models=[
            Model(
                condition=trained.arm.condition,
                label=condition_name(trained.arm.condition),
                seed=str(trained.arm.seed),
                verdicts=_words(trained.statuses),
                outcomes="".join(map(outcome, passed, trained.passed.tolist())),
            )
            for trained in inputs.arms
        ],
        states="".join(audit.states.tolist()),
        k=inputs.k,
        passing=audit.verdicts.passing.tolist(),
        samples=[_words(row) for row in audit.samples],
        fields={
            name: ["yes" if problem in ids else "no" for problem in audit.ids.tolist()]
            for name, ids in (subsets or {}).items()
        },
        entries=lambda: _entries(inputs),
        report=True,
    )


def _entries(inputs: ReportInputs) -> Iterator[Entry]:
    audit = inputs.audit
    for position, (document, (source, *trained)) in enumerate(_unread(inputs)):
        judged = [*source[:1], *(of for each in trained for of in each), *source[1:]]
        yield Entry(
            prompt=audit.prompts[position],
            gold=plain_gold(audit.golds[position]),
            responses=(
                audit.greedy_texts[position],
                *(of.texts[position] for of in inputs.arms),
                *(text for text, _ in source[1:]),
            ),
            document=document,
            judged=[of for _, of in judged],
        )


def _unread(
    inputs: ReportInputs,
) -> Iterator[tuple[dict[str, Any], list[list[Read]]]]:
    """Yield each problem's record, and the responses of the source and of each arm."""
    read, names = inputs.unread, inputs.audit.ids.tolist()
    if read is None:
        yield from repeat(({}, [[] for _ in (None, *inputs.arms)]), len(names))
        return
    tables = [read.responses(), *(read.responses(of.arm) for of in inputs.arms)]
    for name, (of, document), *each in zip(names, read.documents(), *tables, strict=False):
        found = {of, *(of for of, _ in each)}
        require(
            found == {name},
            f"{read.place}: expected rows of problem {name}, found {sorted(map(str, found))}",
        )
        yield document, [responses for _, responses in each]


def _words(codes: NDArray[np.uint8]) -> list[str]:
    words = list(map(word, STATUSES))
    return [words[code] for code in codes.tolist()]
