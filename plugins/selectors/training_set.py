"""The training set of another run: the same examples for a different base or other settings."""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.api import Evidence, Pool, RegisterSelector, Stream, UserError, hookimpl


def training_set(pool: Pool, n: int, rng: Stream, run: str, condition: str) -> Sequence[Evidence]:
    """Select exactly the examples that another run selected under the same seed, in their order.

    Args:
        run: the other run's folder.
        condition: the condition in that run.

    Raises:
        UserError: the number of examples differs from the number of slots.
    """
    if len(pool.foreign) != n:
        raise UserError(
            f"selector 'training_set': the set of {condition} in {run} has {len(pool.foreign)} "
            f"examples, but there are {n} slots (n and budget.replay); set n in the condition, or "
            "set budget.n"
        )
    return pool.foreign


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Register the selector."""
    register("training_set", training_set, repeats=True, responses="foreign", files=("run",))
