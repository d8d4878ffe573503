"""Colours of figures and page, after Okabe and Ito: colour-blind readers can distinguish them.

Every role has a light and a dark value. The light values are distinct, so that a figure in light
colours can be recoloured for a dark page by replacing values.
"""

from __future__ import annotations

import re

PAPER = "#ffffff"
INK = "#1c1d1f"
MUTED = "#66696e"
RULE = "#dddcd8"
RIGHT = "#0072b2"
RIGHT_PALE = "#bcd8ea"
WRONG = "#d55e00"
WRONG_PALE = "#e6e4df"

_DARK = {
    PAPER: "#15171a",
    INK: "#e9e7e3",
    MUTED: "#a2a5aa",
    RULE: "#383b40",
    RIGHT: "#56b4e9",
    RIGHT_PALE: "#2a4d66",
    WRONG: "#f28a3c",
    WRONG_PALE: "#3b3d42",
}


def darken(svg: str) -> str:
    """Replace the light colours of an SVG by the dark colours."""
    return re.sub(r"#[0-9a-f]{6}", lambda match: _DARK.get(match[0], match[0]), svg)


def css_variables(dark: bool) -> str:
    """Return the colours that page and figures share, as CSS custom properties."""
    roles = {
        "paper": PAPER,
        "ink": INK,
        "muted": MUTED,
        "rule": RULE,
        "right": RIGHT,
        "right-pale": RIGHT_PALE,
        "wrong": WRONG,
        "wrong-pale": WRONG_PALE,
    }
    return " ".join(
        f"--{name}: {_DARK[value] if dark else value};" for name, value in roles.items()
    )
