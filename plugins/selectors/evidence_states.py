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


def replay(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Solved replay: the source's own greedy successes (G only), the condition K = 0."""
    return pool.draw(pool.solved, n, rng)


def all_verified(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """RFT on every verified problem (G and S): a reference with a larger budget."""
    return pool.draw(pool.verified, n, rng)


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Registers the four."""
    register("gapft", gapft)
    register("uniform", uniform)
    register("replay", replay)
    register("all_verified", all_verified, budget="own")
