"""A training set that is taken from another run, in place of one that a selector chooses.

It is taken as it is: its examples in their order, replay among them. Each must be a verified
response of the run that it is taken from, to a problem that this run's pool has too, with the same
prompt, gold and prompt ids. So no audit problem comes in by it, and its ids mean the same here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.identities import canonical
from gapft_harness.core.records import Arm, Evidence, Example
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registered import SelectorTraits
from gapft_harness.recipe.conditions import named
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples, read_problems
from gapft_harness.stages.integrity.sources import (
    check_task,
    open_source,
    sealed_set,
    taken_arm,
)
from gapft_harness.stages.selection.choosing import (
    Pools,
    Selected,
    to_example,
)


class Taking:
    """Takes the training sets of a run's arms from the runs that their conditions name.

    Args:
        run: the run that takes them; its pool is searched.
    """

    def __init__(self, run: RunDirectory, plugins: Plugins) -> None:
        self._run, self._plugins = run, plugins
        self._pools: dict[Path, Pools] = {}  # of one run many arms take

    def take(self, arm: Arm, source: RunDirectory | None = None) -> Selected:
        """An arm's set, as it is there.

        Args:
            source: the run to take it from; None: the one that the recipe says.

        Raises:
            UserError: there is no such set, or it would mean something else in this run.
        """
        condition = self._run.recipe.conditions[arm.condition]
        source = source or open_source(self._run, arm.condition)
        file = sealed_set(source, arm, condition)
        check_task(self._run, arm.condition, source)
        examples = read_examples(file)
        ids = {name for example in examples for name in (example.problem_id, example.origin)}
        _check_problems(self._run, arm, source, ids)
        of = taken_arm(arm, condition)
        known = self.known(source, of.condition)
        for slot, example in enumerate(examples):
            if fault := example_fault(example, known):
                raise UserError(
                    f"key {f'conditions.{arm.condition}'!r}: {file}, slot {slot}, problem "
                    f"{example.problem_id}: {fault}. Only verified responses can be taken"
                )
        said = source.manifest()["budgets"].get(of.name, {})
        return Selected(
            examples,
            self._matched(source, of, said),
            said.get("ends_unknown", 0),
            {
                "run": str(source.path.resolve()),
                "arm": of.name,
                "sha256": sha256(file),
                **_chosen_by(source, of),
            },
        )

    def known(self, source: RunDirectory, condition: str) -> dict[str, Evidence]:
        """The evidence of a run's pool by problem, as a condition of that run sees it.

        Args:
            condition: its condition, which may have a K of its own; one that its recipe has no
                more saw all samples.
        """
        if source.path not in self._pools:
            self._pools = {source.path: Pools(source)}
        named = condition if condition in source.recipe.conditions else None
        return {of.problem_id: of for of in self._pools[source.path].evidence(named)}

    def _matched(self, source: RunDirectory, arm: Arm, said: Mapping[str, Any]) -> bool:
        """By what its selector declares; where that is not loaded, by what the other run says."""
        condition = source.recipe.conditions.get(arm.condition)
        if condition is None or not self._plugins.has("selector", condition.selector):
            return bool(said.get("matched", True))
        selector = self._plugins.get("selector", condition.selector)
        return not selector.declared(SelectorTraits).own_budget


def check_slots(arm: Arm, selected: Selected, run: RunDirectory, n: int) -> None:
    """Holds a set that was taken to the slots of its comparison group.

    Raises:
        UserError: it has another number, or one was said of a reference with its own budget.
    """
    name, size, taken = arm.condition, len(selected.examples), selected.taken or {}
    if not selected.matched and run.recipe.conditions[name].n is not None:
        raise UserError(
            f"key {f'conditions.{name}.n'!r}: the set that is taken is a reference's, with a "
            "budget of its own; leave n out"
        )
    replay = taken.get("replay", run.recipe.budget.replay)
    if selected.matched and size != n + replay:
        fits = size - replay
        kept = f" and {replay} of replay" if replay else ""
        raise UserError(
            f"key {f'conditions.{name}.run'!r}: the set taken for {arm.name} has {size} examples, "
            f"and its group has {n} slots{kept}; set conditions.{name}.n={fits}, a group of its "
            f"own, or budget.n={fits}"
        )


def _chosen_by(source: RunDirectory, arm: Arm) -> dict[str, Any]:
    """Return the K and the replay that a run chose an arm's set by.

    Of a condition that its recipe has no more, what selection recorded says its own.
    """
    said = source.manifest()["budgets"].get(arm.name, {}).get("condition") or {}
    by = source.recipe.conditions.get(arm.condition) or named(arm.condition, said)
    return {"k": by.k or source.recipe.search.k, "replay": source.recipe.budget.replay}


def example_fault(
    example: Example, known: Mapping[str, Evidence], responses: str = "borrowed"
) -> str:
    """What keeps an example from being a verified response to a problem, or ``""``.

    Args:
        responses: as ``SelectorTraits.responses`` says: those it may be of.
    """
    right = known.get(example.problem_id)
    if right is None:
        return "is no problem of the pool"
    index = example.response_index
    if example.origin != example.problem_id:
        lent = f"has the response of problem {example.origin}"
        if responses != "borrowed":
            return f"{lent}, and its selector is not registered with responses='borrowed'"
        lender = known.get(example.origin)
        if lender is None or lender.response is None:
            return f"{lent}, of which none passed"
        right = replace(right, response=with_response(lender, index).response)
    elif responses != "kept":
        right = with_response(right, index)
    if right.response is None:
        return "search missed it, so no response of it passed"
    if example == to_example(right):
        return ""
    differing = differing_keys(example, to_example(right))
    return f"is not the evidence that the states table keeps; differing: {differing}"


def differing_keys(one: Example, other: Example) -> str:
    """The columns in which two examples differ."""
    return ", ".join(
        key for key in one.__dataclass_fields__ if getattr(one, key) != getattr(other, key)
    )


def with_response(evidence: Evidence, index: int) -> Evidence:
    """A problem with its verified response of an index; with the kept one if that did not pass."""
    if evidence.response and evidence.response.index == index:
        return evidence
    verified = (of for of in evidence.each_verified() if of.response and of.response.index == index)
    return next(verified, evidence)


def _check_problems(run: RunDirectory, arm: Arm, source: RunDirectory, ids: set[str]) -> None:
    here, there = (_known(of.path, ids) for of in (run, source))
    lines = []
    for name in sorted(ids):
        if name not in here:
            lines.append(f"{name} is not in this run's pool")
        elif here[name] != there.get(name):
            same = there.get(name, ("", ()))[0] == here[name][0]
            lines.append(f"{name} has other {'prompt tokens' if same else 'prompt or gold'} here")
    if lines:
        raise UserError(
            f"key {f'conditions.{arm.condition}.run'!r}: {len(lines)} of the {len(ids)} problems "
            f"of {taken_arm(arm, run.recipe.conditions[arm.condition]).name} in {source.path} are "
            f"others here; first: {lines[0]}. Search a pool that holds them (data.pool_limit, the "
            "task's data), with prompts rendered alike (model.chat_template, "
            "model.system_instruction)"
        )


def _known(path: Path, ids: set[str]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Of some problems of a pool what makes them the same: prompt and gold, and prompt ids."""
    return {
        problem.id: (
            hashlib.sha256(canonical([problem.prompt, problem.gold]).encode()).hexdigest(),
            prompt_ids,
        )
        for problem, prompt_ids in read_problems(path / layout.problems("pool"))
        if problem.id in ids
    }
