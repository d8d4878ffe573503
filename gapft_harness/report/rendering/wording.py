"""Format numbers, times and names for people, in the same way in all tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from fractions import Fraction
from typing import Any

from gapft_harness.analysis.estimate import Estimate
from gapft_harness.core.records import State
from gapft_harness.recipe.sections import Deployment

#: The paper's states in plain words.
STATE_NAMES: dict[State, str] = {
    "G": "solved in one decode",
    "S": "recovered by search",
    "U": "missed by search",
}

#: Marks a rate that is based on few problems.
UNSTABLE = "†"

_SPELLINGS = {"gapft": "GapFT", "grpo": "GRPO", "rft": "RFT"}
_MINUS = "\N{MINUS SIGN}"


def condition_name(name: str) -> str:
    """Format a condition's name for people: ``all verified``, ``GapFT``, ``GRPO``.

    Args:
        name: as in the recipe.
    """
    return " ".join(_SPELLINGS.get(word, word) for word in name.split("_"))


def name_source(deployment: Deployment | None) -> str:
    """Name the source model in a table: ``source, greedy``, or ``source`` if it is sampled."""
    return "source" if deployment else "source, greedy"


def name_decode(deployment: Deployment | None) -> str:
    """Name a decode of a deployed model: ``greedy decode`` or ``deployment decode``."""
    return "deployment decode" if deployment else "greedy decode"


def describe_deployment(deployment: Deployment) -> str:
    """Describe how deployment decodes are sampled."""
    cuts = {"top_p": (deployment.top_p, 1), "top_k": (deployment.top_k, 0)}
    settings = [f"temperature {deployment.temperature:g}"]
    settings += [f"{name} {value:g}" for name, (value, none) in cuts.items() if value != none]
    return f"Deployment decode: sampled once at {', '.join(settings)}."


def format_condition_label(name: str, own: Mapping[str, Any], k: int) -> str:
    """Format a condition's name with its own settings: ``uniform 4 (K = 4 of 8)``."""
    settings = [format_own_setting(key, value, k) for key, value in own.items()]
    return f"{condition_name(name)} ({', '.join(settings)})" if settings else condition_name(name)


def format_own_setting(key: str, value: Any, k: int) -> str:
    """Format one setting of a condition: ``K = 4 of 8``, ``trainer grpo``."""
    if key == "k":
        return f"K = {value} of {k}"
    value_text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"{key.rpartition('.')[2].replace('_', ' ')} {value_text}"


def percent(rate: Fraction | float | None, digits: int = 1) -> str:
    """Format a rate as ``68.1%``; a dash where it is undefined.

    Args:
        rate: from 0 to 1, or from -1 for a mean change; None: undefined.
        digits: decimals.
    """
    if rate is None:
        return "–"
    return f"{_drop_zero_sign(100 * float(rate), digits):.{digits}f}%".replace("-", _MINUS)


def points(change: Fraction | float, digits: int = 1) -> str:
    """Format a difference of rates in percentage points, signed: ``+2.3``.

    Args:
        change: from -1 to 1.
        digits: decimals.
    """
    value = _drop_zero_sign(100 * float(change), digits)
    return f"{value:+.{digits}f}".replace("-", _MINUS) if value else f"{0:.{digits}f}"


def points_interval(estimate: Estimate, digits: int = 1) -> str:
    """Format the interval of a difference in percentage points: ``[+0.4, +4.4]``.

    Args:
        estimate: a difference of rates, from -1 to 1.
        digits: decimals.
    """
    if not estimate.has_interval:
        return "–"
    return f"[{points(estimate.low, digits)}, {points(estimate.high, digits)}]"


def percent_interval(estimate: Estimate) -> str:
    """Format the interval of a rate, in percent: ``[66.9, 71.7]``."""
    if not estimate.has_interval:
        return "–"
    return f"[{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


def describe_resolution(estimate: Estimate) -> str:
    """Describe whether an interval excludes zero, for the end of a sentence."""
    if estimate.excludes_zero:
        return "the interval excludes zero"
    return "the interval includes zero, so the difference is not resolved"


def format_count(number: int) -> str:
    """Format a count with a thousands separator: ``25,520``."""
    return f"{number:,}"


def format_rounded(number: float | None) -> str:
    """Format a mean or an estimate of counts; a dash where it is unknown."""
    return "–" if number is None else format_count(round(number))


def format_signed_count(number: int) -> str:
    """Format a difference of counts: ``+1,204``, ``0``."""
    return f"{number:+,}".replace("-", _MINUS) if number else "0"


def format_signed(change: float, digits: int) -> str:
    """Format a difference of numbers with ``digits`` significant digits: ``+0.1234``, ``0``."""
    return f"{change:+.{digits}g}".replace("-", _MINUS) if change else "0"


def format_number(value: float) -> str:
    """Format a number with four significant digits: ``−12.34``."""
    return f"{value:.4g}".replace("-", _MINUS)


def format_range(counts: Sequence[int]) -> str:
    """Format the range of the counts of several seeds: ``120``, or ``118–121``."""
    least, most = min(counts), max(counts)
    return format_count(least) if least == most else f"{format_count(least)}–{format_count(most)}"


def format_k_eq(value: int, samples: int) -> str:
    """Format K_eq: ``<1``, ``4``, or ``≥8`` where it is at least the number of drawn samples."""
    if value == 0:
        return "<1"
    return f"≥{samples}" if value == samples else str(value)


def format_p_value(p: float | None) -> str:
    """Format a p value: ``0.023``, ``<0.001``, or a dash where it is None.

    Uses more digits where rounding would hide p < 0.05.
    """
    if p is None or p < 0.001:
        return "–" if p is None else "<0.001"
    candidates = (f"{p:.{digits}f}" for digits in range(3, 17))
    return next((text for text in candidates if (float(text) < 0.05) == (p < 0.05)), f"{p}")


def capitalize_first(text: str) -> str:
    """Capitalize the first letter, for the beginning of a sentence."""
    return text[:1].upper() + text[1:]


def listed(words: list[str]) -> str:
    """Join words for a sentence: ``a``, ``a and b``, ``a, b and c``.

    Args:
        words: at least one word.
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _drop_zero_sign(value: float, digits: int) -> float:
    """Replace a value that prints as zero by zero, so that it has no sign."""
    return 0.0 if abs(value) < 0.5 * 10**-digits else value


def format_duration(seconds: float) -> str:
    """Format a duration: ``12 s``, ``3.4 min``, ``2.1 h``."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def describe_days(days: Iterable[str]) -> str:
    """Describe in a sentence the first and last day; days are texts such as ``2026-11-23``.

    Returns an empty text without days.
    """
    if not (sorted_days := sorted(days)):
        return ""
    first, last = (
        f"{day.day} {day:%B %Y}"
        for day in map(date.fromisoformat, (sorted_days[0], sorted_days[-1]))
    )
    return f"Made on {last}." if first == last else f"Made from {first} to {last}."
