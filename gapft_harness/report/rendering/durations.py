"""Times and days as people read them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date


def duration(seconds: float) -> str:
    """``12 s``, ``3.4 min``, ``2.1 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def made_on(days: Iterable[str]) -> str:
    """When something was made, of its days as ``2026-11-23``: a sentence, or nothing of none."""
    if not (known := sorted(days)):
        return ""
    first, last = (f"{of.day} {of:%B %Y}" for of in map(date.fromisoformat, (known[0], known[-1])))
    return f"Made on {last}." if first == last else f"Made from {first} to {last}."
