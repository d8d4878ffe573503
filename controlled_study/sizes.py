"""The sizes of the study: one for tests, one for two cores, one for a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True)
class Size:
    """A policy's shape, its pre-training, and how many problems it is searched on.

    Attributes:
        hidden: width; the feed-forward layers are 8/3 as wide, a head 32 to 64.
        layers: decoder layers.
        heads: attention heads.
        batch: examples a step.
        peak: learning rate after the warm-up.
        warmup: steps of linear rise.
        check: steps between two looks at the tuning problems.
        target: pre-training starts its last phase once this share of them is solved in one decode.
        most: steps after which the last phase starts in any case.
        decay: steps of the last phase, in which the learning rate falls to zero.
        tuning: tuning problems.
        pool: problems to search and train on.
        audit: problems to judge on.
        null_pool: the same of the nulls.
        null_audit: the same of the nulls.
    """

    hidden: int
    layers: int
    heads: int
    batch: int
    peak: float
    warmup: int
    check: int
    target: float
    most: int
    decay: int
    tuning: int
    pool: int
    audit: int
    null_pool: int
    null_audit: int


#: The size whose outcomes count. Those of the others are shown, and decide nothing.
DECIDES: Final = "small"
#: The pre-training seeds of a study: no more, and no outcome with fewer.
SEEDS: Final = (0, 1, 2, 3, 4, 5)
SIZES: Final = MappingProxyType(
    {
        "tiny": Size(
            hidden=64, layers=2, heads=2, batch=32, peak=3e-3, warmup=20, check=150, target=0.4,
            most=300, decay=50, tuning=64, pool=128, audit=128, null_pool=64, null_audit=64,
        ),
        "small": Size(
            hidden=128, layers=3, heads=4, batch=32, peak=2e-3, warmup=100, check=200, target=0.45,
            most=6_000, decay=300, tuning=512, pool=1_500, audit=3_000,
            null_pool=640, null_audit=1_280,
        ),
        "large": Size(
            hidden=512, layers=4, heads=8, batch=256, peak=1e-3, warmup=100, check=80, target=0.45,
            most=2_000, decay=100, tuning=320, pool=2_000, audit=3_000,
            null_pool=640, null_audit=1_280,
        ),
    }
)  # fmt: skip
