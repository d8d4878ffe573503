"""Halves A and B of an allocation comparison, read off two conditions' training sets.

``diffuse`` selects every problem of A and B once, ``concentrated`` every problem of A twice; both
hold the same replay of solved problems (Equation coverage_repetition). Exposures count selections:
a recipe's ``training.repetitions`` multiply both conditions' alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm, Example
from gapft_harness.experiments.allocation.settings import Allocation
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples


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


def read_halves(run: RunDirectory, allocation: Allocation, seed: int) -> Halves:
    """Reads one seed's halves from its sealed selections.

    Raises:
        UserError: the selections are not sealed, or are no such comparison.
    """
    arms = [Arm(name, seed) for name in (allocation.diffuse, allocation.concentrated)]
    chosen = [read_examples(run.sealed(layout.selection(arm))) for arm in arms]
    return find_halves(arms[0], chosen[0], arms[1], chosen[1])


def find_halves(
    diffuse: Arm,
    of_diffuse: Sequence[Example],
    concentrated: Arm,
    of_concentrated: Sequence[Example],
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
            raise UserError(
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
            raise UserError(
                f"{names}: select an example of problem {example.problem_id} {seen[0]} and "
                f"{seen[1]} times, expected 1 and 2 (half A) or 1 and 0 (half B); {fix}"
            )
        (a if seen == (1, 2) else b).append(example.problem_id)
    if len(a) != len(b) or not a:
        raise UserError(
            f"{names}: half A has {len(a)} problems and half B {len(b)}, expected as many of "
            f"each, and some; {fix}"
        )
    replay, other = (
        Counter(e for e in examples if e.state == "G") for examples in (of_diffuse, of_concentrated)
    )
    if replay != other:
        differing = sorted({e.problem_id for e in (*(replay - other), *(other - replay))})
        raise UserError(
            f"{names}: replay solved problems that differ in {len(differing)} (first: "
            f"{differing[0]}), expected the same examples in both; {fix}"
        )
    return Halves(tuple(a), tuple(b), replay.total())


def exposed_file(arm: Arm) -> str:
    """Where an arm's decisions on the halves stand in a run directory."""
    return layout.decisions(arm, "exposed")
