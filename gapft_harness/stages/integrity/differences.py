"""What a verification found, and how its checks are run and worded."""

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
    """What was verified, and what was not as it must be.

    Attributes:
        checked: sentences; empty if nothing is there that could be verified.
        differences: sentences, each on something that is not as it must be.
        missing: what the run has not come to yet.
        remark: a sentence on the differences as a whole, if there is something to say of them.
        progress: called while verdicts are judged again.
        tables: tables whose keys are those of what they record, each with the split of its
            problems.
        adapters: the arms whose adapters' keys are.
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
        """So many more verdicts were judged again."""
        self._judged += verdicts
        self.progress("verdicts", self._judged, 0)

    def gather(self, what: str, check: Callable[[], Iterable[str]]) -> None:
        """Takes in a check's differences; one that breaks is a difference more, not the end."""

        def take_in() -> None:
            for difference in check():
                self.differences.append(difference)

        self.attempt(what, take_in)

    def attempt(self, what: str, read: Callable[[], T]) -> T | None:
        """What ``read`` gives; where it raises, that is a difference, and there is nothing.

        Whatever it raises: damaged files make their readers raise nearly anything.
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
    says: str = "computed again it is",
) -> Iterable[str]:
    """Yield a sentence for each expected value that is not the one found.

    Args:
        where: the file, as sentences begin.
        said: what was found. It may say more than what is expected; a section within it may not.
        expected: what was computed again, by key.
        says: what stands between the value found and the one expected.
    """
    for key, value in expected.items():
        if key not in said:
            yield f"{where}: does not say {key}, so it cannot be verified"
        elif said[key] != value:
            if isinstance(value, dict) and isinstance(said[key], dict):
                yield from unequal(f"{where}, {key}", said[key], value, says)
                for more in sorted(said[key].keys() - value.keys()):
                    yield f"{where}, {key}: says {more}, which nothing here accounts for"
            else:
                yield f"{where}: {key} is {_short(said[key])}, {says} {_short(value)}"


def unequal_ids(
    where: str, ids: Iterable[str], other: str, expected: Iterable[str]
) -> Iterable[str]:
    """Yields a sentence if a table holds other problems than another, or in another order."""
    here, there = list(ids), list(expected)
    if here == there:
        return
    pairs = zip([*here, "the end"], [*there, "the end"], strict=False)
    a, b = next((a, b) for a, b in pairs if a != b)
    yield (
        f"{where}: holds other problems than {other}: {len(here)} and {len(there)}, the first that "
        f"differ are {a} and {b}"
    )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 100 else f"{text[:97]}..."
