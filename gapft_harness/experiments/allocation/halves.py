"""Halves A and B of two conditions' training sets, and the decisions on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from gapft_harness import api
from gapft_harness.api import layout


class Allocation(api.RecipeSection):
    """What a recipe says of the comparison."""

    diffuse: str = Field(description="condition that sees the halves A and B once each")
    concentrated: str = Field(description="condition that sees half A twice")


def compared(recipe: api.Recipe) -> Allocation | None:
    """What a checked recipe says; None if it compares no allocations."""
    said = recipe.experiments.get("allocation")
    return None if said is None else Allocation.model_validate(said)


@dataclass(frozen=True, slots=True)
class Halves:
    """What two conditions of one seed trained on.

    Attributes:
        a: ids of the shared half, ascending: selected once by diffuse, twice by concentrated.
        b: ids of the new half, ascending, as many: once by diffuse, never by concentrated.
        replay: slots of solved problems, the same examples in both.
    """

    a: tuple[str, ...]
    b: tuple[str, ...]
    replay: int

    @property
    def problems(self) -> tuple[str, ...]:
        """A and B together, ascending."""
        return tuple(sorted(self.a + self.b))


def read_halves(run: api.RunDirectory, allocation: Allocation, seed: int) -> Halves:
    """Reads one seed's halves from its sealed selections.

    Raises:
        UserError: the selections are not sealed, or are no such comparison.
    """
    arms = [api.Arm(name, seed) for name in (allocation.diffuse, allocation.concentrated)]
    chosen = [api.read_examples(run.sealed(layout.selection(arm))) for arm in arms]
    return find_halves(arms[0], chosen[0], arms[1], chosen[1])


def find_halves(
    diffuse: api.Arm,
    of_diffuse: Sequence[api.Example],
    concentrated: api.Arm,
    of_concentrated: Sequence[api.Example],
) -> Halves:
    """Tells A from B by how often each condition selected the same example.

    Raises:
        UserError: an example seen another number of times, halves of different size, replay that
            differs, or training on missed problems; the message names the arms.
    """
    names = f"arms {diffuse.name} and {concentrated.name}"
    fix = "the key experiments.allocation needs two conditions of that kind, or must be left out"
    for arm, examples in ((diffuse, of_diffuse), (concentrated, of_concentrated)):
        missed = sorted(e.problem_id for e in examples if e.state == "U")
        if missed:
            raise api.UserError(
                f"arm {arm.name}: {len(missed)} examples are of problems that search missed "
                f"(first: {missed[0]}), expected recovered and solved ones only; {fix}"
            )
    once, twice = (
        Counter(e for e in examples if e.state == "S") for examples in (of_diffuse, of_concentrated)
    )
    a: list[str] = []
    b: list[str] = []
    for example in sorted({*once, *twice}, key=lambda e: (e.problem_id, e.response_ids)):
        seen = (once[example], twice[example])
        if seen not in ((1, 2), (1, 0)):
            raise api.UserError(
                f"{names}: select an example of problem {example.problem_id} {seen[0]} and "
                f"{seen[1]} times, expected 1 and 2 (half A) or 1 and 0 (half B); {fix}"
            )
        (a if seen == (1, 2) else b).append(example.problem_id)
    if len(a) != len(b) or not a:
        raise api.UserError(
            f"{names}: half A has {len(a)} problems and half B {len(b)}, expected as many of "
            f"each, and some; {fix}"
        )
    replay, other = (
        Counter(e for e in examples if e.state == "G") for examples in (of_diffuse, of_concentrated)
    )
    if replay != other:
        differing = sorted({e.problem_id for e in (*(replay - other), *(other - replay))})
        raise api.UserError(
            f"{names}: replay solved problems that differ in {len(differing)} (first: "
            f"{differing[0]}), expected the same examples in both; {fix}"
        )
    return Halves(tuple(a), tuple(b), replay.total())


def exposed_file(arm: api.Arm) -> str:
    """Where an arm's decisions on the halves stand in a run directory."""
    return layout.decisions(arm, "exposed")


def exposed_arm(
    run_path: str,
    condition: str,
    seed: int,
    plugin_files: Sequence[str] = (),
    progress: api.ReportProgress = lambda done, total: None,
) -> dict[str, Any]:
    """Decodes halves A and B greedily with one arm's adapter, and verifies the answers.

    Returns:
        Facts for the manifest: ``verdicts`` and ``finish_reasons`` by count.

    Raises:
        UserError: the recipe compares no allocations, or the selections are no such comparison.
    """
    run, arm = api.RunDirectory.open(run_path), api.Arm(condition, seed)
    allocation = compared(run.recipe)
    if allocation is None or condition not in (allocation.diffuse, allocation.concentrated):
        raise api.UserError(
            f"{run.path}: condition {condition!r} is no part of an allocation comparison; its "
            f"recipe says experiments.allocation: {allocation and allocation.model_dump()}"
        )

    def halves() -> tuple[str, ...]:
        return read_halves(run, allocation, seed).problems

    file, purpose = exposed_file(arm), f"exposed/{arm.name}"
    return api.decode_split(run, arm, "pool", file, purpose, plugin_files, progress, only=halves)


def stale_exposed(run: api.RunDirectory, arms: Sequence[api.Arm]) -> list[str]:
    """Files of decisions on other halves than the arms have now: they were compared otherwise."""
    allocation, stale = compared(run.recipe), []
    for arm in arms if allocation else ():
        path = run.path / exposed_file(arm)
        assert allocation is not None
        if path.exists():
            wanted = sorted(read_halves(run, allocation, arm.seed).problems)
            if api.read_columns(path, ("problem_id",))["problem_id"] != wanted:
                stale.append(exposed_file(arm))
    return stale
