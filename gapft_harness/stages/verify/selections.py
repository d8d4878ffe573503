"""Verification of selections: examples, order, budgets, replay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from gapft_harness.core.records import Arm, Budget, Evidence, Example
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registration import SelectorTraits
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.integrity.differences import Differences, compare_values
from gapft_harness.stages.selection.budgets import (
    find_unmatched,
    group_by_budget,
    require_similar_tokens,
)
from gapft_harness.stages.selection.choosing import (
    ConditionPools,
    NotEvidence,
    TrainingSet,
    build_training_set,
    count_condition_slots,
    count_slots,
    find_evidence,
    group_by_state,
    list_differing_columns,
)
from gapft_harness.stages.selection.stage import build_condition_facts, list_arms
from gapft_harness.training.plan import budget


def check_selections(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    findings: Differences,
) -> dict[Arm, list[Example]]:
    """Recompute every arm's examples and budget; then compare what arms must have in common.

    Args:
        run: the run.
        manifest: its manifest.
        plugins: the loaded plugins.
        findings: receives the results.

    Returns:
        The examples of the arms whose selection can be read.
    """
    folder = layout.SELECTIONS
    files = sorted((run.path / folder).glob("*.parquet"))
    if "n" not in manifest and not files:
        findings.missing.append("nothing is selected")
        return {}
    pools = ConditionPools(run, check_hashes=False)
    if findings.try_reading("pool", pools.read_evidence) is None:
        return {}
    n = count_slots(run.recipe.budget.n, pools.read_pool())
    findings.collect(
        "n",
        lambda: compare_values("manifest.json", manifest, {"n": n}, "the recipe and the pool give"),
    )
    if not n:
        findings.differences += [f"{folder}/{f.name}: there is nothing to select" for f in files]
        findings.checked.append("search recovered nothing, so there is nothing to train on")
        return {}
    slots = findings.try_reading("n", lambda: count_condition_slots(run.recipe, pools.read_pool))
    if slots is None:
        return {}
    examples: dict[Arm, list[Example]] = {}
    recorded: dict[Arm, dict[str, Any]] = {}
    sample_conditions: dict[str, None] = {}
    for arm in list_arms(run.recipe):
        relative, n = layout.selection_path(arm), slots[arm.condition]
        stored_examples = findings.try_reading(
            relative, partial(read_examples, run.path / relative)
        )
        if stored_examples is None:
            continue
        examples[arm] = stored_examples
        check = _SelectionCheck(
            run, arm, plugins, stored_examples, pools.read_evidence(arm.condition)
        )
        recorded[arm] = check.check(n, findings)
        if check.traits.can_use_samples:
            sample_conditions[arm.condition] = None
    _check_replicates(run, examples, findings)
    _check_budgets(run, manifest, examples, recorded, slots, findings)
    exceptions = f", except those of {', '.join(sample_conditions)}" if sample_conditions else ""
    findings.checked.append(
        f"{len(examples)} selections contain the evidence that their conditions "
        f"choose, each a response that passed{exceptions}"
    )
    recipe_files = {run.path / layout.selection_path(arm) for arm in list_arms(run.recipe)}
    if other_names := [file.stem for file in files if file not in recipe_files]:
        findings.checked.append(
            f"arms that are no longer in the recipe; only their files' hashes were compared: "
            f"{', '.join(other_names)}"
        )
    return examples


def _check_replicates(
    run: RunDirectory, examples: Mapping[Arm, Sequence[Example]], findings: Differences
) -> None:
    """Compare the training sets of replicates with those of the arms that they repeat."""
    originals, same_count = run.recipe.map_replicates(), 0
    for arm in (arm for arm in examples if arm.condition in originals):
        original = replace(arm, condition=originals[arm.condition])
        if original not in examples:
            continue
        if examples[arm] == examples[original]:
            same_count += 1
            continue
        findings.differences.append(
            f"{layout.selection_path(arm)}: {arm.name} repeats the training of {original.name}, "
            f"but its training set differs from {layout.selection_path(original)}"
        )
    if same_count:
        findings.checked.append(
            f"{same_count} replicates have the training sets of the arms that they repeat"
        )


def _check_budgets(
    run: RunDirectory,
    manifest: Manifest,
    examples: Mapping[Arm, list[Example]],
    expected: Mapping[Arm, Mapping[str, Any]],
    slots: Mapping[str, int],
    findings: Differences,
) -> None:
    """Count every arm's budget, and compare those that must match.

    Args:
        run: the run.
        manifest: its manifest.
        examples: the training sets.
        expected: the expected entries of the manifest on each arm's set, besides its budget.
        slots: n by condition.
        findings: receives the results.
    """
    matched: dict[Arm, Budget] = {}
    for arm, arm_examples in examples.items():
        subject = f"budget of {arm.name}"
        computed = findings.try_reading(
            subject, partial(budget, arm_examples, run.recipe.resolve_training(arm.condition))
        )
        if computed is None:
            continue
        findings.collect(
            layout.selection_path(arm), partial(_compare_own_budget, run, arm, computed)
        )
        recorded = manifest["budgets"].get(arm.name, {})
        expected_facts = {
            "condition": None,
            **build_condition_facts(run.recipe, arm),
            **expected[arm],
        }
        findings.collect(
            subject, partial(_compare_budget, arm, {**asdict(computed), **expected_facts}, recorded)
        )
        if expected_facts.get("matched", recorded.get("matched", True)):
            matched[arm] = computed
    for group in group_by_budget(matched, slots, run.recipe):
        findings.collect("budgets", partial(find_unmatched, group))
        findings.try_reading("tokens", partial(require_similar_tokens, group, run.recipe.budget))
        first = next(iter(group.values()))
        findings.checked.append(
            f"{len(group)} matched arms have n = {first.n}, N = {first.exposures}, "
            f"J = {first.steps}"
        )


def _compare_own_budget(run: RunDirectory, arm: Arm, computed: Budget) -> Iterable[str]:
    """Compare the budget that a table of examples records, which the report shows."""
    table = layout.selection_path(arm)
    yield from compare_values(f"{table}, its facts", read_facts(run.path / table), asdict(computed))


def _compare_budget(
    arm: Arm, expected: Mapping[str, Any], recorded: Mapping[str, Any]
) -> Iterable[str]:
    for key, value in expected.items():
        if recorded.get(key) != value:
            yield (
                f"manifest.json: the budget of {arm.name} has {key} = {recorded.get(key)}, but its "
                f"selection and its condition give {value}"
            )


@dataclass(frozen=True)
class _SelectionCheck:
    """One arm's training set, compared with its selector's choice.

    Attributes:
        examples: the sealed examples.
        evidence: the evidence of the condition's pool.
    """

    run: RunDirectory
    arm: Arm
    plugins: Plugins
    examples: Sequence[Example]
    evidence: Sequence[Evidence]

    @property
    def traits(self) -> SelectorTraits:
        return self.plugins.find_selector_traits(
            self.run.recipe.conditions[self.arm.condition].selector
        )

    def check(self, n: int, findings: Differences) -> dict[str, Any]:
        """Compare a set with the pool's evidence, and with its selector's choice.

        Returns:
            The expected entries of the manifest besides the budget.
        """
        where = layout.selection_path(self.arm)
        findings.collect(where, self._compare_evidence)
        expected: dict[str, Any] = {"matched": not self.traits.has_own_budget}
        if chosen := findings.try_reading(where, partial(self._run_selector, n)):
            findings.collect(where, partial(self._compare_choice, chosen))
            expected["ends_unknown"] = chosen.ends_unknown
            expected["unverified"] = chosen.unverified or None
        return expected

    def _compare_evidence(self) -> Iterable[str]:
        """Compare every example with the states table's evidence for its problem or origin."""
        pool_evidence = {e.problem_id: e for e in self.evidence}
        for slot, example in enumerate(self.examples):
            try:
                find_evidence(example, pool_evidence, self.traits.responses)
            except NotEvidence as error:
                yield f"{self._format_slot(slot, example)}: {error}"

    def _compare_choice(self, chosen: TrainingSet) -> Iterable[str]:
        """Compare examples and order with the choice of the selector, run again."""
        where, chosen_examples = layout.selection_path(self.arm), chosen.examples
        if len(chosen_examples) != len(self.examples):
            yield (
                f"{where}: has {len(self.examples)} examples, its selector chooses "
                f"{len(chosen_examples)}"
            )
            return
        for slot, (example, chosen_example) in enumerate(
            zip(self.examples, chosen_examples, strict=True)
        ):
            if example.problem_id != chosen_example.problem_id:
                yield (
                    f"{where}: slot {slot} has problem {example.problem_id}, its selector chooses "
                    f"{chosen_example.problem_id}"
                )
            elif (
                self.traits.can_use_other_responses and example != chosen_example
            ):  # else ``_compare_evidence`` reports it
                yield (
                    f"{self._format_slot(slot, example)}: is not the example that its selector "
                    f"chooses; differing: {list_differing_columns(example, chosen_example)}"
                )

    def _run_selector(self, n: int) -> TrainingSet:
        """Run the selector again."""
        recipe = self.run.recipe
        selector, entry = find_selector(recipe, self.arm.condition, self.plugins)
        pool, replay = group_by_state(self.evidence), recipe.budget.replay
        drawing = replace(self.arm, seed=recipe.find_selection_seed(self.arm.seed))
        return build_training_set(selector, entry, pool, n, replay, drawing)

    def _format_slot(self, slot: int, example: Example) -> str:
        return f"{layout.selection_path(self.arm)}: slot {slot}, problem {example.problem_id}"
