"""The paper's selections by evidence state (Section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.api import Evidence, Pool, RegisterSelector, Stream, hookimpl


def gapft(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Verified responses of failures that search recovered (S only): the method itself."""
    return pool.draw(pool.recovered, n, rng)


def uniform(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Uniform RFT: verified responses regardless of state, without replacement (G and S)."""
    return pool.draw(pool.verified, n, rng)


def uniform_with_replacement(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Uniform RFT with replacement (G and S): a problem may fill several slots (Appendix B)."""
    return with_replacement(pool.verified, n, rng)


def with_replacement(candidates: Sequence[Evidence], n: int, rng: Stream) -> list[Evidence]:
    """Draws n times one of candidates, each time uniformly from all of them.

    A draw of n is a prefix of a draw of n + 1, whatever order the candidates are in.

    Raises:
        PoolTooSmallError: there are no candidates.
    """
    if not candidates:
        return Pool.draw(candidates, n, rng)  # which says so
    ordered = sorted(candidates, key=lambda e: e.problem_id)
    again = rng.child("with replacement")  # keys have 64 bits: the remainder is as good as even
    return [ordered[again.key(str(slot)) % len(ordered)] for slot in range(n)]


def replay(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Solved replay: the source's own greedy successes (G only), the condition K = 0."""
    return pool.draw(pool.solved, n, rng)


def all_verified(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """RFT on every verified problem (G and S): a reference with a larger budget."""
    return pool.draw(pool.verified, n, rng)


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Registers the selectors of this file."""
    register("gapft", gapft)
    register("uniform", uniform)
    register("uniform_with_replacement", uniform_with_replacement, repeats=True)
    register("replay", replay)
    register("all_verified", all_verified, budget="own")
