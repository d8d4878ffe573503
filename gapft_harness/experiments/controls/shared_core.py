"""The older controls with a shared core: the selectors core_depth and core_gold (Appendix B)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field

from gapft_harness import api
from gapft_harness.api import layout
from gapft_harness.experiments.controls.control import (
    Pair,
    PermutationSettings,
    list_selected,
    list_with_gapft,
    order_by_parameter,
)
from gapft_harness.experiments.controls.search import SearchDepth
from gapft_harness.run_directory.tables import read_states
from gapft_harness.training.plan import budget


class SharedCoreSettings(PermutationSettings):
    """The settings ``experiments.shared_core``."""

    position_tolerance: float = Field(
        0.01,
        ge=0,
        lt=1,
        description="largest difference in processed tokens between a depth and the deepest depth "
        "of the same seed, as a share of those of the deepest depth",
    )


class SharedCore(SearchDepth):
    """Compares depths and gold labels, added to a core of all solved problems (Appendix B)."""

    name = "shared_core"
    section = SharedCoreSettings
    title = "Controls with a shared core"
    requirement = (
        "two conditions or more of the selectors core_depth and core_gold, such as core_0: "
        "{selector: core_depth, params: {k: 0}, n: verified} and core_8: {selector: core_depth, "
        "params: {k: 8}, n: verified}"
    )
    shows_gain_share = False

    def find_conditions(self, conditions: Mapping[str, api.Condition]) -> Sequence[str]:
        """Return the depths by ascending k, then the selections by gold labels."""
        return [*_find_depths(conditions), *_find_gold(conditions)]

    def find_pairs(self, conditions: Mapping[str, api.Condition]) -> Sequence[Pair]:
        """Return the pairs of Appendix B.

        They are each condition with the first and each ``core_gold`` with the deepest
        ``core_depth``; outside the core also ``gold_labels`` with ``gapft``, if the run has both
        with the same n.
        """
        pairs = [*super().find_pairs(conditions), *self.find_gold_pairs(conditions)]
        match list_with_gapft(conditions, "gold_labels"):
            case [plain_gapft, plain_gold, *_] if (
                conditions[plain_gapft].n == conditions[plain_gold].n
            ):
                pairs.append(Pair(plain_gold, plain_gapft))
        return list(dict.fromkeys(pairs))

    def find_gold_pairs(self, conditions: Mapping[str, api.Condition]) -> Sequence[Pair]:
        """Return each selection by gold labels with the deepest search."""
        deepest = _find_depths(conditions)[-1:]
        return [Pair(gold, search) for gold in _find_gold(conditions) for search in deepest]

    def check(self, recipe: api.Recipe, settings: Any) -> None:
        """Require, beyond ``SearchDepth.check``, the depth whose targets gold labels use."""
        super().check(recipe, settings)
        k = recipe.search.k
        gold = _find_gold(recipe.conditions)
        depths = [recipe.conditions[n].params["k"] for n in _find_depths(recipe.conditions)]
        if gold and k not in depths:
            raise self.recipe_error(
                recipe,
                f"condition {gold[0]!r} needs the targets of a search with all {k} samples; "
                f"add core_{k}: {{selector: core_depth, params: {{k: {k}}}, n: verified}}",
            )

    def faults(self, view: api.View) -> Iterator[str]:
        """Report training sets of a seed without the core, or with other targets or tokens."""
        compared = self.conditions(view.recipe)
        depths = _find_depths(view.recipe.conditions)
        tolerance = self.settings(view.recipe).position_tolerance
        arms = [arm for arm in view.arms() if arm.condition in compared]
        core = _read_core(view) if arms else set()
        tokens = {}
        for arm in arms:
            examples = api.read_examples(view.run.path / layout.selection_path(arm))
            tokens[arm] = budget(examples, view.recipe.resolve_training(arm.condition)).tokens
            if missing := len(core - {example.problem_id for example in examples}):
                yield f"arm {arm.name}: {missing} of {len(core)} solved problems are missing"
        for arm in arms:
            deepest = api.Arm(depths[-1], arm.seed)
            if arm.condition in depths and deepest in tokens:
                yield from _compare_tokens(arm, deepest, tokens, tolerance)
        yield from super().faults(view)


def _find_depths(conditions: Mapping[str, api.Condition]) -> list[str]:
    return order_by_parameter(conditions, "core_depth", "k")


def _find_gold(conditions: Mapping[str, api.Condition]) -> list[str]:
    return list_selected(conditions, "core_gold")


def _read_core(view: api.View) -> set[str]:
    """Read the ids of the pool's solved problems."""
    states = read_states(view.run.path / layout.states_path("pool"))
    return {evidence.problem_id for evidence in states if evidence.state == "G"}


def _compare_tokens(
    arm: api.Arm, deepest: api.Arm, tokens: Mapping[api.Arm, int], tolerance: float
) -> Iterator[str]:
    """Report processed tokens that differ from those of the deepest search."""
    share = abs(tokens[arm] - tokens[deepest]) / tokens[deepest]
    if share > tolerance:
        yield (
            f"arms {arm.name} and {deepest.name} process {tokens[arm]} and {tokens[deepest]} "
            f"tokens; the difference is {share:.2%} of the latter, but position_tolerance is "
            f"{tolerance:.2%}: the solved problems are too few, or differ in length from the "
            "failures. Search a larger pool, or raise experiments.shared_core.position_tolerance"
        )
