"""What the user of ``gapft rejudge`` chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gapft_harness.core.errors import plain


@dataclass(frozen=True, slots=True)
class Rule:
    """A verifier by name, with its parameters."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        told = ", ".join(f"{key}={value}" for key, value in self.params.items())
        return plain(f"{self.name} ({told})" if told else self.name)


@dataclass(frozen=True, slots=True)
class RejudgeChoice:
    """What is judged again, and by what.

    Attributes:
        now: the rule that judges.
        was: the rule that its verdicts are held against; None: what the logs say.
        gold: the document's field that holds the gold answer; None: the first that fits.
        metric: the logged metric that says what was right; None: the log's
            verdicts, or where it has none, its first metric.
        filter: lm_eval's filter; None: the log's first.
        shown: flips of each kind that the page shows.
    """

    now: Rule
    was: Rule | None = None
    gold: str | None = None
    metric: str | None = None
    filter: str | None = None
    tasks: Sequence[str] = ()
    plugin_files: Sequence[str] = ()
    shown: int = 10
