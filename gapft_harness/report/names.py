"""Names of conditions, states and decodes for people, the same on all pages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gapft_harness.core.records import SOURCE, State
from gapft_harness.recipe.sections import Deployment

#: The paper's states in plain words.
STATE_NAMES: dict[State, str] = {
    "G": "solved in one decode",
    "S": "recovered by search",
    "U": "missed by search",
}

_SPELLINGS = {"gapft": "GapFT", "grpo": "GRPO", "rft": "RFT"}


def condition_name(name: str) -> str:
    """Format a condition's name for people: ``all verified``, ``GapFT``, ``GRPO``.

    Args:
        name: as in the recipe.
    """
    return " ".join(_SPELLINGS.get(word, word) for word in name.split("_"))


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


def name_source(deployment: Deployment | None) -> str:
    """Name the source model in a table: ``source, greedy``, or ``source`` if it is sampled."""
    return SOURCE if deployment else f"{SOURCE}, greedy"


def name_decode(deployment: Deployment | None) -> str:
    """Name a decode of a deployed model: ``greedy decode`` or ``deployment decode``."""
    return "deployment decode" if deployment else "greedy decode"


def describe_deployment(deployment: Deployment) -> str:
    """Describe how deployment decodes are sampled."""
    cuts = {"top_p": (deployment.top_p, 1), "top_k": (deployment.top_k, 0)}
    settings = [f"temperature {deployment.temperature:g}"]
    settings += [f"{name} {value:g}" for name, (value, none) in cuts.items() if value != none]
    return f"Deployment decode: sampled once at {', '.join(settings)}."
