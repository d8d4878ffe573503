"""Find the problems that an arm gained or lost, and choose those that the page shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.streams import derive_key
from gapft_harness.presentation.explorer import link_problem
from gapft_harness.report.reading.columns import format_gold
from gapft_harness.report.reading.inputs import STATUSES, ReportInputs, TrainedArm
from gapft_harness.report.rendering.blocks import Case
from gapft_harness.report.rendering.wording import condition_name, listed

#: Cases of each kind that are shown: of the lead condition, and of every other.
LEAD_CASES, OTHER_CASES = 4, 1

Change = Literal["gained", "lost"]
CHANGES: tuple[Change, ...] = ("gained", "lost")

RULE = (
    "Problems whose outcome changed under the most seeds come first; ties are ordered by a hash of "
    "the problem's id. The text after training is from the lowest of these seeds. The cases were "
    "not picked by hand. All changes of all conditions and seeds are in tables/items.csv."
)


@dataclass(frozen=True, slots=True)
class ChangedProblem:
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
class ChosenCase:
    """A problem that is shown as an example of a condition's changes.

    Attributes:
        position: its index in ``Audit.ids``.
        change: gained or lost.
        arms: the condition's arms that changed it, by ascending seed; the first is shown.
    """

    position: int
    change: Change
    arms: tuple[TrainedArm, ...]


def find_changes(inputs: ReportInputs) -> Iterator[ChangedProblem]:
    """Yield every gained and lost problem of every arm, by arm and problem id."""
    before = inputs.audit.deployed.passed
    for trained in inputs.arms:
        for position in np.flatnonzero(before != trained.deployed.passed):
            yield ChangedProblem(trained, int(position), "lost" if before[position] else "gained")


def choose_cases(
    inputs: ReportInputs, condition: str, change: Change, limit: int
) -> list[ChosenCase]:
    """Choose at most ``limit`` problems of a condition to show, by ``RULE``."""
    arms = inputs.find_arms(condition)
    changed_by_seed = _find_changed_seeds(inputs, condition, change)
    seeds, ids = changed_by_seed.sum(axis=0), inputs.audit.ids
    order = sorted(
        (int(position) for position in np.flatnonzero(seeds)),
        key=lambda p: (-seeds[p], derive_key("case", str(ids[p])), str(ids[p])),
    )
    return [
        ChosenCase(
            p,
            change,
            tuple(
                arm
                for arm, has_changed in zip(arms, changed_by_seed[:, p], strict=True)
                if has_changed
            ),
        )
        for p in order[:limit]
    ]


def build_content(inputs: ReportInputs, lead: str) -> dict[str, Any]:
    """Build the entry for results.json: the rule, and the chosen problems by condition."""
    return {
        "rule": RULE,
        "conditions": {
            name: {
                change: [
                    {
                        "problem_id": str(inputs.audit.ids[case.position]),
                        "state": str(inputs.audit.states[case.position]),
                        "under": [trained.arm.seed for trained in case.arms],
                        "shown": case.arms[0].arm.seed,
                    }
                    for case in choose_cases(inputs, name, change, count_cases(name, lead))
                ]
                for change in CHANGES
            }
            for name in inputs.conditions
        },
    }


def count_cases(condition: str, lead: str) -> int:
    """Return the number of cases of each kind that are shown for a condition."""
    return LEAD_CASES if condition == lead else OTHER_CASES


def build_case(inputs: ReportInputs, chosen: ChosenCase, others: Iterable[str] = ()) -> Case:
    """Build the block of a chosen problem, with its outcome in the conditions ``others``."""
    audit, position, shown_arm = inputs.audit, chosen.position, chosen.arms[0]
    before, after = audit.deployed, shown_arm.deployed
    status = STATUSES[int(after.statuses[position])]
    seeds = len(inputs.seeds)
    seed_text = f"{len(chosen.arms)} of {seeds} seeds" if seeds > 1 else "the seed"
    verdict = "" if status in ("pass", "fail") else f", verdict {status}"
    return Case(
        heading=(
            f"state {audit.states[position]} · {chosen.change} under {seed_text} · text of seed "
            f"{shown_arm.arm.seed}{verdict}"
        ),
        name=(name := str(audit.ids[position])),
        link=link_problem(name),
        prompt=audit.prompts[position],
        gold=format_gold(audit.golds[position]),
        before=before.texts[position],
        after=after.texts[position],
        gained=chosen.change == "gained",
        others=_describe_others(inputs, chosen, others),
    )


def _find_changed_seeds(inputs: ReportInputs, condition: str, change: Change) -> NDArray[np.bool_]:
    """Find where a condition's arms changed the outcome in this way, shape (seeds, P)."""
    before = inputs.audit.deployed.passed
    after = np.array([trained.deployed.passed for trained in inputs.find_arms(condition)])
    changed: NDArray[np.bool_] = after & ~before if change == "gained" else ~after & before
    return changed


def _describe_others(inputs: ReportInputs, chosen: ChosenCase, others: Iterable[str]) -> str:
    """Describe which other conditions changed the problem alike, and under how many seeds."""
    seed_counts = {
        name: int(_find_changed_seeds(inputs, name, chosen.change)[:, chosen.position].sum())
        for name in others
        if name != chosen.arms[0].arm.condition
    }
    changed_conditions = [
        (condition_name(name), seeds) for name, seeds in seed_counts.items() if seeds
    ]
    if not changed_conditions:
        return f"No other condition {chosen.change} it." if seed_counts else ""
    if len(inputs.seeds) == 1:
        return f"Also {chosen.change} by {listed([name for name, _ in changed_conditions])}."
    by = ", ".join(f"{name} ({seeds})" for name, seeds in changed_conditions)
    return f"Also {chosen.change} by (number of {len(inputs.seeds)} seeds): {by}."
