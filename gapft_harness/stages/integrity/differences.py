"""Findings of a verification, and helpers that run its checks and describe differences."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from gapft_harness.core.errors import GapftError, describe
from gapft_harness.core.records import Arm
from gapft_harness.hooks.protocols import Progress

T = TypeVar("T")


@dataclass(slots=True)
class Differences:
    """The findings of a verification.

    Attributes:
        checked: sentences on what was verified; empty if nothing could be verified.
        differences: a sentence for each difference.
        missing: sentences on work that the run has not done yet.
        remark: a sentence on the differences as a whole; may be empty.
        progress: called while verdicts are recomputed.
        tables: tables whose keys follow from the recorded contents, with the split of their
            problems.
        adapters: the arms whose adapters' keys follow from the recorded contents.
    """

    checked: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    remark: str = ""
    progress: Progress = lambda *_: None
    tables: dict[str, str] = field(default_factory=dict)
    adapters: list[Arm] = field(default_factory=list)
    _judged: int = 0

    def count(self, verdicts: int) -> None:
        """Add to the number of recomputed verdicts and report progress."""
        self._judged += verdicts
        self.progress("verdicts", self._judged, 0)

    def gather(self, what: str, check: Callable[[], Iterable[str]]) -> None:
        """Add a check's differences; a check that raises adds one more difference."""

        def take_in() -> None:
            for difference in check():
                self.differences.append(difference)

        self.attempt(what, take_in)

    def attempt(self, what: str, read: Callable[[], T]) -> T | None:
        """Return the result of ``read``; if it raises, record a difference and return None.

        All exceptions are caught: damaged files make their readers raise nearly anything.
        """
        try:
            return read()
        except GapftError as error:
            self.differences.append(f"{what}: {error}")
        except Exception as error:
            self.differences.append(f"{what}: cannot be read ({describe(error)})")
        return None


def unequal(
    where: str,
    said: Mapping[str, Any],
    expected: dict[str, Any],
    says: str = "recomputed:",
) -> Iterable[str]:
    """Yield a sentence for each expected value that differs from the recorded one.

    Args:
        where: the file, the start of each sentence.
        said: the recorded values. They may have more keys than expected; sections in them may not.
        expected: the recomputed values, by key.
        says: the words between the recorded and the expected value.
    """
    for key, value in expected.items():
        if key not in said:
            yield f"{where}: {key} is missing, so it cannot be verified"
        elif said[key] != value:
            if isinstance(value, dict) and isinstance(said[key], dict):
                yield from unequal(f"{where}, {key}", said[key], value, says)
                for more in sorted(said[key].keys() - value.keys()):
                    yield f"{where}, {key}: unexpected entry {more}"
            else:
                yield f"{where}: {key} is {_short(said[key])}, {says} {_short(value)}"


def unequal_ids(
    where: str, ids: Iterable[str], other: str, expected: Iterable[str]
) -> Iterable[str]:
    """Yield a sentence if a table has other problems than another, or in a different order."""
    here, there = list(ids), list(expected)
    if here == there:
        return
    pairs = zip([*here, "the end"], [*there, "the end"], strict=False)
    a, b = next((a, b) for a, b in pairs if a != b)
    yield (
        f"{where}: has other problems than {other}: {len(here)} and {len(there)}; the first "
        f"difference is {a} and {b}"
    )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
