"""Costs in tokens and seconds, for ``gapft gap``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spending:
    """A cost in tokens, and in seconds where they are recorded; None: unknown."""

    tokens: float | None
    seconds: float | None = None

    @classmethod
    def from_rate(cls, tokens: float | None, rate: float | None) -> Spending:
        """Create a cost from tokens and a rate in tokens per second; None: unknown."""
        return cls(tokens, None if tokens is None or not rate else tokens / rate)

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            _add_known(self.tokens, other.tokens), _add_known(self.seconds, other.seconds)
        )


def find_search_seconds(stages: Mapping[str, float], reused: bool) -> float | None:
    """Find the wall time of a search in seconds; None where it is unknown.

    Args:
        stages: wall seconds by stage.
        reused: whether responses were generated for another run, so their time is not known.
    """
    return None if reused or "import" in stages else stages.get("search")


def _add_known(amount: float | None, other: float | None) -> float | None:
    return None if amount is None or other is None else amount + other
