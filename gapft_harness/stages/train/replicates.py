"""Replicates: an arm trained again on the same examples, all or some of what it draws drawn anew.

A replicate is the arm's variant named after what was drawn anew. ``none`` draws nothing anew: it
differs from its arm by what a machine does differently the second time. ("Retraining one gold-label
seed with byte-identical data and settings", the paper's appendix on implementation details.)
"""

from __future__ import annotations

from collections.abc import Mapping

from gapft_harness.core.records import Arm
from gapft_harness.core.streams import derive

#: What a replicate of each name draws anew.
VARIED: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "order": ("order",),
    "dropout": ("dropout",),
    "adapter": ("adapter",),
    "all": ("order", "dropout", "adapter"),
}


def seeds_of(arm: Arm) -> dict[str, int]:
    """The seeds of what a replicate draws anew, which its arm draws under its own seed.

    Returns:
        By draw: ``order`` of the examples, ``dropout``, and the initial weights of the ``adapter``;
        empty for an arm that is no replicate.
    """
    draws = VARIED[arm.variant] if arm.variant else ()
    return {draw: derive(arm.seed, f"replicate/{draw}") >> 1 for draw in draws}
