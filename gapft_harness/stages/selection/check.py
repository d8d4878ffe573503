"""What ``gapft verify`` checks of selections: examples, order, budgets, replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from gapft_harness.core.records import Arm, Budget, Evidence, Example
from gapft_harness.hooks.manager import Plugins
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_evidence, read_examples
from gapft_harness.stages.differences import Findings, unequal
from gapft_harness.stages.generation.generation import decoding_from
from gapft_harness.stages.selection.budgets import enforce_tokens
from gapft_harness.stages.selection.stage import (
    arms,
    fill,
    has_own_budget,
    make_pool,
    slots_of,
    to_example,
)
from gapft_harness.training.plan import budget


def check_selections(
    run: RunDirectory, manifest: dict[str, Any], plugins: Plugins, found: Findings
) -> dict[Arm, list[Example]]:
    """Every arm's examples and budget, computed again; then what arms must have in common.

    Returns:
        The examples of the arms whose selection can be read.
    """
    folder = layout.SELECTIONS
    there = sorted((run.path / folder).glob("*.parquet"))
    if "n" not in manifest and not there:
        found.missing.append("nothing is selected")
        return {}
    evidence = found.attempt("pool", lambda: _read_pool(run, manifest))
    if evidence is None:
        return {}
    n = slots_of(run.recipe, make_pool(evidence))
    found.gather(
        "n", lambda: unequal("manifest.json", manifest, {"n": n}, "the recipe and the pool give")
    )
    if not n:
        found.differences += [f"{folder}/{f.name}: there is nothing to select" for f in there]
        found.checked.append("search recovered nothing, so there is nothing to train on")
        return {}
    examples = _examples(run, plugins, evidence, n, found)
    _check_budgets(run, manifest, plugins, examples, found)
    gold = [arm.name for arm in examples if _is_gold(arm, plugins)]
    found.checked.append(
        f"{len(examples)} selections hold the evidence that their conditions choose, each a "
        "response that passed" + (f", but in {', '.join(gold)} (gold=True)" if gold else "")
    )
    named = {run.path / layout.selection(arm) for arm in arms(run.recipe)}
    if others := [file.stem for file in there if file not in named]:
        found.checked.append(
            f"no arms of the recipe any more, so only their files' hashes were compared: "
            f"{', '.join(others)}"
        )
    return examples


def _read_pool(run: RunDirectory, manifest: dict[str, Any]) -> list[Evidence]:
    limit = decoding_from(manifest["task"]).max_gen_toks
    return read_evidence(run.path, "pool", run.recipe.evidence.context, limit)


def _examples(
    run: RunDirectory, plugins: Plugins, evidence: Sequence[Evidence], n: int, found: Findings
) -> dict[Arm, list[Example]]:
    examples: dict[Arm, list[Example]] = {}
    for arm in arms(run.recipe):
        relative = layout.selection(arm)
        read = found.attempt(relative, partial(read_examples, run.path / relative))
        if read is not None:
            examples[arm] = read
            found.gather(relative, partial(_evidence, arm, read, evidence, plugins))
            found.gather(relative, partial(_chosen_again, run, arm, read, evidence, plugins, n))
    return examples


def _check_budgets(
    run: RunDirectory,
    manifest: dict[str, Any],
    plugins: Plugins,
    examples: dict[Arm, list[Example]],
    found: Findings,
) -> None:
    """Counts every arm's budget, and compares those that must match."""
    matched: dict[Arm, Budget] = {}
    for arm, chosen in examples.items():
        what = f"budget of {arm.name}"
        counted = found.attempt(what, partial(budget, chosen, run.recipe.training))
        if counted is None:
            continue
        own = has_own_budget(plugins.get("selector", arm.condition))
        recorded = manifest["budgets"].get(arm.name, {})
        found.gather(what, partial(_budget, arm, counted, own, recorded))
        if not own:
            matched[arm] = counted
    found.gather("budgets", lambda: _matched(matched))
    found.gather("supervised tokens", lambda: _tolerated(matched, run))
    found.gather(
        "replay", lambda: _replay({arm: examples[arm] for arm in matched}, run.recipe.budget.replay)
    )
    if matched:
        first = next(iter(matched.values()))
        found.checked.append(
            f"{len(matched)} matched arms have n = {first.n}, N = {first.exposures}, "
            f"J = {first.steps}"
        )


def _evidence(
    arm: Arm, examples: Sequence[Example], evidence: Sequence[Evidence], plugins: Plugins
) -> Iterable[str]:
    """Every example is exactly what the states table keeps for its problem."""
    known = {e.problem_id: e for e in evidence}
    gold = _is_gold(arm, plugins)
    for slot, example in enumerate(examples):
        who = f"{layout.selection(arm)}: slot {slot}, problem {example.problem_id}"
        kept = known.get(example.problem_id)
        if kept is None:
            yield f"{who}: is no problem of the pool"
        elif gold:
            continue  # held against what its selector chooses
        elif kept.response is None:
            yield f"{who}: search missed it, so no response of it passed"
        elif example != (right := to_example(kept)):
            yield (
                f"{who}: is not the evidence that the states table keeps; differing: "
                f"{_differing(example, right)}"
            )


def _chosen_again(
    run: RunDirectory,
    arm: Arm,
    examples: Sequence[Example],
    evidence: Sequence[Evidence],
    plugins: Plugins,
    n: int,
) -> Iterable[str]:
    """The condition's selector, run again, chooses the same examples in the same order."""
    selector, entry = plugins.selector(arm.condition)
    chosen = fill(selector, entry, make_pool(evidence), n, run.recipe.budget.replay, arm)
    right = [to_example(e) for e in chosen]
    where, gold = layout.selection(arm), _is_gold(arm, plugins)
    if len(right) != len(examples):
        yield f"{where}: holds {len(examples)} examples, its selector chooses {len(right)}"
        return
    for slot, (one, other) in enumerate(zip(examples, right, strict=True)):
        if one.problem_id != other.problem_id:
            yield (
                f"{where}: slot {slot} holds problem {one.problem_id}, its selector chooses "
                f"{other.problem_id}"
            )
        elif gold and one != other:  # of other arms ``_evidence`` says it
            yield (
                f"{where}: slot {slot}, problem {one.problem_id}: is not the example that its "
                f"selector chooses; differing: {_differing(one, other)}"
            )


def _is_gold(arm: Arm, plugins: Plugins) -> bool:
    return bool(plugins.get("selector", arm.condition).options.get("gold", False))


def _differing(one: Example, other: Example) -> str:
    a, b = asdict(one), asdict(other)
    return ", ".join(key for key in a if a[key] != b[key])


def _budget(arm: Arm, counted: Budget, own: bool, recorded: dict[str, Any]) -> Iterable[str]:
    expected = {**asdict(counted), "matched": not own}
    for key, value in expected.items():
        if recorded.get(key) != value:
            yield (
                f"manifest.json: the budget of {arm.name} has {key} = {recorded.get(key)}, its "
                f"selection gives {value}"
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


def _replay(examples: dict[Arm, list[Example]], replay: int) -> Iterable[str]:
    """The last g slots of a seed's matched arms are the same examples."""
    first: dict[int, Arm] = {}
    for arm, chosen in examples.items():
        other = first.setdefault(arm.seed, arm)
        if replay and chosen[-replay:] != examples[other][-replay:]:
            yield f"arms {other.name} and {arm.name} replay other examples ({replay} slots)"
