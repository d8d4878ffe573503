"""What answer redistribution finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gapft_harness.analysis.partition.redistribution import Redistributed
from gapft_harness.core.records import State


@dataclass(frozen=True, slots=True)
class RedistributionFindings:
    """Observed and null rates.

    Attributes:
        permutations: B.
        adapters: ``trained`` or ``scaled``.
        conditions: by name, S and U where they have problems; empty where there are no rates.
        why: then the reason.
    """

    permutations: int
    adapters: str
    conditions: Mapping[str, Mapping[State, Redistributed]]
    why: str = ""
