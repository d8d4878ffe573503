"""Verification of selections: examples, order, budgets, replay, sets of other runs.

If another run that a set comes from is not on this machine, the set is compared with this run's
pool, and what could not be verified is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from gapft_harness.core.records import Arm, Budget, Evidence, Example
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registered import SelectorTraits
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest, taken_sets
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.integrity.differences import Differences, unequal
from gapft_harness.stages.selection.budgets import enforce_tokens, in_groups, unmatched
from gapft_harness.stages.selection.choosing import (
    NotEvidence,
    Pools,
    Selected,
    SourceSet,
    as_evidence,
    choose_set,
    differing_keys,
    make_pool,
    slots_by_condition,
    slots_of,
)
from gapft_harness.stages.selection.other_runs import OtherRuns, set_named
from gapft_harness.stages.selection.stage import arms, chosen_by
from gapft_harness.stages.verify.judging import Rejudge
from gapft_harness.training.plan import budget


def check_selections(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    judge: Rejudge,
    findings: Differences,
) -> dict[Arm, list[Example]]:
    """Recompute every arm's examples and budget; then compare what arms must have in common.

    Args:
        run: the run.
        manifest: its manifest.
        plugins: the loaded plugins.
        judge: judges the responses of other runs' sets again.
        findings: receives the results.

    Returns:
        The examples of the arms whose selection can be read.
    """
    folder = layout.SELECTIONS
    there = sorted((run.path / folder).glob("*.parquet"))
    if "n" not in manifest and not there:
        findings.missing.append("nothing is selected")
        return {}
    pools = Pools(run, sealed=False)
    if findings.attempt("pool", pools.evidence) is None:
        return {}
    n = slots_of(run.recipe.budget.n, pools.of())
    findings.gather(
        "n", lambda: unequal("manifest.json", manifest, {"n": n}, "the recipe and the pool give")
    )
    if not n:
        findings.differences += [f"{folder}/{f.name}: there is nothing to select" for f in there]
        findings.checked.append("search recovered nothing, so there is nothing to train on")
        return {}
    slots = findings.attempt("n", lambda: slots_by_condition(run.recipe, pools.of))
    if slots is None:
        return {}
    examples: dict[Arm, list[Example]] = {}
    recorded: dict[Arm, dict[str, Any]] = {}
    other_runs, foreign = OtherRuns(run, plugins), 0
    for arm in arms(run.recipe):
        relative, n = layout.selection(arm), slots[arm.condition]
        read = findings.attempt(relative, partial(read_examples, run.path / relative))
        if read is None:
            continue
        examples[arm] = read
        again = _Again(run, arm, plugins, read, pools.evidence(arm.condition))
        if again.traits.foreign:
            foreign += 1
            recorded[arm] = again.check_foreign(manifest, other_runs, judge, n, findings)
        else:
            recorded[arm] = again.check_own(n, findings)
    _check_replicates(run, examples, findings)
    _check_budgets(run, manifest, examples, recorded, slots, findings)
    findings.checked.append(
        f"{len(examples) - foreign} selections contain the evidence that their conditions choose, "
        "each a response that passed"
    )
    named = {run.path / layout.selection(arm) for arm in arms(run.recipe)}
    if others := [file.stem for file in there if file not in named]:
        findings.checked.append(
            f"arms that are no longer in the recipe; only their files' hashes were compared: "
            f"{', '.join(others)}"
        )
    return examples


def _check_replicates(
    run: RunDirectory, examples: Mapping[Arm, Sequence[Example]], findings: Differences
) -> None:
    """Compare the training sets of replicates with those of the arms that they repeat."""
    originals, same = run.recipe.replicates(), 0
    for arm in (arm for arm in examples if arm.condition in originals):
        original = replace(arm, condition=originals[arm.condition])
        if original not in examples:
            continue
        if examples[arm] == examples[original]:
            same += 1
            continue
        findings.differences.append(
            f"{layout.selection(arm)}: {arm.name} repeats the training of {original.name}, but its "
            f"training set differs from {layout.selection(original)}"
        )
    if same:
        findings.checked.append(
            f"{same} replicates have the training sets of the arms that they repeat"
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
    for arm, chosen in examples.items():
        what = f"budget of {arm.name}"
        counted = findings.attempt(
            what, partial(budget, chosen, run.recipe.training_of(arm.condition))
        )
        if counted is None:
            continue
        recorded = manifest["budgets"].get(arm.name, {})
        right = {"condition": None, **chosen_by(run.recipe, arm), **expected[arm]}
        findings.gather(what, partial(_budget, arm, {**asdict(counted), **right}, recorded))
        if right.get("matched", recorded.get("matched", True)):
            matched[arm] = counted
    for group in in_groups(matched, slots, run.recipe, taken_sets(manifest)):
        findings.gather("budgets", partial(unmatched, group))
        tolerance = run.recipe.budget.token_tolerance
        findings.attempt("supervised tokens", partial(enforce_tokens, group, tolerance))
        first = next(iter(group.values()))
        findings.checked.append(
            f"{len(group)} matched arms have n = {first.n}, N = {first.exposures}, "
            f"J = {first.steps}"
        )


def _budget(arm: Arm, expected: Mapping[str, Any], recorded: Mapping[str, Any]) -> Iterable[str]:
    for key, value in expected.items():
        if recorded.get(key) != value:
            yield (
                f"manifest.json: the budget of {arm.name} has {key} = {recorded.get(key)}, but its "
                f"selection and its condition give {value}"
            )


@dataclass(frozen=True)
class _Again:
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
        return self.plugins.selector_traits(self.run.recipe.conditions[self.arm.condition].selector)

    def check_own(self, n: int, findings: Differences) -> dict[str, Any]:
        """Compare a set with the pool's evidence, and with its selector's choice.

        Returns:
            The expected entries of the manifest besides the budget.
        """
        where = layout.selection(self.arm)
        findings.gather(where, self._compare_evidence)
        if chosen := findings.attempt(where, partial(self._choose, n)):
            findings.gather(where, partial(self._compare, chosen))
        return {"matched": not self.traits.own_budget, "taken": None}

    def _compare_evidence(self) -> Iterable[str]:
        """Compare every example with the states table's evidence for its problem or origin."""
        known = {e.problem_id: e for e in self.evidence}
        for slot, example in enumerate(self.examples):
            try:
                as_evidence(example, known, self.traits.responses)
            except NotEvidence as error:
                yield f"{self._who(slot, example)}: {error}"

    def _compare(self, chosen: Selected) -> Iterable[str]:
        """Compare examples and order with the choice of the selector, run again."""
        where, right = layout.selection(self.arm), chosen.examples
        if len(right) != len(self.examples):
            yield f"{where}: has {len(self.examples)} examples, its selector chooses {len(right)}"
            return
        for slot, (one, other) in enumerate(zip(self.examples, right, strict=True)):
            if one.problem_id != other.problem_id:
                yield (
                    f"{where}: slot {slot} has problem {one.problem_id}, its selector chooses "
                    f"{other.problem_id}"
                )
            elif self.traits.takes_others and one != other:  # else ``_compare_evidence`` reports it
                yield (
                    f"{self._who(slot, one)}: is not the example that its selector chooses; "
                    f"differing: {differing_keys(one, other)}"
                )

    def _choose(self, n: int, source: SourceSet | None = None) -> Selected:
        """Run the selector again."""
        recipe = self.run.recipe
        selector, entry = find_selector(recipe, self.arm.condition, self.plugins)
        pool, replay = make_pool(self.evidence), recipe.budget.replay
        return choose_set(selector, entry, pool, n, replay, self.arm, source)

    def check_foreign(
        self,
        manifest: Manifest,
        other_runs: OtherRuns,
        judge: Rejudge,
        n: int,
        findings: Differences,
    ) -> dict[str, Any]:
        """Compare a set of another run with this run's pool, and with that run if available.

        Returns:
            The expected entries of the manifest besides the budget.
        """
        where, before = layout.selection(self.arm), len(findings.differences)
        task = manifest["task"].get("episode")
        converses = task is not None and task["attempts"] > 1  # prompts follow earlier attempts
        findings.gather(where, partial(self._compare_pool, converses))
        place, of = set_named(self.run.recipe, self.arm)
        recorded = manifest["budgets"].get(self.arm.name, {})
        file = place / layout.selection(of)
        if not file.exists():
            prompts = " (except prompts after earlier attempts)" if converses else ""
            if len(findings.differences) == before:
                findings.checked.append(
                    f"{self.arm.name}: each example is a problem of this run's pool with its "
                    f"prompt{prompts}; its verdicts and its budget were not verified, because the "
                    f"run that it comes from is not on this machine: {place}"
                )
            return {"taken": {**recorded.get("taken", {}), "run": str(place), "arm": of.name}}
        source = findings.attempt(where, partial(other_runs.read, self.arm))
        if source is None:
            return {}
        chosen = findings.attempt(where, partial(self._choose, n, source))
        if chosen is None:
            return {}
        findings.gather(where, partial(self._compare, chosen))
        golds = {evidence.problem_id: evidence.gold for evidence in self.evidence}
        responses = [evidence.response for evidence in source.evidence if evidence.response]
        table = place / layout.responses("pool")
        pairs = [(golds[response.problem_id], response) for response in responses]
        findings.gather(where, partial(judge.passed, table, pairs))
        if len(findings.differences) == before:
            judged = "and passed again" if judge.verifier else "as recorded, not judged again"
            findings.checked.append(
                f"{self.arm.name} was compared with its source {file}: each example is a response "
                f"that passed there, {judged}, to a problem of this run's pool"
            )
        return chosen.said()

    def _compare_pool(self, converses: bool) -> Iterable[str]:
        """Check that every example is a problem of this run's pool, with its prompt."""
        prompts = {evidence.problem_id: evidence.prompt_ids for evidence in self.evidence}
        for slot, example in enumerate(self.examples):
            if lacking := sorted({example.problem_id, example.origin} - prompts.keys()):
                names = ", ".join(lacking)
                yield f"{self._who(slot, example)}: {names} is not a problem of this run's pool"
            elif not converses and example.prompt_ids != prompts[example.problem_id]:
                yield f"{self._who(slot, example)}: has other prompt tokens than this run's pool"

    def _who(self, slot: int, example: Example) -> str:
        return f"{layout.selection(self.arm)}: slot {slot}, problem {example.problem_id}"
