"""A row for every registered selector, with valid parameters and what its documentation says.

The keys are names of conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gapft_harness.core.records import STATUSES

PASSED = frozenset({"pass"})


@dataclass(frozen=True)
class Row:
    """A selector with valid parameters, and what its documentation promises.

    Attributes:
        selector: its registered name.
        states: the states of its problems.
        params: its parameters.
        statuses: the verdicts that its responses may have.
        takes_all_verified: whether it needs as many slots as there are verified problems.
        is_prefix: whether a set of n is a prefix of a set of n + 1 (and still a valid set).
        may_refuse: whether a pool with enough problems of each state may not suffice.
        tokens: the largest share by which its tokens may differ from GapFT's.
    """

    selector: str
    states: str
    params: Mapping[str, Any] = field(default_factory=dict)
    statuses: frozenset[str] = PASSED
    takes_all_verified: bool = False
    is_prefix: bool = False
    may_refuse: bool = False
    tokens: float | None = None


def match_strata(states: str, **params: Any) -> Row:
    """Describe a selection that is matched with GapFT's in strata, and in tokens."""
    tokens = params.setdefault("tokens", 0.2)
    params = {"states": states, "by": ["subject"], **params}
    return Row("matched_strata", states, params, may_refuse=True, tokens=tokens)


ROWS = {
    "gapft": Row("gapft", "S", is_prefix=True),
    "uniform": Row("uniform", "GS", is_prefix=True),
    "uniform_with_replacement": Row("uniform_with_replacement", "GS", is_prefix=True),
    "replay": Row("replay", "G", is_prefix=True),
    "all_verified": Row("all_verified", "GS"),
    "gapft_with_replay": Row("gapft_with_replay", "GS", {"share": 0.25}),
    "diffuse": Row("diffuse", "S"),
    "concentrated": Row("concentrated", "S"),
    "search_depth": Row("search_depth", "GS", {"k": 2}),
    "randomized_inclusion": Row("randomized_inclusion", "GS", {"share": 0.5, "within": 1}),
    "gold_labels": Row("gold_labels", "SU", may_refuse=True),
    "gold_labels_longer": Row("gold_labels", "SU", {"answer_only": False}),
    "core_depth": Row("core_depth", "GS", {"k": 2}, takes_all_verified=True),
    "core_gold": Row("core_gold", "GSU", {"answer_only": False}, takes_all_verified=True),
    "strata_solved": match_strata("G"),
    "strata_recovered": match_strata("S"),
    "strata_drawn": match_strata("GS", responses="drawn"),
    "strata_nearest": match_strata("GS", responses="nearest", tokens=None),
    "repeated": Row("repeated", "S", {"times": 2}),
    "repeated_matched": Row(
        "repeated", "S", {"times": 2, "by": ["subject"], "tokens": 0.2}, may_refuse=True, tokens=0.2
    ),
    "unverified": Row("unverified", "GSU", statuses=frozenset(STATUSES), is_prefix=True),
    "wrong": Row(
        "wrong", "SU", statuses=frozenset({"fail", "timeout"}), is_prefix=True, may_refuse=True
    ),
}  # fmt: skip
