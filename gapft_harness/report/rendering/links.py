"""Where a report's pages lead: to the explorer beside them, and to a problem there."""

from __future__ import annotations

from urllib.parse import urlencode

from gapft_harness.core.text import whole_text
from gapft_harness.report.rendering.visible import visible


def explorer(audit: str = "") -> str:
    """The page that has every problem of an audit; the run's own has no name."""
    return f"explorer{audit and '-'}{audit}.html"


def problem(name: str, audit: str = "") -> str:
    """Opens a problem there. Names are as the page has them."""
    return f"{explorer(audit)}#{urlencode({'open': whole_text(visible(name))})}"
