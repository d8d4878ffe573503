"""Mixtures of evidence states and solve rates, and a twin of S that is as hard and solved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from gapft_harness.api import Evidence, Pool, RegisterSelector, Stream, UserError, hookimpl


def gapft_with_replay(pool: Pool, n: int, rng: Stream, share: float = 0.25) -> Sequence[Evidence]:
    """GapFT with a share of its slots given to solved problems; 0 is gapft, 1 is replay.

    Recovered failures and solved problems are each a prefix of one draw, so the sets of two shares
    differ in what one has more of.

    Args:
        pool: the pool.
        n: slots.
        rng: the arm's stream.
        share: of the slots, rounded to whole ones.

    Raises:
        UserError: ``share`` is not between 0 and 1.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise UserError(f"gapft_with_replay: share must be from 0 to 1, found {share!r}")
    solved = round(share * n)
    return [*pool.draw(pool.recovered, n - solved, rng), *pool.draw(pool.solved, solved, rng)]


def coverage_first(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Every recovered failure before any comes again; then again in the same order, until n.

    With n up to their number it is gapft; beyond it ``uniform_with_replacement`` is its twin.
    """
    found = list(pool.draw(pool.recovered, min(n, len(pool.recovered)), rng))
    if not found:
        return pool.draw(pool.recovered, n, rng)  # which says that there are none
    return [found[slot % len(found)] for slot in range(n)]


def solve_rate_twin(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """As many solved problems as GapFT has recovered failures, of the same solve rates.

    For each of GapFT's problems, in its order, a solved one that as many samples passed of; where
    there is none left, one of the nearest number, the lower of two. It tells what is due to the
    state from what is due to how often a problem is solved.
    """
    left: dict[int, list[Evidence]] = defaultdict(list)
    for evidence in reversed(pool.draw(pool.solved, len(pool.solved), rng)):
        left[evidence.passing_samples].append(evidence)
    found = []
    for evidence in pool.draw(pool.recovered, n, rng):
        rates = [rate for rate, there in left.items() if there]
        if not rates:
            return pool.draw(pool.solved, n, rng)  # which says that there are too few
        passing = evidence.passing_samples
        found.append(left[min(rates, key=lambda rate: (abs(rate - passing), rate))].pop())
    return found


def even_solve_rates(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Slots spread evenly over how many samples solved a problem, so that no class goes without.

    A constraint against losing coverage: every solve rate that search met, G and S together, has as
    many slots as any other while it has problems; the rarest solved come first. Whether it keeps
    Pass@k is what the experiment coverage_ledger tells.
    """
    drawn = pool.draw(pool.verified, len(pool.verified), rng)
    place: dict[int, int] = defaultdict(int)
    order: list[tuple[int, int, int]] = []
    for evidence in drawn:
        passing = evidence.passing_samples
        order.append((place[passing], passing, len(order)))
        place[passing] += 1
    if n > len(drawn):
        return pool.draw(pool.verified, n, rng)  # which says that there are too few
    return [drawn[at] for _, _, at in sorted(order)[:n]]


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Registers the four."""
    register("gapft_with_replay", gapft_with_replay)
    register("coverage_first", coverage_first, repeats=True)
    register("solve_rate_twin", solve_rate_twin)
    register("even_solve_rates", even_solve_rates)
