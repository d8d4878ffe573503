"""Cut responses: how many were cut, and the part of a Pass@1 change that comes from endings.

A response is cut at the token limit or at a stop string of the task, and complete if it ended at an
end token. Counts are exact, so the parts of a change add up to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import STOP_STRING


@dataclass(frozen=True, slots=True)
class Decodes:
    """The deployment decodes of one model on P problems.

    Attributes:
        passed: whether the response passed, shape (P,).
        endings: its ``finish_reason``, shape (P,).
        tokens: its length in tokens, shape (P,); None: unknown.
    """

    passed: NDArray[np.bool_]
    endings: NDArray[np.str_]
    tokens: NDArray[np.int64] | None = None

    def select(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Decodes:
        """Return the decodes of some problems, by a mask or by their positions."""
        tokens = None if self.tokens is None else self.tokens[chosen]
        return Decodes(self.passed[chosen], self.endings[chosen], tokens)


@dataclass(frozen=True, slots=True)
class EndingSummary:
    """How the decodes of one model ended, summed over its seeds.

    Attributes:
        n: responses.
        limit: responses cut at the token limit.
        stop_string: responses cut at a stop string.
        complete: responses that ended at an end token.
        complete_passed: the complete ones that passed.
        tokens: the tokens of all responses; None: unknown.
    """

    n: int
    limit: int
    stop_string: int
    complete: int
    complete_passed: int
    tokens: int | None

    def __add__(self, other: EndingSummary) -> EndingSummary:
        """Add the counts of another seed."""
        tokens = None if None in (self.tokens, other.tokens) else self.tokens + other.tokens  # type: ignore[operator]
        return EndingSummary(
            self.n + other.n,
            self.limit + other.limit,
            self.stop_string + other.stop_string,
            self.complete + other.complete,
            self.complete_passed + other.complete_passed,
            tokens,
        )

    @property
    def complete_accuracy(self) -> Fraction | None:
        """Pass@1 among complete responses; None without any."""
        return Fraction(self.complete_passed, self.complete) if self.complete else None

    @property
    def mean_tokens(self) -> Fraction | None:
        """Mean tokens of a response; None where they are unknown."""
        return None if self.tokens is None or not self.n else Fraction(self.tokens, self.n)


@dataclass(frozen=True, slots=True)
class EndingChanges:
    """Changes of decisions between two models, by what happened to the ending of the response.

    Attributes:
        n: compared pairs of decodes, summed over seeds.
        limit: gains where only the response before was cut at the token limit, minus losses where
            only the one after was.
        stop_string: gains where the response before was cut at a stop string and the one after is
            complete, minus losses in the reverse case.
        other: all other gains minus losses.
    """

    n: int
    limit: int
    stop_string: int
    other: int

    def __add__(self, other: EndingChanges) -> EndingChanges:
        """Add the counts of another seed."""
        return EndingChanges(
            self.n + other.n,
            self.limit + other.limit,
            self.stop_string + other.stop_string,
            self.other + other.other,
        )

    def share(self, count: int) -> Fraction:
        """Return a count as a part of the change in Pass@1."""
        return Fraction(count, self.n) if self.n else Fraction(0)


def summarize_endings(decodes: Decodes) -> EndingSummary:
    """Count how decodes ended."""
    complete = decodes.endings == "stop"
    return EndingSummary(
        n=decodes.passed.size,
        limit=int((decodes.endings == "length").sum()),
        stop_string=int((decodes.endings == STOP_STRING).sum()),
        complete=int(complete.sum()),
        complete_passed=int((complete & decodes.passed).sum()),
        tokens=None if decodes.tokens is None else int(decodes.tokens.sum()),
    )


def compare_endings(before: Decodes, after: Decodes) -> EndingChanges:
    """Divide the gains and losses of a model by the change of the response's ending.

    A response with an unknown ending, or that was not generated, counts under ``other``.

    Args:
        before: the decodes of the source.
        after: the decodes of the trained model on the same problems, in the same order.
    """
    gained, lost = ~before.passed & after.passed, before.passed & ~after.passed

    def count(cut_ending: str, *whole_endings: str) -> int:
        gains = gained & (before.endings == cut_ending) & np.isin(after.endings, whole_endings)
        losses = lost & np.isin(before.endings, whole_endings) & (after.endings == cut_ending)
        return int(gains.sum()) - int(losses.sum())

    limit, stop_string = count("length", "stop", STOP_STRING), count(STOP_STRING, "stop")
    total = int(gained.sum()) - int(lost.sum())
    return EndingChanges(gained.size, limit, stop_string, total - limit - stop_string)
