"""Colours of figures and page, after Okabe and Ito: colour-blind readers can distinguish them.

Every role has a light and a dark value. The light values are distinct, so that a figure in light
colours can be recoloured for a dark page by replacing values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, count

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
    "#b5851b": "#e6b94a",
    "#00805d": "#3fc79a",
    "#b3568c": "#e19ac3",
    "#5b4bb0": "#a99cf0",
}

#: Colour and marker of each condition, by its place in the recipe.
SERIES = (
    (RIGHT, "o"),
    ("#b5851b", "s"),
    ("#00805d", "^"),
    ("#b3568c", "D"),
    ("#5b4bb0", "v"),
)


def series(position: int) -> tuple[str, str]:
    """Return colour and marker for a position; after the last, colours repeat with new markers."""
    rounds, place = divmod(position, len(SERIES))
    return SERIES[place][0], SERIES[(place + rounds) % len(SERIES)][1]


#: The conditions of the paper's main comparison, with their positions in ``SERIES``.
_MAIN = {"gapft": 0, "uniform": 1, "replay": 2, "all_verified": 3}


def assign_series(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Assign a colour and a marker to each condition of a report.

    Conditions of the paper's main comparison have the same pair in every report. Without GapFT, the
    first condition gets its pair. Other conditions get free pairs; free pairs of the main
    comparison are used last.
    """
    places = {name: _MAIN[name] for name in names if name in _MAIN}
    if names and 0 not in places.values():
        places[names[0]] = 0
    last = sorted(set(_MAIN.values()) - set(places.values()), reverse=True)
    free = chain(range(len(_MAIN), len(SERIES)), last, count(len(SERIES)))
    return {name: series(places[name] if name in places else next(free)) for name in names}


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
