"""What stability finds: how far sample sets agree, and what they move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from gapft_harness.analysis.decomposition import unstable_states
from gapft_harness.analysis.partition.stability import Agreement, Spread
from gapft_harness.report.reading.adapters import Decided
from gapft_harness.report.reading.windows import WindowStates


@dataclass(frozen=True, slots=True)
class StabilityRead:
    """The states under each sample set, K, and what the trained models decided."""

    k: int
    windows: WindowStates
    decided: Decided


@dataclass(frozen=True, slots=True)
class Moved:
    """What the sample set moves in one condition.

    Attributes:
        spreads: by quantity, of the mean over seeds.
        one_seed: the largest range of the S flow under any one seed.
    """

    spreads: Mapping[str, Spread]
    one_seed: Fraction


@dataclass(frozen=True, slots=True)
class StabilityFindings:
    """Stability over sample sets.

    Attributes:
        k: K, samples of a set.
        sizes: audit problems in G, S and U under each set.
        agreement: of the sets on source failures; None where there are none.
        conditions: by name, in the recipe's order.
        adapters: ``trained`` or ``scaled``.
    """

    k: int
    sizes: tuple[tuple[int, int, int], ...]
    agreement: Agreement | None
    conditions: Mapping[str, Moved]
    adapters: str

    @property
    def smallest(self) -> int:
        """Problems of the smallest S or U under any set, on which a rate rests."""
        return min(size for _, s, u in self.sizes for size in (s, u))

    @property
    def unstable(self) -> bool:
        """Whether some S or U is too small for a stable rate."""
        return any({"S", "U"} & {*unstable_states(*sizes)} for sizes in self.sizes)
