"""What the conditions of the control have in common, counted in their sealed training sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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
    """The conditions that are compared; None without GapFT or any that is matched to it."""
    gapft = [name for name, of in conditions.items() if of.selector == "gapft"]
    others = {name: of for name, of in conditions.items() if of.selector in _OTHERS}
    matched = [name for name, of in others.items() if of.selector == "matched_strata"]
    if not gapft or not matched:
        return None
    both = [name for name in matched if _draws_uniformly(others[name])]
    by = {name: tuple(of.params.get("by", ())) for name, of in others.items()}
    return Compared((gapft[0], *others), next(iter(both), None), by)


def _draws_uniformly(condition: Condition) -> bool:
    said = condition.params
    return {*said.get("states", "GS")} == {*"GS"} and said.get("responses", "kept") == "kept"


@dataclass(frozen=True, slots=True)
class Strata:
    """A training set's distinct problems by stratum, beside GapFT's of the same seed.

    Attributes:
        own: problems of each stratum.
        gapft: GapFT's.
    """

    own: Counter[str]
    gapft: Counter[str]

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


def read_matching(run_path: Path, of: Compared, arms: Sequence[Arm]) -> dict[Arm, Strata]:
    """The strata of the training sets of some arms that are compared, GapFT's left out."""
    labels = {
        problem.id: ", ".join(str(problem.document.get(field)) for field in of.fields) or "all"
        for problem, _ in read_problems(run_path / layout.problems("pool"))
    }

    def count(arm: Arm) -> Counter[str]:
        examples = read_examples(run_path / layout.selection(arm))
        return Counter(labels[name] for name in {e.problem_id for e in examples})

    seeds = {arm.seed for arm in arms if arm.condition == of.names[0]}
    gapft = {seed: count(Arm(of.names[0], seed)) for seed in seeds}
    return {
        arm: Strata(count(arm), gapft[arm.seed])
        for arm in arms
        if arm.condition in of.names[1:] and arm.seed in gapft
    }
