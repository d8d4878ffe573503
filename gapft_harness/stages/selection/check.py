"""What ``gapft verify`` checks of selections: examples, order, budgets, replay."""

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
from gapft_harness.run_directory.facts import Manifest
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.differences import Differences, unequal
from gapft_harness.stages.foundation.sources import origins
from gapft_harness.stages.selection.budgets import divided, enforce_tokens, in_groups
from gapft_harness.stages.selection.choosing import (
    Pools,
    fill,
    has_own_budget,
    is_gold,
    make_pool,
    slots_by_condition,
    slots_of,
    takes_others,
    to_example,
)
from gapft_harness.stages.selection.stage import arms, chosen_by
from gapft_harness.stages.selection.taking import differing_keys, example_fault
from gapft_harness.training.plan import budget

#: Takes an arm, its sealed set, and what takes in the differences.
CheckTaken = Callable[[Arm, Sequence[Example], Differences], None]


def check_selections(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    check_taken: CheckTaken,
    found: Differences,
) -> dict[Arm, list[Example]]:
    """Every arm's examples and budget, computed again; then what arms must have in common.

    Args:
        run: the run.
        manifest: its manifest.
        plugins: those that are loaded.
        check_taken: checks a set that was taken from another run.
        found: takes in the differences.

    Returns:
        The examples of the arms whose selection can be read.
    """
    folder = layout.SELECTIONS
    there = sorted((run.path / folder).glob("*.parquet"))
    if "n" not in manifest and not there:
        found.missing.append("nothing is selected")
        return {}
    pools = Pools(run, sealed=False)
    if found.attempt("pool", pools.evidence) is None:
        return {}
    n = slots_of(run.recipe.budget.n, pools.of())
    found.gather(
        "n", lambda: unequal("manifest.json", manifest, {"n": n}, "the recipe and the pool give")
    )
    if not n:
        found.differences += [f"{folder}/{f.name}: there is nothing to select" for f in there]
        found.checked.append("search recovered nothing, so there is nothing to train on")
        return {}
    slots = found.attempt("n", lambda: slots_by_condition(run.recipe, pools.of))
    if slots is None:
        return {}
    examples = _examples(run, check_taken, plugins, pools, slots, found)
    _check_budgets(run, manifest, plugins, examples, slots, found)
    chosen = [arm for arm in examples if arm.condition not in run.recipe.taken()]
    gold = [arm.name for arm in chosen if _is_gold(run, arm, plugins)]
    found.checked.append(
        f"{len(chosen)} selections hold the evidence that their conditions choose, each a "
        "response that passed" + (f", but in {', '.join(gold)} (gold=True)" if gold else "")
    )
    named = {run.path / layout.selection(arm) for arm in arms(run.recipe)}
    if others := [file.stem for file in there if file not in named]:
        found.checked.append(
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
    found: Differences,
) -> dict[Arm, list[Example]]:
    examples: dict[Arm, list[Example]] = {}
    for arm in arms(run.recipe):
        relative = layout.selection(arm)
        read = found.attempt(relative, partial(read_examples, run.path / relative))
        if read is None:
            continue
        examples[arm] = read
        if arm.condition in run.recipe.taken():
            check_taken(arm, read, found)
        else:
            evidence = pools.evidence(arm.condition)
            found.gather(relative, partial(_evidence, run, arm, read, evidence, plugins))
            n = slots[arm.condition]
            found.gather(relative, partial(_chosen_again, run, arm, read, evidence, plugins, n))
    return examples


def _check_budgets(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    examples: dict[Arm, list[Example]],
    slots: Mapping[str, int],
    found: Differences,
) -> None:
    """Counts every arm's budget, and compares those that must match."""
    matched: dict[Arm, Budget] = {}
    for arm, chosen in examples.items():
        what = f"budget of {arm.name}"
        counted = found.attempt(
            what, partial(budget, chosen, run.recipe.training_of(arm.condition))
        )
        if counted is None:
            continue
        recorded = manifest["budgets"].get(arm.name, {})
        said: dict[str, Any] = {"condition": None, **chosen_by(run.recipe, arm)}
        if arm.condition in run.recipe.taken():
            own = not recorded.get("matched", True)  # held against the other run's, if it is there
        else:
            own = has_own_budget(find_selector(run.recipe, arm.condition, plugins)[1])
            said |= {"matched": not own, "taken": None}
        found.gather(what, partial(_budget, arm, {**asdict(counted), **said}, recorded))
        if not own:
            matched[arm] = counted
    for group in in_groups(matched, slots, run.recipe, origins(manifest)):
        found.gather("budgets", partial(_matched, group))
        found.gather("supervised tokens", partial(_tolerated, group, run))
        first = next(iter(group.values()))
        found.checked.append(
            f"{len(group)} matched arms have n = {first.n}, N = {first.exposures}, "
            f"J = {first.steps}"
        )
    replayed = {arm: examples[arm] for arm in matched if arm.condition not in run.recipe.taken()}
    replay = {
        arm: divided(slots[arm.condition], run.recipe.replay(arm.condition))[1] for arm in replayed
    }
    found.gather("replay", partial(_replay, replayed, replay))


def _evidence(
    run: RunDirectory,
    arm: Arm,
    examples: Sequence[Example],
    evidence: Sequence[Evidence],
    plugins: Plugins,
) -> Iterable[str]:
    """Every example is exactly what the states table keeps for its problem, or for its origin."""
    _, entry = find_selector(run.recipe, arm.condition, plugins)
    known = {e.problem_id: e for e in evidence}
    for slot, example in enumerate(examples):
        if is_gold(entry) and example.origin == example.problem_id in known:
            continue  # held against what its selector chooses
        if fault := example_fault(example, known, entry.declared(SelectorTraits).responses):
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
    chosen = fill(selector, entry, make_pool(evidence), n, run.recipe.replay(arm.condition), arm)
    right = [to_example(e) for e in chosen]
    where, free = layout.selection(arm), is_gold(entry) or takes_others(entry)
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


def _is_gold(run: RunDirectory, arm: Arm, plugins: Plugins) -> bool:
    return is_gold(find_selector(run.recipe, arm.condition, plugins)[1])


def _budget(arm: Arm, expected: dict[str, Any], recorded: Mapping[str, Any]) -> Iterable[str]:
    for key, value in expected.items():
        if recorded.get(key) != value:
            yield (
                f"manifest.json: the budget of {arm.name} has {key} = {recorded.get(key)}, its "
                f"selection and its condition give {value}"
            )


def _matched(budgets: dict[Arm, Budget]) -> Iterable[str]:
    first: Arm | None = None
    for arm, found in budgets.items():
        first = first or arm
        for key in ("n", "repetitions", "exposures", "steps"):
            a, b = getattr(budgets[first], key), getattr(found, key)
            if a != b:
                yield f"matched arms {first.name} and {arm.name} differ in {key}: {a} and {b}"


def _tolerated(budgets: dict[Arm, Budget], run: RunDirectory) -> Iterable[str]:
    enforce_tokens(budgets, run.recipe.budget.token_tolerance)
    return ()


def _replay(examples: dict[Arm, list[Example]], replay: Mapping[Arm, int]) -> Iterable[str]:
    """The last g slots of a seed's matched arms are the same examples; of fewer, the first.

    But for their first success: it is one of the condition's own window of samples.
    """
    drawn = {
        arm: [replace(one, first_success=None) for one in of[len(of) - replay[arm] :]]
        for arm, of in examples.items()
    }
    most: dict[int, Arm] = {}
    for arm, of in drawn.items():
        if len(of) > len(drawn[most.setdefault(arm.seed, arm)]):
            most[arm.seed] = arm
    for arm, of in drawn.items():
        other = most[arm.seed]
        if of != drawn[other][: len(of)]:
            yield f"arms {other.name} and {arm.name} replay other examples ({len(of)} slots)"
