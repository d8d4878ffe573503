"""Times as people read them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """``12 s``, ``3.4 min``, ``2.1 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
