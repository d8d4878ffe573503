"""Find the problems that an arm gained or lost, and choose those that the page shows."""

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

#: Cases of each kind that are shown: of the lead condition, and of every other.
SHOWN, SHOWN_OF_OTHERS = 4, 1

Change = Literal["gained", "lost"]
CHANGES: tuple[Change, ...] = ("gained", "lost")

RULE = (
    "Problems whose outcome changed under the most seeds come first; ties are ordered by a hash of "
    "the problem's id. The text after training is from the lowest of these seeds. The cases were "
    "not picked by hand. All changes of all conditions and seeds are in tables/items.csv."
)


@dataclass(frozen=True, slots=True)
class Changed:
    """One problem whose outcome differs between the source and one arm.

    Attributes:
        trained: the arm.
        position: the problem's index in ``Audit.ids``.
        change: gained or lost.
    """

    trained: TrainedArm
    position: int
    change: Change


@dataclass(frozen=True, slots=True)
class Chosen:
    """A problem that is shown as an example of a condition's changes.

    Attributes:
        position: its index in ``Audit.ids``.
        change: gained or lost.
        arms: the condition's arms that changed it, by ascending seed; the first is shown.
    """

    position: int
    change: Change
    arms: tuple[TrainedArm, ...]


def changes(inputs: ReportInputs) -> Iterator[Changed]:
    """Yield every gained and lost problem of every arm, by arm and problem id."""
    before = inputs.audit.verdicts.greedy
    for trained in inputs.arms:
        for position in np.flatnonzero(before != trained.passed):
            yield Changed(trained, int(position), "lost" if before[position] else "gained")


def chosen(inputs: ReportInputs, condition: str, change: Change, most: int) -> list[Chosen]:
    """Choose at most ``limit`` problems of a condition to show, by ``RULE``."""
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
    """Build the entry for results.json: the rule, and the chosen problems by condition."""
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
    """Return the number of cases of each kind that are shown for a condition."""
    return SHOWN if condition == lead else SHOWN_OF_OTHERS


def as_case(inputs: ReportInputs, chosen: Chosen, others: Iterable[str] = ()) -> Case:
    """Build the block of a chosen problem, with its outcome in the conditions ``others``."""
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
    """Find where a condition's arms changed the outcome in this way, shape (seeds, P)."""
    before = inputs.audit.verdicts.greedy
    passed = np.array([trained.passed for trained in inputs.of(condition)])
    changed: NDArray[np.bool_] = passed & ~before if change == "gained" else ~passed & before
    return changed


def _others(inputs: ReportInputs, chosen: Chosen, others: Iterable[str]) -> str:
    """Describe which other conditions changed the problem alike, and under how many seeds."""
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
    return f"Also {chosen.change} by (number of {len(inputs.seeds)} seeds): {by}."
