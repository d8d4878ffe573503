"""The gold-label control: conditions of the selector ``gold_labels`` against GapFT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gapft_harness.core.records import Arm
from gapft_harness.experiments.controls.control import Control
from gapft_harness.experiments.controls.matching import unmatched
from gapft_harness.experiments.controls.steps import Step, gapft_and
from gapft_harness.recipe.conditions import Condition
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples, read_problems

if TYPE_CHECKING:
    from gapft_harness.experiments.controls.reports.gold import GoldPart


class GoldLabels(Control):
    """At one budget and the same targets, failures chosen by gold answers against GapFT's."""

    name = "gold_labels"
    needs = (
        "a condition of the selector gapft and one of gold_labels, such as gapft: {} and gold: "
        "{selector: gold_labels}"
    )

    title = "Gold-label selection"
    matched = (
        "gold-label selection and GapFT have the same targets under a seed, and as many problems "
        "of each gold answer"
    )

    def part(self) -> GoldPart:
        """Its section and table."""
        from gapft_harness.experiments.controls.reports.gold import GoldPart

        return GoldPart(self)

    def steps(self, conditions: Mapping[str, Condition]) -> Sequence[Step]:
        """GapFT, then the conditions that choose by gold answers; without GapFT there is none."""
        return gapft_and(conditions, self.name)

    def faults(self, run: RunDirectory, arms: Sequence[Arm]) -> Iterator[str]:
        """What GapFT and gold-label selection differ in under a seed."""
        for gapft, gold in self._pairs(run, arms):
            yield from of_pair(run, gapft, gold)

    def _pairs(self, run: RunDirectory, arms: Sequence[Arm]) -> Iterator[tuple[Arm, Arm]]:
        first, *others = self.conditions(run.recipe)
        for arm in arms:
            if arm.condition in others and Arm(first, arm.seed) in arms:
                yield Arm(first, arm.seed), arm


def of_pair(run: RunDirectory, gapft: Arm, gold: Arm) -> Iterator[str]:
    """What the sealed training sets of a pair differ in that they must have in common."""
    golds = {p.id: p.gold for p, _ in read_problems(run.path / layout.problems("pool"))}
    one, other = (read_examples(run.path / layout.selection(arm)) for arm in (gapft, gold))
    for fault in unmatched(one, other, golds, run.recipe.training_of(gapft.condition)):
        yield (
            f"arms {gapft.name} and {gold.name} {fault}; expected the same targets and as many "
            "problems of each gold answer. Raise training.max_length if sequences lose their ends"
        )
