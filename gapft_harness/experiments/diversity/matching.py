"""What the conditions of the control have in common, counted in their sealed training sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.recipe.conditions import Condition
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.tables import read_examples, read_problems

#: The selectors whose conditions are compared, but for GapFT itself.
_OTHERS = ("matched_strata", "repeated")
#: By how many problems a stratum may differ (Table 6).
_TOLERANCE = 1


@dataclass(frozen=True, slots=True)
class Compared:
    """Conditions that are compared.

    Attributes:
        names: GapFT first, then in the recipe's order.
        uniform: the one that draws from both states, if there is one.
        by: of each but GapFT the fields that make a stratum.
    """

    names: Sequence[str]
    uniform: str | None
    by: Mapping[str, Sequence[str]]

    @property
    def fields(self) -> Sequence[str]:
        """The fields that make a stratum of all of them."""
        return next(iter(self.by.values()))


def compared(conditions: Mapping[str, Condition]) -> Compared | None:
    """The conditions that are compared; None without GapFT or any that is matched to it.

    Raises:
        UserError: a parameter that says what is matched cannot say it; the message names its key.
    """
    gapft = [name for name, of in conditions.items() if of.selector == "gapft"]
    others = {name: of for name, of in conditions.items() if of.selector in _OTHERS}
    matched = [name for name, of in others.items() if of.selector == "matched_strata"]
    if not gapft or not matched:
        return None
    both = [name for name in matched if _draws_uniformly(name, others[name])]
    by = {name: _fields(name, of) for name, of in others.items()}
    return Compared((gapft[0], *others), next(iter(both), None), by)


def _fields(name: str, condition: Condition) -> tuple[str, ...]:
    by = condition.params.get("by", ())
    if not isinstance(by, list | tuple) or not all(isinstance(field, str) for field in by):
        raise UserError(
            f"key 'conditions.{name}.params.by': is {by!r}, expected a list of a record's fields, "
            "such as [subject, level]"
        )
    return tuple(by)


def _draws_uniformly(name: str, condition: Condition) -> bool:
    said = condition.params
    states = said.get("states", "GS")
    if not isinstance(states, str):
        raise UserError(
            f"key 'conditions.{name}.params.states': is {states!r}, expected 'G', 'S' or 'GS'"
        )
    return {*states} == {*"GS"} and said.get("responses", "kept") == "kept"


@dataclass(frozen=True, slots=True)
class Strata:
    """A training set's distinct problems by stratum, beside GapFT's of the same seed.

    Attributes:
        own: problems of each stratum.
        gapft: GapFT's.
        others: its problems that are not among GapFT's.
    """

    own: Counter[str]
    gapft: Counter[str]
    others: int = 0

    @property
    def problems(self) -> int:
        """Its distinct problems."""
        return self.own.total()

    def apart(self, stratum: str) -> float:
        """By how many problems a stratum differs from its share of GapFT's."""
        return abs(self.own[stratum] - self.gapft[stratum] * self.problems / self.gapft.total())

    @property
    def most_apart(self) -> float:
        """The same in the stratum in which it is most."""
        return max(self.apart(stratum) for stratum in self.own | self.gapft)

    def faults(self, who: str) -> Iterator[str]:
        """Sentences on strata that differ by more than they may."""
        for stratum in sorted(self.own | self.gapft):
            if self.apart(stratum) > _TOLERANCE:
                yield (
                    f"the {self.problems} problems of {who} have {self.own[stratum]} of the "
                    f"stratum {stratum}, and GapFT's {self.gapft.total()} have "
                    f"{self.gapft[stratum]}; expected as large a share, to one problem"
                )


@dataclass(frozen=True, slots=True)
class Matching:
    """What is compared, and how it is matched.

    Attributes:
        of: the conditions.
        strata: of every training set but GapFT's, its problems by stratum.
        tokens_apart: by how much the supervised tokens of one seed's sets differ at most, as a
            share of the larger.
        tolerance: by how much the recipe lets them.
    """

    of: Compared
    strata: Mapping[Arm, Strata]
    tokens_apart: float = 0.0
    tolerance: float = 0.0

    def most_apart(self, condition: str) -> float:
        """By how many problems a stratum differs from its share of GapFT's at most, any seed."""
        return max((strata.most_apart for strata in self._sets(condition)), default=0.0)

    def others(self, condition: str) -> int:
        """How many of its problems are not among GapFT's at most, any seed."""
        return max((strata.others for strata in self._sets(condition)), default=0)

    def _sets(self, condition: str) -> list[Strata]:
        return [strata for arm, strata in self.strata.items() if arm.condition == condition]


def read_matching(run_path: Path, of: Compared, arms: Sequence[Arm]) -> dict[Arm, Strata]:
    """The strata of the training sets of some arms that are compared, GapFT's left out."""
    labels = {
        problem.id: ", ".join(str(problem.document.get(field)) for field in of.fields) or "all"
        for problem, _ in read_problems(run_path / layout.problems("pool"))
    }

    def problems(arm: Arm) -> set[str]:
        return {e.problem_id for e in read_examples(run_path / layout.selection(arm))}

    def strata(own: set[str], gapft: set[str]) -> Strata:
        counts = [Counter(labels[name] for name in names) for names in (own, gapft)]
        return Strata(counts[0], counts[1], len(own - gapft))

    seeds = {arm.seed for arm in arms if arm.condition == of.names[0]}
    gapft = {seed: problems(Arm(of.names[0], seed)) for seed in seeds}
    return {
        arm: strata(problems(arm), gapft[arm.seed])
        for arm in arms
        if arm.condition in of.names[1:] and arm.seed in gapft
    }
