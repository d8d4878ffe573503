"""What ``gapft verify`` checks of selections: examples, order, budgets, replay, sets of other runs.

To verify a set that was taken from another run much needs that run. Where it is not here, a set is
held to this run's pool, and what could not be verified is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from gapft_harness.core.records import Arm, Budget, Evidence, Example
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registered import SelectorTraits
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import BudgetFacts, Manifest
from gapft_harness.run_directory.tables import read_examples, read_problems
from gapft_harness.stages.integrity.differences import Differences, unequal
from gapft_harness.stages.integrity.sources import file_of, origins, taken_arm
from gapft_harness.stages.selection.budgets import enforce_tokens, in_groups, unmatched
from gapft_harness.stages.selection.choosing import (
    Pools,
    fill,
    make_pool,
    slots_by_condition,
    slots_of,
    to_example,
)
from gapft_harness.stages.selection.stage import arms, chosen_by
from gapft_harness.stages.selection.taking import (
    Taking,
    differing_keys,
    example_fault,
    with_response,
)
from gapft_harness.stages.verify.judging import Rejudge
from gapft_harness.training.plan import budget

#: Takes an arm, its sealed set, and what takes in the differences.
CheckTaken = Callable[[Arm, Sequence[Example], Differences], None]


def check_selections(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    check_taken: CheckTaken,
    findings: Differences,
) -> dict[Arm, list[Example]]:
    """Every arm's examples and budget, computed again; then what arms must have in common.

    Args:
        check_taken: checks a set that was taken from another run.

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
    examples = _examples(run, check_taken, plugins, pools, slots, findings)
    _check_replicates(run, examples, findings)
    _check_budgets(run, manifest, plugins, examples, slots, findings)
    chosen = [arm for arm in examples if arm.condition not in run.recipe.taken()]
    gold = [arm.name for arm in chosen if _traits(run, arm, plugins).gold]
    findings.checked.append(
        f"{len(chosen)} selections hold the evidence that their conditions choose, each a "
        "response that passed" + (f", but in {', '.join(gold)} (gold=True)" if gold else "")
    )
    named = {run.path / layout.selection(arm) for arm in arms(run.recipe)}
    if others := [file.stem for file in there if file not in named]:
        findings.checked.append(
            f"no arms of the recipe any more, so only their files' hashes were compared: "
            f"{', '.join(others)}"
        )
    return examples


def _examples(
    run: RunDirectory,
    check_taken: CheckTaken,
    plugins: Plugins,
    pools: Pools,
    slots: Mapping[str, int],
    findings: Differences,
) -> dict[Arm, list[Example]]:
    examples: dict[Arm, list[Example]] = {}
    for arm in arms(run.recipe):
        relative = layout.selection(arm)
        read = findings.attempt(relative, partial(read_examples, run.path / relative))
        if read is None:
            continue
        examples[arm] = read
        if arm.condition in run.recipe.taken():
            check_taken(arm, read, findings)
        else:
            evidence = pools.evidence(arm.condition)
            findings.gather(relative, partial(_evidence, run, arm, read, evidence, plugins))
            n = slots[arm.condition]
            findings.gather(relative, partial(_chosen_again, run, arm, read, evidence, plugins, n))
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
    plugins: Plugins,
    examples: dict[Arm, list[Example]],
    slots: Mapping[str, int],
    findings: Differences,
) -> None:
    """Counts every arm's budget, and compares those that must match."""
    matched: dict[Arm, Budget] = {}
    for arm, chosen in examples.items():
        what = f"budget of {arm.name}"
        counted = findings.attempt(
            what, partial(budget, chosen, run.recipe.training_of(arm.condition))
        )
        if counted is None:
            continue
        recorded = manifest["budgets"].get(arm.name, {})
        said: dict[str, Any] = {"condition": None, **chosen_by(run.recipe, arm)}
        if arm.condition in run.recipe.taken():
            own = not recorded.get("matched", True)  # held against the other run's, if it is there
        else:
            own = _traits(run, arm, plugins).own_budget
            said |= {"matched": not own, "taken": None}
        findings.gather(what, partial(_budget, arm, {**asdict(counted), **said}, recorded))
        if not own:
            matched[arm] = counted
    for group in in_groups(matched, slots, run.recipe, origins(manifest)):
        findings.gather("budgets", partial(unmatched, group))
        tolerance = run.recipe.budget.token_tolerance
        findings.attempt("supervised tokens", partial(enforce_tokens, group, tolerance))
        first = next(iter(group.values()))
        findings.checked.append(
            f"{len(group)} matched arms have n = {first.n}, N = {first.exposures}, "
            f"J = {first.steps}"
        )


def _evidence(
    run: RunDirectory,
    arm: Arm,
    examples: Sequence[Example],
    evidence: Sequence[Evidence],
    plugins: Plugins,
) -> Iterable[str]:
    """Every example is exactly what the states table keeps for its problem, or for its origin."""
    traits = _traits(run, arm, plugins)
    known = {e.problem_id: e for e in evidence}
    for slot, example in enumerate(examples):
        if traits.gold and example.origin == example.problem_id in known:
            continue  # held against what its selector chooses
        if fault := example_fault(example, known, traits.responses):
            who = f"{layout.selection(arm)}: slot {slot}, problem {example.problem_id}"
            yield f"{who}: {fault}"


def _chosen_again(
    run: RunDirectory,
    arm: Arm,
    examples: Sequence[Example],
    evidence: Sequence[Evidence],
    plugins: Plugins,
    n: int,
) -> Iterable[str]:
    """The condition's selector, run again, chooses the same examples in the same order."""
    selector, entry = find_selector(run.recipe, arm.condition, plugins)
    chosen = fill(selector, entry, make_pool(evidence), n, run.recipe.budget.replay, arm)
    right = [to_example(e) for e in chosen]
    traits = entry.declared(SelectorTraits)
    where, free = layout.selection(arm), traits.gold or traits.takes_others
    if len(right) != len(examples):
        yield f"{where}: holds {len(examples)} examples, its selector chooses {len(right)}"
        return
    for slot, (one, other) in enumerate(zip(examples, right, strict=True)):
        if one.problem_id != other.problem_id:
            yield (
                f"{where}: slot {slot} holds problem {one.problem_id}, its selector chooses "
                f"{other.problem_id}"
            )
        elif free and one != other:  # of other arms ``_evidence`` says it
            yield (
                f"{where}: slot {slot}, problem {one.problem_id}: is not the example that its "
                f"selector chooses; differing: {differing_keys(one, other)}"
            )


def _traits(run: RunDirectory, arm: Arm, plugins: Plugins) -> SelectorTraits:
    return find_selector(run.recipe, arm.condition, plugins)[1].declared(SelectorTraits)


def _budget(arm: Arm, expected: dict[str, Any], recorded: Mapping[str, Any]) -> Iterable[str]:
    for key, value in expected.items():
        if recorded.get(key) != value:
            yield (
                f"manifest.json: the budget of {arm.name} has {key} = {recorded.get(key)}, its "
                f"selection and its condition give {value}"
            )


class TakenSets:
    """Holds a run's taken sets to its recipe, to its pool, and to the runs they were taken from."""

    def __init__(
        self, run: RunDirectory, manifest: Manifest, plugins: Plugins, judge: Rejudge
    ) -> None:
        self._run, self._manifest, self._judge = run, manifest, judge
        self._taking = Taking(run, plugins)
        self._prompts: dict[str, tuple[int, ...]] = {}

    def check(self, arm: Arm, examples: Sequence[Example], findings: Differences) -> None:
        """One arm's sealed set; what holds of it is said only if nothing differs."""
        before, where = len(findings.differences), layout.selection(arm)
        findings.gather(where, partial(self._named, arm))
        findings.gather(where, partial(self._of_pool, arm, examples))
        findings.gather(where, partial(self._as_taken, arm, examples))
        if len(findings.differences) == before:
            findings.checked += self._told(arm)

    def _entry(self, arm: Arm) -> BudgetFacts:
        return self._manifest["budgets"].get(arm.name, {})

    def _named(self, arm: Arm) -> Iterable[str]:
        """The set was taken from the run and the arm that the recipe names."""
        taken = self._entry(arm).get("taken")
        if taken is None:
            yield (
                f"manifest.json: the budget of {arm.name} does not say where its set was taken from"
            )
            return
        condition = self._run.recipe.conditions[arm.condition]
        wanted = {"run": condition.run, "arm": taken_arm(arm, condition).name}
        for key, value in wanted.items():
            if taken.get(key) != value:
                yield (
                    f"manifest.json: the set of {arm.name} was taken from {key} "
                    f"{taken.get(key)}, the recipe's conditions.{arm.condition} gives {value}"
                )

    def _of_pool(self, arm: Arm, examples: Sequence[Example]) -> Iterable[str]:
        """Every example is a problem of this run's pool, with that problem's prompt."""
        where, known = layout.selection(arm), self._pool()
        for slot, example in enumerate(examples):
            who = f"{where}: slot {slot}, problem {example.problem_id}"
            if lacking := sorted({example.problem_id, example.origin} - known.keys()):
                yield f"{who}: {', '.join(lacking)} is no problem of this run's pool"
            elif not self._converses() and example.prompt_ids != known[example.problem_id]:
                yield f"{who}: has other prompt tokens than this run's pool has for it"

    def _pool(self) -> dict[str, tuple[int, ...]]:
        if not self._prompts:
            problems = read_problems(self._run.path / layout.problems("pool"))
            self._prompts = {problem.id: prompt_ids for problem, prompt_ids in problems}
        return self._prompts

    def _converses(self) -> bool:
        """Whether an example may follow earlier attempts, so that its prompt is no problem's."""
        episode = self._manifest["task"].get("episode")
        return episode is not None and episode["attempts"] > 1

    def _as_taken(self, arm: Arm, examples: Sequence[Example]) -> Iterable[str]:
        """It is the set that the other run has, and its responses pass when judged again."""
        entry, where = self._entry(arm), layout.selection(arm)
        file = file_of(entry)
        if file is None or not file.exists():
            return  # ``_told`` says so
        source = RunDirectory.open(file.parent.parent)
        again = self._taking.take(arm, source)
        for key, value in again.said().items():
            if (found := entry.get(key)) != value:
                yield (
                    f"manifest.json: the budget of {arm.name} has {key} = {found}, and its "
                    f"set, taken again from {file}, gives {value}"
                )
        if len(examples) != len(again.examples):
            yield f"{where}: holds {len(examples)} examples, {file} holds {len(again.examples)}"
        for slot, (one, other) in enumerate(zip(examples, again.examples, strict=False)):
            if one != other:
                yield (
                    f"{where}: slot {slot}, problem {one.problem_id}: is not that of {file}; "
                    f"differing: {differing_keys(one, other)}"
                )
        condition = taken_arm(arm, self._run.recipe.conditions[arm.condition]).condition
        yield from self._passed(source, condition, again.examples)

    def _passed(
        self, source: RunDirectory, condition: str, examples: Sequence[Example]
    ) -> Iterable[str]:
        known = self._taking.known(source, condition)
        pairs = []
        for example in examples:  # each is this evidence, with a gold that this run has too
            lender = known[example.origin]
            response = with_response(lender, example.response_index).response
            assert response is not None
            pairs.append((lender.gold, response))
        yield from self._judge.passed(source.path / layout.responses("pool"), pairs)

    def _told(self, arm: Arm) -> Iterable[str]:
        entry = self._entry(arm)
        file = file_of(entry)
        if file is None or not file.exists():
            own = "" if entry.get("matched", True) else ", and that its budget is its own,"
            prompts = " (prompts after earlier attempts apart)" if self._converses() else ""
            yield (
                f"{arm.name}: each example is a problem of this run's pool with its prompt"
                f"{prompts}; that its responses passed{own} was not verified, for what it was "
                "taken from is not here"
            )
            return
        judged = (
            "and passed again" if self._judge.verifier else "by its record, not judged again here"
        )
        yield (
            f"{arm.name} was compared with the set that it was taken from, {file}: each a response "
            f"that passed there, {judged}, to a problem of this run's pool"
        )
