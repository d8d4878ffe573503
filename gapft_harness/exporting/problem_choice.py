"""Choose problems of the pool by their state and by their solve rate.

The solve rate of a problem is the share of its K samples that passed. The greedy response does not
count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import get_args

from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.records import State
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import ProblemState, read_states

STATES: tuple[State, ...] = get_args(State)


@dataclass(frozen=True, slots=True)
class SolveRateBand:
    """A range of solve rates; both bounds belong to it.

    The bounds are decimals, so that .2 is exactly one of five.
    """

    low: Decimal
    high: Decimal

    def contains(self, passing_samples: int, samples: int) -> bool:
        """Return whether this share of passing samples is in the band."""
        return self.low * samples <= passing_samples <= self.high * samples

    def __str__(self) -> str:
        """Return the form in which the option is written."""
        return f"{self.low}:{self.high}"


def parse_solve_rate_band(text: str) -> SolveRateBand:
    """Parse ``LOW:HIGH``, e.g. ``.2:.8``.

    Raises:
        UserError: the text is not two numbers from 0 to 1 in ascending order.
    """
    try:
        low, high = (Decimal(bound.strip()) for bound in text.split(":"))
        is_band = 0 <= low <= high <= 1
    except (ValueError, InvalidOperation):
        is_band = False
    if not is_band:
        raise UserError(
            f"--solve-rate {text}: expected LOW:HIGH, two numbers from 0 to 1 in ascending order, "
            "e.g. .2:.8"
        )
    return SolveRateBand(low, high)


@dataclass(frozen=True, slots=True)
class ProblemChoice:
    """The problems to export.

    Attributes:
        states: only problems in these states; empty: all.
        solve_rates: only problems whose solve rate is in this band; None: all.
    """

    states: Sequence[str] = ()
    solve_rates: SolveRateBand | None = None

    def includes(self, state: ProblemState) -> bool:
        """Return whether a problem is chosen."""
        if self.states and state.state not in self.states:
            return False
        band = self.solve_rates
        return band is None or band.contains(state.passing_samples, state.samples)


def compute_solve_rate(state: ProblemState) -> float:
    """Compute a problem's solve rate."""
    return state.passing_samples / state.samples


def count_chosen(run: RunDirectory, choice: ProblemChoice) -> Counter[str]:
    """Count the chosen problems of a run's pool by state.

    Raises:
        UserError: a state is unknown, no problem is chosen, the pool has no states yet, or the
            table was changed after it was sealed.
    """
    for item in choice.states:
        if item not in STATES:
            raise UserError(f"--states {item}: {did_you_mean(item, STATES)}")
    states = [*read_states(run.sealed(layout.states_path("pool")))]
    counts = Counter[str](state.state for state in states)
    candidates = [state for state in states if ProblemChoice(choice.states).includes(state)]
    if not candidates:
        numbers = ", ".join(f"{counts[state]} in {state}" for state in STATES)
        raise UserError(
            f"--states {','.join(choice.states or STATES)}: the pool of {run.path} has no problem "
            f"in these states; it has {numbers}"
        )
    chosen = [state for state in candidates if choice.includes(state)]
    if not chosen:
        rates = [compute_solve_rate(state) for state in candidates]
        raise UserError(
            f"--solve-rate {choice.solve_rates}: none of {len(candidates)} problems of {run.path} "
            f"has such a solve rate; their solve rates are from {min(rates):.3g} to "
            f"{max(rates):.3g}"
        )
    return Counter(state.state for state in chosen)


def describe_choice(choice: ProblemChoice) -> str:
    """Describe a band of solve rates in a card; an empty text without one."""
    band = choice.solve_rates
    if band is None:
        return ""
    return f"Only problems with a solve rate from {band.low} to {band.high}, bounds included. "
