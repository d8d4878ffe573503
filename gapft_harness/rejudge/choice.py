"""The user's options of ``gapft rejudge``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gapft_harness.core.errors import quote_unprintable


@dataclass(frozen=True, slots=True)
class Rule:
    """A verifier by name, with its parameters."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        params_text = ", ".join(f"{key}={value}" for key, value in self.params.items())
        return quote_unprintable(f"{self.name} ({params_text})" if params_text else self.name)


@dataclass(frozen=True, slots=True)
class RejudgeChoice:
    """What is judged again, and by which rule.

    Attributes:
        now: the new rule.
        was: the earlier rule that it is compared with; None: the logs' own verdicts.
        gold: the document's field with the gold answer; None: the first that fits.
        metric: the logged metric that decides what was right; None: the log's verdicts, or its
            first metric if it has no verdicts.
        filter: lm_eval's filter; None: the log's first.
        tasks: only these tasks; empty: all.
        plugin_files: files given by ``--plugin``.
        shown: number of flips of each kind on the page.
    """

    now: Rule
    was: Rule | None = None
    gold: str | None = None
    metric: str | None = None
    filter: str | None = None
    tasks: Sequence[str] = ()
    plugin_files: Sequence[str] = ()
    shown: int = 10
