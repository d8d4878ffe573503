"""Controls: compare conditions that have one budget and different training sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gapft_harness import api
from gapft_harness.analysis.decomposition import compute_gain_share
from gapft_harness.analysis.paired import SignFlips, flip_signs
from gapft_harness.api import layout
from gapft_harness.experiments.controls.gold import compare_training_sets, count_kept_slots
from gapft_harness.stages.experiment.comparable import require_same_settings

_NOTE = (
    "Difference: Pass@1 of the condition minus that of the other, in percentage points, with its "
    "95% interval; S, U and G are its parts on these states of the audit, which sum to it. Slots "
    "of S: the share of the examples that are recovered failures, mean over seeds."
)
_GAIN_NOTE = " Of the gain: the difference as a share of the last one."
_TEST_NOTE = (
    " p: paired permutation test, two-sided; a permutation exchanges the two conditions on audit "
    "problems, in the same way for all seeds. It treats the trained models as fixed; the interval "
    "also covers the spread over seeds."
)
_SEEDS_NOTE = "G, S and U: the number of examples of problems in each state of the pool."
_KEPT_NOTE = (
    " Kept: examples of the search that gold labels do not exchange, because their target contains "
    "more than the answer."
)


class PermutationSettings(api.RecipeSection):
    """The settings of a control with permutation tests."""

    permutations: int = Field(
        2000, gt=0, description="permutations of the paired test of each contrast"
    )


@dataclass(frozen=True, slots=True)
class Pair:
    """Two compared conditions: ``condition`` minus ``against``."""

    condition: str
    against: str


class Control(api.Experiment, ABC):
    """An experiment that compares conditions, which it finds by their selectors.

    Attributes:
        section: ``PermutationSettings`` if the pairs are tested by permutation.
        requirement: the conditions that a recipe must have; follows "needs" in a message.
        parameter: the parameter of the selector in which the conditions differ; empty: none.
        shows_gain_share: whether differences are also shown as shares of the last one.
    """

    after = "Where the change comes from"
    requirement: str = ""
    parameter: str = ""
    shows_gain_share: bool = False

    @abstractmethod
    def find_conditions(self, conditions: Mapping[str, api.Condition]) -> Sequence[str]:
        """Return the conditions with one budget, the reference first; at least two are needed."""

    def find_pairs(self, conditions: Mapping[str, api.Condition]) -> Sequence[Pair]:
        """Return the pairs to compare: each later condition with the reference."""
        first, *others = self.find_conditions(conditions)
        return [Pair(name, first) for name in others]

    def find_gold_pairs(self, conditions: Mapping[str, api.Condition]) -> Sequence[Pair]:
        """Return pairs whose targets must be the same: gold labels, and the search they follow."""
        return ()

    def check(self, recipe: api.Recipe, settings: Any) -> None:
        """Require two of the conditions or more, which differ in their training sets alone."""
        names = self.conditions(recipe)
        if len(names) < 2:
            found_names = ", ".join(names) or "none"
            raise self.recipe_error(recipe, f"needs {self.requirement}; found: {found_names}")
        slots = {name: recipe.find_slots(name) for name in names}
        remedy = "; set n to the same value in all of them, or in none"
        self.require_same(recipe, slots, "n", remedy)
        require_same_settings(recipe, self.name, names)

    def require_same(
        self, recipe: api.Recipe, values: Mapping[str, Any], what: str, remedy: str = ""
    ) -> None:
        """Require the same value in all compared conditions.

        Args:
            recipe: the recipe, for the message.
            values: by condition.
            what: what they are the values of.
            remedy: the end of the message.

        Raises:
            UserError: two conditions have different values.
        """
        if len({*map(str, values.values())}) > 1:
            found_texts = ", ".join(f"{name} {value}" for name, value in values.items())
            raise self.recipe_error(
                recipe,
                f"expected the same {what} in all compared conditions, found {found_texts}{remedy}",
            )

    def conditions(self, recipe: api.Recipe) -> Sequence[str]:
        """Return the conditions with one budget, the reference first."""
        return self.find_conditions(recipe.conditions)

    def faults(self, view: api.View) -> Iterator[str]:
        """Report gold labels whose training set does not match that of the search."""
        for search, gold in self._list_gold_arms(view):
            yield from compare_training_sets(view.run, search, gold)

    def warnings(self, view: api.View) -> Iterator[str]:
        """Report how many slots gold labels keep from the search."""
        for search, gold in self._list_gold_arms(view):
            count = count_kept_slots(view.run.path, view.recipe.conditions, search, gold)
            if count:
                yield (
                    f"{gold.name}: {count:,} slots keep the example of {search.name}, because its "
                    "target contains more than the answer"
                )

    def _list_gold_arms(self, view: api.View) -> Iterator[tuple[api.Arm, api.Arm]]:
        """Yield the arms of each gold pair and seed: the search, then gold labels."""
        arms = view.arms()
        for pair in self.find_gold_pairs(view.recipe.conditions):
            for arm in arms:
                search = api.Arm(pair.against, arm.seed)
                if arm.condition == pair.condition and search in arms:
                    yield search, arm

    def read(self, run: api.RunDirectory, arms: Sequence[api.Arm]) -> Any:
        """Read the training sets of the compared conditions."""
        if not arms:
            return None
        trained = {arm.condition for arm in arms}
        conditions = {
            name: condition for name, condition in run.recipe.conditions.items() if name in trained
        }
        pairs = self.find_pairs(conditions)
        compared = {name for pair in pairs for name in (pair.condition, pair.against)}
        slots = {
            arm: Counter(
                api.read_columns(run.path / layout.selection_path(arm), ("state",))["state"]
            )
            for arm in sorted(arms, key=lambda arm: arm.seed)
            if arm.condition in compared
        }
        kept = {
            gold: count_kept_slots(run.path, conditions, api.Arm(pair.against, gold.seed), gold)
            for pair in self.find_gold_pairs(conditions)
            for gold in slots
            if gold.condition == pair.condition
        }
        settings = self.settings(run.recipe)
        permutations = getattr(settings, "permutations", 0)  # only with PermutationSettings
        return ControlRead(conditions, slots, kept, permutations)

    def _test_pairs(self, inputs: api.ReportInputs, read: ControlRead) -> dict[Pair, SignFlips]:
        """Test each pair, if the control has permutation tests."""
        if not read.permutations:
            return {}
        stream = api.Stream(inputs.recipe["statistics"]["seed"], f"report/{self.name}")
        by_id = np.argsort(inputs.audit.ids)

        def count_passed(condition: str) -> NDArray[np.int64]:
            """Count the seeds under which each problem passes, in the order of ids."""
            passed = [arm.deployed.passed for arm in inputs.find_arms(condition)]
            counts: NDArray[np.int64] = np.array(passed).sum(axis=0)[by_id]
            return counts

        return {
            pair: flip_signs(
                count_passed(pair.condition) - count_passed(pair.against),
                flips=read.permutations,
                stream=stream,
            )
            for pair in self.find_pairs(read.conditions)
        }

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, read: Any
    ) -> Iterator[api.Table]:
        """Return the reference and the pairs, and the same by seed with the training sets."""
        tests = self._test_pairs(inputs, read)
        parameter = self.parameter
        gain = self.shows_gain_share
        tested = bool(tests)
        kept = bool(read.kept)
        names = [api.Column("condition", "condition"), api.Column("against", "minus")]
        columns = [
            *names,
            *([api.Column("value", parameter)] if parameter else []),
            api.Column("pass_at_1", "Pass@1", "share"),
            api.Column("difference", "difference", "points"),
            *(api.Column(state, state, "points") for state in "SUG"),
            *([api.Column("gain_share", "of the gain", "share")] if gain else []),
            api.Column("recovered_slots", "slots of S", "share"),
            *([api.Column("p", "p", "p")] if tested else []),
            *([api.Column("permutations"), api.Column("exact")] if tested else []),
        ]
        note = f"{_NOTE}{_GAIN_NOTE * gain}{_TEST_NOTE * tested}"
        yield api.Table(self.name, columns, self._list_rows(findings, read, tests), note)
        columns = [
            *names,
            api.Column("seed", "seed"),
            api.Column("difference", "difference", "points"),
            *(api.Column(f"slots_{state}", state, "count") for state in "GSU"),
            *([api.Column("kept", "kept", "count")] if kept else []),
        ]
        rows = self._list_seed_rows(findings, read)
        note = f"{_SEEDS_NOTE}{_KEPT_NOTE * kept}"
        yield api.Table(f"{self.name}_seeds", columns, rows, note, folded=f"{self.title} by seed")

    def _list_rows(
        self, findings: api.ReportFindings, read: ControlRead, tests: Mapping[Pair, SignFlips]
    ) -> list[api.Row]:
        pairs = self.find_pairs(read.conditions)
        full_gain = findings.find_contrast(pairs[-1].condition, pairs[-1].against).delta
        rows: list[api.Row] = []
        for pair in (Pair(pairs[0].against, ""), *pairs):
            condition = read.conditions[pair.condition]
            row = {
                "condition": pair.condition,
                "value": condition.params.get(self.parameter),
                "pass_at_1": findings.conditions[pair.condition].mean.pass_at_1,
                "recovered_slots": read.compute_recovered_share(pair.condition),
            }
            if pair.against:
                contrast = findings.find_contrast(pair.condition, pair.against)
                terms = {state: getattr(contrast.terms, state.lower()) for state in "SUG"}
                gain = compute_gain_share(contrast.delta, full_gain)
                row |= {"against": pair.against, "difference": contrast.estimate, **terms}
                row |= {"gain_share": gain}
            if test := tests.get(pair):
                row |= {"p": test.p_value, "permutations": test.flips, "exact": test.exhaustive}
            rows.append(row)
        return rows

    def _list_seed_rows(self, findings: api.ReportFindings, read: ControlRead) -> list[api.Row]:
        pairs = self.find_pairs(read.conditions)
        rows: list[api.Row] = []
        for pair in (Pair(pairs[0].against, ""), *pairs):
            for seed, seed_findings in findings.conditions[pair.condition].seeds.items():
                arm = api.Arm(pair.condition, seed)
                counts = read.slots[arm]
                row: dict[str, Any] = {f"slots_{state}": counts[state] for state in "GSU"}
                row |= {"condition": pair.condition, "seed": seed}
                if arm in read.kept:
                    row |= {"kept": read.kept[arm]}
                if pair.against:
                    other = findings.conditions[pair.against].seeds[seed].decomposition
                    difference = seed_findings.decomposition.pass_at_1 - other.pass_at_1
                    row |= {"against": pair.against, "difference": difference}
                rows.append(row)
        return rows


def list_selected(conditions: Mapping[str, api.Condition], *selectors: str) -> list[str]:
    """List the conditions of some selectors, without replicates."""
    return [
        name
        for name, condition in conditions.items()
        if condition.selector in selectors and not condition.replicate
    ]


def order_by_parameter(
    conditions: Mapping[str, api.Condition], selector: str, parameter: str
) -> list[str]:
    """List the conditions of a selector, ascending by a parameter.

    Values that are not numbers are left out; the selector reports them.
    """
    values = {
        name: conditions[name].params.get(parameter) for name in list_selected(conditions, selector)
    }
    numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
    return sorted(numbers, key=numbers.__getitem__)


def list_with_gapft(conditions: Mapping[str, api.Condition], selector: str) -> list[str]:
    """List the first GapFT condition, then those of a selector; empty without GapFT."""
    gapft = list_selected(conditions, "gapft")[:1]
    return [*gapft, *list_selected(conditions, selector)] if gapft else []


@dataclass(frozen=True, slots=True)
class ControlRead:
    """The compared conditions of a run.

    Attributes:
        conditions: the trained conditions by name.
        slots: by arm, the number of its examples by state.
        kept: by arm of gold labels, the examples that it keeps from the search.
        permutations: those of each test; 0 if the control has no tests.
    """

    conditions: Mapping[str, api.Condition]
    slots: Mapping[api.Arm, Mapping[str, int]]
    kept: Mapping[api.Arm, int]
    permutations: int

    def compute_recovered_share(self, condition: str) -> Fraction:
        """Compute the share of a condition's examples that are in S, mean over seeds."""
        shares = [
            Fraction(counts["S"], sum(counts.values()))
            for arm, counts in self.slots.items()
            if arm.condition == condition
        ]
        return sum(shares, Fraction(0)) / len(shares)
