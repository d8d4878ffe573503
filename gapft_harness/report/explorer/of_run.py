"""The explorer of a run: its audit under the source model and under each trained one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from gapft_harness.report.explorer.explored import Entry, Explored, Model, outcome
from gapft_harness.report.reading.columns import plain_gold
from gapft_harness.report.reading.inputs import STATUSES, ReportInputs
from gapft_harness.report.rendering.wording import condition_name
from gapft_harness.run_directory.directory import require

#: Verdicts as the report's cases call them.
_WORDS = {"pass": "right", "fail": "wrong"}


def of_run(inputs: ReportInputs, title: str) -> Explored:
    """What the page of a run shows.

    Args:
        inputs: must be ``in_order()``.
        title: of the page.
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
    words = [_WORDS.get(status, status) for status in STATUSES]
    return [words[code] for code in codes.tolist()]
