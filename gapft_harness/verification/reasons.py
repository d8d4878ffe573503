"""Count verdicts by status and kind of reason, to explain why responses do not pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from gapft_harness.core.records import Verdict

#: Maximum number of kinds; responses of further kinds are counted together.
_MAX_KINDS = 1000

#: Maximum characters of a kind.
_MAX_LENGTH = 120

#: Maximum characters of an answer in a reason.
_MAX_ANSWER = 60

#: The parts of a reason that differ within a kind: text after "said", quotations, numbers.
_VARIABLE_PART = re.compile(r"\bsaid .*|'[^']*'|\"[^\"]*\"|\d+(?:[.,]\d+)*")

OTHER = "other reasons"

#: A status and a kind of reason.
Kind = tuple[str, str]


def show_answer(answer: str) -> str:
    """Return the beginning of an answer for a reason, such as ``said 12``."""
    return f"said {answer}" if len(answer) <= _MAX_ANSWER else f"said {answer[:_MAX_ANSWER]}…"


@lru_cache(maxsize=1024)
def classify_reason(verdict: Verdict) -> Kind:
    """Return a verdict's status, and its reason without the parts that vary between responses.

    >>> classify_reason(Verdict("fail", "wrong answer on hidden test 3 of 12"))
    ('fail', 'wrong answer on hidden test … of …')
    """
    text = _VARIABLE_PART.sub(
        lambda match: "said …" if match[0].startswith("said ") else "…",
        " ".join(verdict.reason.split()),
    )
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    kind = text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}…"
    return verdict.status, kind or "no reason given"


@dataclass(slots=True)
class Reasons:
    """Counts of verdicts by status, and of those that did not pass by kind of reason."""

    statuses: Counter[str] = field(default_factory=Counter)
    kinds: Counter[Kind] = field(default_factory=Counter)

    def add(self, verdict: Verdict) -> None:
        """Count a verdict."""
        self.statuses[verdict.status] += 1
        if not verdict.passed:
            kind = classify_reason(verdict)
            is_counted = kind in self.kinds or len(self.kinds) < _MAX_KINDS
            self.kinds[kind if is_counted else (verdict.status, OTHER)] += 1

    def describe_failures(self) -> str:
        """Describe the failures if nothing passed or at least a tenth could not be judged."""
        total = self.statuses.total()
        passed = self.statuses["pass"]
        errors = self.statuses["error"]
        timeouts = self.statuses["timeout"]
        parts = []
        if total and not passed:
            parts.append(f"none of {total} responses passed")
        if errors + timeouts and (errors + timeouts) * 10 >= total:
            parts.append(
                f"{errors + timeouts} of {total} responses could not be judged ({errors} errors, "
                f"{timeouts} time-outs) and count as not passed; see the column reason"
            )
        if not parts:
            return ""
        kinds = [f"{kind} ({count})" for (_, kind), count in rank_kinds(self.kinds)[:3]]
        return "; ".join([*parts, f"most common: {', '.join(kinds)}"])


def rank_kinds(kinds: Mapping[Kind, int]) -> list[tuple[Kind, int]]:
    """Sort kinds with their counts, the most common first, ties alphabetically."""
    return sorted(kinds.items(), key=lambda item: (-item[1], item[0]))


def needs_explanation(statuses: Mapping[str, int]) -> bool:
    """Check whether a report should explain: nothing passed, or half could not be judged."""
    total = sum(statuses.values())
    unjudged = statuses.get("error", 0) + statuses.get("timeout", 0)
    return bool(total) and (not statuses.get("pass", 0) or 2 * unjudged >= total)
