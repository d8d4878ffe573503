"""The older controls with a shared core: conditions of ``core_depth`` and ``core_gold``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.experiments.controls.gold_labels import of_pair
from gapft_harness.experiments.controls.search_depth import SearchDepth
from gapft_harness.experiments.controls.steps import Step, by_parameter
from gapft_harness.recipe.conditions import Condition
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import RecipeSection
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples, read_states
from gapft_harness.training.plan import budget

if TYPE_CHECKING:
    from gapft_harness.experiments.controls.reports.shared_core import SharedCorePart


class Settings(RecipeSection):
    """What a recipe says of it."""

    token_tolerance: float = Field(
        0.01,
        ge=0,
        lt=1,
        description="most that processed tokens of two depths of a seed may differ, as a share of "
        "the deepest one's",
    )


class SharedCore(SearchDepth):
    """At one budget every solved problem stays, and repeated ones give way to failures."""

    name = "shared_core"
    section = Settings
    needs = (
        "two conditions or more of the selectors core_depth and core_gold, such as core_0: "
        "{selector: core_depth, params: {k: 0}, n: verified} and core_8: {selector: core_depth, "
        "params: {k: 8}, n: verified}"
    )
    title = "Controls with a shared core"
    matched = "conditions with a shared core hold the same core and are matched in their tokens"
    axis = "samples that search may use, beside the core"

    def part(self) -> SharedCorePart:
        """Its section, figure and tables."""
        from gapft_harness.experiments.controls.reports.shared_core import SharedCorePart

        return SharedCorePart(self)

    def steps(self, conditions: Mapping[str, Condition]) -> Sequence[Step]:
        """By ascending k, then what is chosen by gold labels."""
        gold = [name for name, of in conditions.items() if of.selector == "core_gold"]
        labels = ["Gold labels"] if len(gold) == 1 else gold
        return [
            *by_parameter(conditions, "core_depth", "k", lambda k: f"K = {k}"),
            *(Step(label, name) for label, name in zip(labels, gold, strict=True)),
        ]

    def settings(self, recipe: Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``SearchDepth.settings``; gold labels need the search whose targets they get.

        Raises:
            UserError: there are gold labels, and no depth of all K samples.
        """
        found, k = super().settings(recipe, options), recipe.search.k
        depths, gold = _kinds(self.steps(recipe.conditions))
        if found is not None and gold and (not depths or depths[-1].value != k):
            raise UserError(
                f"recipe {recipe.name}: key 'experiments.{self.name}': condition "
                f"{gold[0].condition!r} gets the targets of a search with all {k} samples; add "
                f"core_{k}: {{selector: core_depth, params: {{k: {k}}}, n: verified}}"
            )
        return found

    def faults(self, run: RunDirectory, arms: Sequence[Arm]) -> Iterator[str]:
        """Of each seed, what its training sets differ in that they must have in common."""
        depths, gold = _kinds(self.steps(run.recipe.conditions))
        tolerance = self.settings(run.recipe).token_tolerance
        states = read_states(run.path / layout.states("pool"))
        core = {of.problem_id for of in states if of.state == "G"}
        for seed in sorted({arm.seed for arm in arms}):
            found = {
                arm: read_examples(run.path / layout.selection(arm))
                for step in (*depths, *gold)
                if (arm := Arm(step.condition, seed)) in arms
            }
            for arm, examples in found.items():
                if missing := len(core - {e.problem_id for e in examples}):
                    yield f"arm {arm.name} lacks {missing} of the {len(core)} solved problems"
            tokens = {
                arm: budget(of, run.recipe.training_of(arm.condition)).tokens
                for arm, of in found.items()
            }
            most = Arm(depths[-1].condition, seed) if depths else None
            for step in depths[:-1]:
                arm = Arm(step.condition, seed)
                if most in tokens and arm in tokens:
                    yield from _too_far(arm, most, tokens, tolerance)
            for step in gold:
                arm = Arm(step.condition, seed)
                if most in tokens and arm in tokens:
                    yield from of_pair(run, most, arm)


def _too_far(arm: Arm, most: Arm, tokens: Mapping[Arm, int], tolerance: float) -> Iterator[str]:
    share = abs(tokens[arm] - tokens[most]) / tokens[most]
    if share > tolerance:
        yield (
            f"arms {arm.name} and {most.name} process {tokens[arm]} and {tokens[most]} tokens, "
            f"which differ by {share:.2%} of the latter, and token_tolerance is {tolerance:.2%}: "
            "the solved problems are too few or of other lengths than the failures. Search a "
            "larger pool, or raise experiments.shared_core.token_tolerance"
        )


def _kinds(steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """The depths, ascending, and what is chosen by gold labels."""
    return [s for s in steps if s.value is not None], [s for s in steps if s.value is None]
