"""The paper's selections by evidence state (Section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.api import Evidence, Pool, Register, Stream, hookimpl


def gapft(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Select verified responses of failures that the search recovered (S only): GapFT itself."""
    return pool.draw(pool.recovered, n, rng)


def uniform(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Select verified responses regardless of state, without replacement (Uniform RFT; G and S)."""
    return pool.draw(pool.verified, n, rng)


def uniform_with_replacement(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Select as Uniform RFT with replacement (G and S): problems may repeat (Appendix B)."""
    return draw_with_replacement(pool.verified, n, rng)


def draw_with_replacement(candidates: Sequence[Evidence], n: int, rng: Stream) -> list[Evidence]:
    """Draw n times, each time uniformly from all candidates.

    A draw of n is a prefix of a draw of n + 1, for any order of the candidates.

    Raises:
        PoolTooSmallError: there are no candidates.
    """
    if not candidates:
        return Pool.draw(candidates, n, rng)  # raises
    ordered = sorted(candidates, key=lambda e: e.problem_id)
    slot_stream = rng.child("with replacement")  # with 64-bit keys the remainder is nearly uniform
    return [ordered[slot_stream.key(str(slot)) % len(ordered)] for slot in range(n)]


def replay(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Select the source's own greedy successes (solved replay, G only): the condition K = 0."""
    return pool.draw(pool.solved, n, rng)


def all_verified(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Select every verified problem (RFT, G and S): a reference with a larger budget."""
    return pool.draw(pool.verified, n, rng)


@hookimpl
def register_selectors(register: Register) -> None:
    """Register the selectors of this file."""
    register("gapft", gapft)
    register("uniform", uniform)
    register("uniform_with_replacement", uniform_with_replacement, repeats=True)
    register("replay", replay)
    register("all_verified", all_verified, budget="own")
