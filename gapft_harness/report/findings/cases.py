"""Which problems an arm gained or lost, and which of them the page shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.streams import derive
from gapft_harness.report.reading.columns import plain_gold
from gapft_harness.report.reading.inputs import STATUSES, ReportInputs, TrainedArm
from gapft_harness.report.rendering import page
from gapft_harness.report.rendering.blocks import Case
from gapft_harness.report.rendering.wording import condition_name, listed

#: Cases of each kind: of the condition that leads, and of every other.
SHOWN, SHOWN_OF_OTHERS = 4, 1

Change = Literal["gained", "lost"]
CHANGES: tuple[Change, ...] = ("gained", "lost")

RULE = (
    "Of all problems whose outcome changed, those come first where it changed under most seeds, "
    "ties in the order of a hash of the problem's id; the text after training is of the lowest of "
    "those seeds. Nobody picked them. All changes of all conditions and seeds are in "
    "tables/items.csv."
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


@dataclass(frozen=True, slots=True)
class Chosen:
    """A problem that stands for the changes of a condition.

    Attributes:
        position: its place in ``Audit.ids``.
        arms: those of the condition that changed it, by ascending seed; the first is shown.
    """

    position: int
    change: Change
    arms: tuple[TrainedArm, ...]


def changes(inputs: ReportInputs) -> Iterator[Changed]:
    """Yields every gained and lost problem of every arm, by arm and problem id."""
    before = inputs.audit.verdicts.greedy
    for trained in inputs.arms:
        for position in np.flatnonzero(before != trained.passed):
            yield Changed(trained, int(position), "lost" if before[position] else "gained")


def chosen(inputs: ReportInputs, condition: str, change: Change, most: int) -> list[Chosen]:
    """The problems of one condition that are shown, by ``RULE``."""
    arms = inputs.of(condition)
    under = _under(inputs, condition, change)
    seeds, ids = under.sum(axis=0), inputs.audit.ids
    order = sorted(
        (int(position) for position in np.flatnonzero(seeds)),
        key=lambda p: (-seeds[p], derive("case", str(ids[p])), str(ids[p])),
    )
    return [
        Chosen(p, change, tuple(arm for arm, did in zip(arms, under[:, p], strict=True) if did))
        for p in order[:most]
    ]


def content(inputs: ReportInputs, lead: str) -> dict[str, Any]:
    """For results.json: the rule, and by condition which problems it chose."""
    return {
        "rule": RULE,
        "conditions": {
            name: {
                change: [
                    {
                        "problem_id": str(inputs.audit.ids[of.position]),
                        "state": str(inputs.audit.states[of.position]),
                        "under": [trained.arm.seed for trained in of.arms],
                        "shown": of.arms[0].arm.seed,
                    }
                    for of in chosen(inputs, name, change, count(name, lead))
                ]
                for change in CHANGES
            }
            for name in inputs.conditions
        },
    }


def count(condition: str, lead: str) -> int:
    """How many cases of each kind are shown of a condition."""
    return SHOWN if condition == lead else SHOWN_OF_OTHERS


def as_case(inputs: ReportInputs, chosen: Chosen, others: Iterable[str] = ()) -> Case:
    """A chosen problem with both texts, and with what ``others``, conditions, made of it."""
    audit, position, shown = inputs.audit, chosen.position, chosen.arms[0]
    status = STATUSES[int(shown.statuses[position])]
    seeds = len(inputs.seeds)
    under = f"{len(chosen.arms)} of {seeds} seeds" if seeds > 1 else "the seed"
    verdict = "" if status in ("pass", "fail") else f", verdict {status}"
    return Case(
        heading=(
            f"state {audit.states[position]} · {chosen.change} under {under} · text of seed "
            f"{shown.arm.seed}{verdict}"
        ),
        name=(name := str(audit.ids[position])),
        link=page.problem_link(name),
        prompt=audit.prompts[position],
        gold=plain_gold(audit.golds[position]),
        before=audit.greedy_texts[position],
        after=shown.texts[position],
        gained=chosen.change == "gained",
        others=_others(inputs, chosen, others),
    )


def _under(inputs: ReportInputs, condition: str, change: Change) -> NDArray[np.bool_]:
    """Shape (seeds, P): where a condition's arms changed the outcome in this way."""
    before = inputs.audit.verdicts.greedy
    passed = np.array([trained.passed for trained in inputs.of(condition)])
    changed: NDArray[np.bool_] = passed & ~before if change == "gained" else ~passed & before
    return changed


def _others(inputs: ReportInputs, chosen: Chosen, others: Iterable[str]) -> str:
    """Which other conditions changed the problem in the same way, and under how many seeds."""
    under = {
        name: int(_under(inputs, name, chosen.change)[:, chosen.position].sum())
        for name in others
        if name != chosen.arms[0].arm.condition
    }
    found = [(condition_name(name), seeds) for name, seeds in under.items() if seeds]
    if not found:
        return f"No other condition {chosen.change} it." if under else ""
    if len(inputs.seeds) == 1:
        return f"Also {chosen.change} by {listed([name for name, _ in found])}."
    by = ", ".join(f"{name} ({seeds})" for name, seeds in found)
    return f"Also {chosen.change}, under how many of {len(inputs.seeds)} seeds: {by}."
