"""What the scope matrix is made of, and its lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from gapft_harness.analysis.partition.stability import ScopeRow
from gapft_harness.core.records import State
from gapft_harness.report.reading.adapters import Decided
from gapft_harness.report.reading.answers import Answers
from gapft_harness.report.reading.windows import WindowStates


@dataclass(frozen=True, slots=True)
class ScopeRead:
    """What the matrix is made of.

    Attributes:
        budgets: the K, ascending, in the order of the windows.
        windows: states at each.
        decided: what the trained models decided.
        answers: None where the run has none that can be redistributed.
        why: then the reason.
    """

    budgets: tuple[int, ...]
    windows: WindowStates
    decided: Decided
    answers: Answers | None
    why: str


@dataclass(frozen=True, slots=True)
class ScopeLine:
    """One line of the matrix: a condition at one K, with its redistribution null rates if any."""

    condition: str
    row: ScopeRow
    null: Mapping[State, Fraction]


@dataclass(frozen=True, slots=True)
class ScopeFindings:
    """The matrix.

    Attributes:
        lines: by condition, then K.
        why: why there are no null rates; empty where there are.
        adapters: ``trained`` or ``scaled``.
    """

    lines: tuple[ScopeLine, ...]
    why: str
    adapters: str
