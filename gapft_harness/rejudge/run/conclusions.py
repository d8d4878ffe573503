"""What becomes of a run's conclusions under another rule, without training again.

For the adapters as they were trained a contrast under the new rule is known exactly. Two bounds go
further: over all rules that agree where the two rules do, and over all that training on the new
sets may come to.

The first: each (problem, text) on which the two rules differ adds ``c / (seeds × problems)`` to the
contrast or nothing, on top of what all agree on, where ``c`` is how many of the first condition's
seeds wrote that text less how many of the second's (the source's response counts once a seed). No
rule ties one text to another, so the least passes just those with ``c < 0`` and the most just those
with ``c > 0``: both are attained. The second: an adapter is a function of its set and seed, so the
Pass@1 of a set that an arm of the seed was trained on is known, and any other may be 0 to 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.rejudge.run.sets import Sets
from gapft_harness.report.findings.whole import Contrast, Findings
from gapft_harness.report.reading.inputs import ReportInputs

#: Texts, whether each passed and whether each passes, and for how many seeds they stand.
_Decodes = tuple[Sequence[str], NDArray[np.bool_], NDArray[np.bool_], int]

#: The least and the most that a difference of Pass@1 may be.
Range = tuple[Fraction, Fraction]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """One contrast of the report.

    Attributes:
        was: under the run's rule.
        now: under the new one, of the adapters as they were trained.
        agreeing: over all rules that judge as the two do wherever they agree.
        retrained: under the new rule, over all that adapters of the new training sets may decide;
            None where no sets are chosen.
    """

    was: Contrast
    now: Contrast
    agreeing: Range
    retrained: Range | None

    @property
    def verdict(self) -> str:
        """What becomes of it, for the adapters as they were trained."""
        before, after = sign(self.was), sign(self.now)
        if before == after:
            return "stays open" if before == 0 else "holds"
        if before and after:
            return "turns round"
        return "no longer resolved" if before else "resolved now"

    @property
    def turned(self) -> bool:
        """Whether the difference itself has the other sign, resolved or not."""
        return self.was.delta * self.now.delta < 0


def sign(of: Contrast) -> int:
    """1 or -1 where the interval excludes zero, else 0."""
    if not of.interval.excludes_zero:
        return 0
    return 1 if of.interval.low > 0 else -1


def conclusions(
    inputs: tuple[ReportInputs, ReportInputs], findings: tuple[Findings, Findings], sets: Sets
) -> Iterator[Conclusion]:
    """Every contrast of a report, in its order."""
    before, after = findings
    for was in before.contrasts:
        now = after.contrast(was.a, was.b)
        again = retrained(inputs[1], sets, was.a, was.b) if sets.arms else None
        yield Conclusion(was, now, agreeing(*inputs, was.a, was.b), again)


def agreeing(was: ReportInputs, now: ReportInputs, a: str, b: str) -> Range:
    """The least and the most of a contrast under any rule that agrees where both rules do.

    Such a rule may say either of a response that flips, and says the same of equal responses to
    one problem. So each (problem, text) that flips adds its coefficient, the number of a's seeds
    that wrote it less the number of b's, or nothing.
    """
    seeds, problems = len(now.seeds), len(now.audit.ids)
    agreed, free = 0, Counter[tuple[int, str]]()
    for name, weight in ((a, 1), (b, -1)):
        for texts, before, after, times in _decodes(was, now, name):
            agreed += weight * times * int((before & after).sum())
            for problem in np.flatnonzero(before != after).tolist():
                free[problem, texts[problem]] += weight * times
    least = agreed + sum(min(0, coefficient) for coefficient in free.values())
    most = agreed + sum(max(0, coefficient) for coefficient in free.values())
    return Fraction(least, seeds * problems), Fraction(most, seeds * problems)


def _decodes(was: ReportInputs, now: ReportInputs, name: str) -> Iterator[_Decodes]:
    """Of each seed the texts, whether they passed and pass; the source's count for all seeds."""
    if name == SOURCE:
        before, after = was.audit.verdicts.greedy, now.audit.verdicts.greedy
        yield now.audit.greedy_texts, before, after, len(now.seeds)
        return
    for earlier, later in zip(was.of(name), now.of(name), strict=True):
        yield later.texts, earlier.passed, later.passed, 1


def retrained(now: ReportInputs, sets: Sets, a: str, b: str) -> Range:
    """The least and the most of a contrast if every arm were trained on its new set.

    An arm whose new set an arm of its seed was trained on would be that arm's adapter, whose
    decisions are known. The Pass@1 of any other may be anything from 0 to 1. Two arms with one new
    set differ by nothing.
    """
    known = {
        sets.arms[of.arm].trained_on[0]: Fraction(int(of.passed.sum()), len(of.passed))
        for of in now.arms
    }
    least = most = Fraction(0)
    source = Fraction(int(now.audit.verdicts.greedy.sum()), len(now.audit.ids))
    for seed in now.seeds:
        one = sets.arms[Arm(a, seed)].trained_on[1]
        of_a, of_b = _possible(known, one), (source, source)
        if b != SOURCE:
            other = sets.arms[Arm(b, seed)].trained_on[1]
            if one == other:
                continue
            of_b = _possible(known, other)
        least += of_a[0] - of_b[1]
        most += of_a[1] - of_b[0]
    return least / len(now.seeds), most / len(now.seeds)


def _possible(known: Mapping[Hashable, Fraction], trained_on: Hashable) -> Range:
    value = known.get(trained_on)
    return (Fraction(0), Fraction(1)) if value is None else (value, value)
