"""The gold-label control: conditions of the selector ``gold_labels`` against GapFT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.experiments.controls.control import Control
from gapft_harness.experiments.controls.matching import unmatched
from gapft_harness.experiments.controls.steps import Step
from gapft_harness.recipe.conditions import Condition
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples, read_problems
from gapft_harness.stages.context import Context
from gapft_harness.stages.differences import Differences

if TYPE_CHECKING:
    from gapft_harness.experiments.controls.gold_report import GoldPart


class GoldLabels(Control):
    """At one budget and the same targets, failures chosen by gold answers against GapFT's."""

    name = "gold_labels"
    needs = (
        "a condition of the selector gapft and one of gold_labels, such as gapft: {} and gold: "
        "{selector: gold_labels}"
    )

    title = "Gold-label selection"

    def part(self) -> GoldPart:
        """Its section and table."""
        from gapft_harness.experiments.controls.gold_report import GoldPart

        return GoldPart(self)

    def steps(self, conditions: Mapping[str, Condition]) -> Sequence[Step]:
        """GapFT, then the conditions that choose by gold answers; without GapFT there is none."""
        from gapft_harness.report.rendering.wording import condition_name as shown

        called = {
            selector: [name for name, of in conditions.items() if of.selector == selector]
            for selector in ("gapft", self.name)
        }
        if not called["gapft"]:
            return ()
        names = [called["gapft"][0], *called[self.name]]
        return [Step(shown(name), name) for name in names]

    def selected(self, context: Context) -> None:
        """Training sets that do not agree in their targets are refused.

        Raises:
            UserError: they differ; the message says in what.
        """
        for gapft, gold in self._pairs(context.run, context.arms()):
            for fault in _faults(context.run, gapft, gold):
                raise UserError(
                    f"key 'experiments.{self.name}': {fault}; expected the same targets and as "
                    "many problems of each gold answer. Raise training.max_length if sequences "
                    "lose their ends"
                )

    def check(
        self,
        run: RunDirectory,
        manifest: Mapping[str, Any],
        trained: Sequence[Arm],
        found: Differences,
    ) -> None:
        """The pairs agree in what they must have in common."""
        pairs = [*self._pairs(run, trained)]
        for gapft, gold in pairs:
            found.gather(layout.selection(gold), partial(_faults, run, gapft, gold))
        if pairs:
            found.checked.append(
                f"{len(pairs)} pairs of gold-label selection and GapFT have the same targets, and "
                "as many problems of each gold answer"
            )

    def _pairs(self, run: RunDirectory, arms: Sequence[Arm]) -> Iterator[tuple[Arm, Arm]]:
        first, *others = self.conditions(run.recipe)
        for arm in arms:
            if arm.condition in others and Arm(first, arm.seed) in arms:
                yield Arm(first, arm.seed), arm


def _faults(run: RunDirectory, gapft: Arm, gold: Arm) -> Iterator[str]:
    golds = {p.id: p.gold for p, _ in read_problems(run.path / layout.problems("pool"))}
    one, other = (read_examples(run.path / layout.selection(arm)) for arm in (gapft, gold))
    for fault in unmatched(one, other, golds, run.recipe.training):
        yield f"arms {gapft.name} and {gold.name} {fault}"
