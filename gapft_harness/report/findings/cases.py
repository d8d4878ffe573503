"""Which problems an arm gained or lost, and which of them the page shows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gapft_harness.core.streams import derive
from gapft_harness.report.reading.columns import plain_gold
from gapft_harness.report.reading.inputs import STATUSES, ReportInputs, TrainedArm
from gapft_harness.report.rendering.blocks import Case

#: Cases of each kind on the page; tables/items.csv has all.
SHOWN = 4


Change = Literal["gained", "lost"]

RULE = (
    "Shown first are the problems whose outcome changed under most seeds, ties in the order of a "
    "hash of the problem's id; the text after training is of the lowest of those seeds. Nobody "
    "picked them. All changes of all conditions and seeds are in tables/items.csv."
)


@dataclass(frozen=True, slots=True)
class Changed:
    """One problem whose outcome differs between the source and one arm.

    Attributes:
        position: the problem's place in ``Audit.ids``.
    """

    trained: TrainedArm
    position: int
    change: Change


def changes(inputs: ReportInputs) -> Iterator[Changed]:
    """Yields every gained and lost problem of every arm, by arm and problem id."""
    before = inputs.audit.greedy_passed
    for trained in inputs.arms:
        for position in np.flatnonzero(before != trained.passed):
            yield Changed(trained, int(position), "lost" if before[position] else "gained")


def examples(inputs: ReportInputs, condition: str, change: Change) -> list[Case]:
    """The cases of one condition that the page shows, by ``RULE``."""
    found: dict[int, list[Changed]] = {}
    for changed in changes(inputs):
        if changed.trained.arm.condition == condition and changed.change == change:
            found.setdefault(changed.position, []).append(changed)
    ids = inputs.audit.ids
    order = sorted(found, key=lambda p: (-len(found[p]), derive("case", str(ids[p])), str(ids[p])))
    return [_case(inputs, found[position]) for position in order[:SHOWN]]


def _case(inputs: ReportInputs, found: list[Changed]) -> Case:
    first = found[0]
    audit, position = inputs.audit, first.position
    status = STATUSES[int(first.trained.statuses[position])]
    under = f"{len(found)} of {len(inputs.seeds)} seeds" if len(inputs.seeds) > 1 else "the seed"
    verdict = "" if status in ("pass", "fail") else f", verdict {status}"
    return Case(
        heading=(
            f"{audit.ids[position]} · state {audit.states[position]} · {first.change} under "
            f"{under} · text of seed {first.trained.arm.seed}{verdict}"
        ),
        prompt=audit.prompts[position],
        gold=plain_gold(audit.golds[position]),
        before=audit.greedy_texts[position],
        after=first.trained.texts[position],
        gained=first.change == "gained",
    )
