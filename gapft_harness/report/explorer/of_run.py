"""The explorer of a run: each audit under the source model and under every trained one."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from gapft_harness.report.explorer.explored import Entry, Explored, Model, outcome, word
from gapft_harness.report.reading.columns import plain_gold
from gapft_harness.report.reading.inputs import STATUSES, ReportInputs
from gapft_harness.report.rendering.wording import condition_name
from gapft_harness.run_directory.directory import require


def of_audits(inputs: ReportInputs, title: str) -> Iterator[tuple[str, Explored]]:
    """Yields the run's audit, and each further one by its name; subsets are no page of their own.

    Args:
        inputs: must be ``in_order()``.
        title: of the report.
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
    """What the page of an audit shows.

    Args:
        inputs: must be ``in_order()``.
        title: of the page.
        subsets: names to filter by, each with the ids of its problems.
    """
    audit, passed = inputs.audit, inputs.audit.greedy_passed.tolist()
    attempts = inputs.task["episode"]["attempts"]
    return Explored(
        title=title,
        remark=f"Of up to {attempts} attempts the last is shown." if attempts > 1 else "",
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
        passing=audit.passing_samples.tolist(),
        samples=[_words(row) for row in audit.samples],
        fields={
            name: ["yes" if problem in ids else "no" for problem in audit.ids.tolist()]
            for name, ids in (subsets or {}).items()
        },
        entries=lambda: _entries(inputs),
        report=True,
    )


def _entries(inputs: ReportInputs) -> Iterator[Entry]:
    audit, read = inputs.audit, inputs.unread
    documents = repeat(("", {})) if read is None else read.documents()
    samples = repeat(("", [])) if read is None else read.samples()
    for position, (name, (of, document), (for_, texts)) in enumerate(
        zip(audit.ids.tolist(), documents, samples, strict=False)
    ):
        if read is not None:
            require(name == of == for_, f"{read.place}: holds other problems than {name}")
        yield Entry(
            prompt=audit.prompts[position],
            gold=plain_gold(audit.golds[position]),
            responses=(
                audit.greedy_texts[position],
                *(trained.texts[position] for trained in inputs.arms),
                *texts,
            ),
            document=document,
        )


def _words(codes: NDArray[np.uint8]) -> list[str]:
    words = list(map(word, STATUSES))
    return [words[code] for code in codes.tolist()]
