"""The sizes of the study: one that decides, and one for tests."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from controlled_study.problems import CELLS, FAMILIES, Cell


@dataclass(frozen=True)
class Size:
    """A policy's shape, its pre-training, and how many problems it is searched on.

    Attributes:
        hidden: width; the feed-forward layers are 8/3 as wide, a head has 32.
        layers: decoder layers.
        heads: attention heads.
        batch: examples a step.
        peak: learning rate after the warm-up.
        warmup: steps of linear rise.
        base_steps: steps of the base.
        steps: a policy's own steps after it. Of both, the rate falls to zero over the last half.
        pool: problems to search and train on.
        audit: problems to judge on.
        null_pool: the same of the nulls.
        null_audit: the same of the nulls.
        families: names of the families that it has.
    """

    hidden: int
    layers: int
    heads: int
    batch: int
    peak: float
    warmup: int
    base_steps: int
    steps: int
    pool: int
    audit: int
    null_pool: int
    null_audit: int
    families: tuple[str, ...] = tuple(family.name for family in FAMILIES)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Families of this size with their lengths."""
        return tuple(cell for cell in CELLS if cell[0].name in self.families)


#: The size whose outcomes count. Those of the other are shown, and decide nothing.
DECIDES: Final = "small"
#: The pre-training seeds of a study: no more, and no outcome with fewer.
SEEDS: Final = tuple(range(12))
SIZES: Final = MappingProxyType(
    {
        "tiny": Size(
            hidden=64, layers=2, heads=2, batch=64, peak=3e-3, warmup=20, base_steps=1_000,
            steps=200, pool=480, audit=240, null_pool=60, null_audit=60, families=("move",),
        ),
        "small": Size(
            hidden=128, layers=3, heads=4, batch=64, peak=2e-3, warmup=100, base_steps=6_000,
            steps=800,
            pool=3_000, audit=3_000, null_pool=600, null_audit=1_200,
        ),
    }
)  # fmt: skip
