"""Findings of a verification, and helpers that run its checks and describe differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from gapft_harness.core.errors import GapftError, describe_error
from gapft_harness.engine.differences import describe_values
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
    """

    checked: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    remark: str = ""
    progress: Progress = lambda *_: None
    _verdict_count: int = 0

    def count_verdicts(self, verdicts: int) -> None:
        """Add to the number of recomputed verdicts and report progress."""
        self._verdict_count += verdicts
        self.progress("verdicts", self._verdict_count, 0)

    def collect(self, subject: str, check: Callable[[], Iterable[str]]) -> None:
        """Add a check's differences; a check that raises adds one more difference."""

        def collect_all() -> None:
            for difference in check():
                self.differences.append(difference)

        self.try_reading(subject, collect_all)

    def try_reading(self, subject: str, read: Callable[[], T]) -> T | None:
        """Return the result of ``read``; if it raises, record a difference and return None.

        All exceptions are caught: damaged files make their readers raise nearly anything.
        """
        try:
            return read()
        except GapftError as error:
            self.differences.append(f"{subject}: {error}")
        except Exception as error:
            self.differences.append(f"{subject}: cannot be read ({describe_error(error)})")
        return None


def compare_values(
    place: str,
    recorded: Mapping[str, Any],
    expected: dict[str, Any],
    relation: str = "computed again it is",
) -> Iterable[str]:
    """Yield a sentence for each expected value that differs from the recorded one.

    Args:
        place: the file, the start of each sentence.
        recorded: the recorded values, which may have more keys than expected.
        expected: the recomputed values, by key.
        relation: the words between the recorded and the expected value.
    """
    for key, value in expected.items():
        if key not in recorded:
            yield f"{place}: {key} is missing, so it cannot be verified"
        else:
            yield from describe_values(place, {key: recorded[key]}, {key: value}, relation)


def compare_ids(
    place: str, ids: Iterable[str], other: str, expected: Iterable[str]
) -> Iterable[str]:
    """Yield a sentence if a table has other problems than another, or in a different order."""
    actual_ids = list(ids)
    expected_ids = list(expected)
    if actual_ids == expected_ids:
        return
    pairs = zip([*actual_ids, "the end"], [*expected_ids, "the end"], strict=False)
    a, b = next((a, b) for a, b in pairs if a != b)
    yield (
        f"{place}: has other problems than {other}: {len(actual_ids)} and {len(expected_ids)}; the "
        f"first difference is {a} and {b}"
    )


def compare_files(
    folder: Path, expected: Mapping[str, bytes], ignored: tuple[str, ...] = ()
) -> Iterator[str]:
    """Yield a sentence for each file of a report that differs from one that is made again.

    Args:
        folder: the report.
        expected: the bytes of its files by their paths in it.
        ignored: endings of names of files of which the bytes are not compared.
    """
    written = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    for name in sorted(expected.keys() ^ written):
        fault = "missing" if name in expected else "not a file of this report"
        yield f"{folder.name}/{name}: is {fault}"
    for name in sorted(expected.keys() & written):
        if not name.endswith(ignored) and (folder / name).read_bytes() != expected[name]:
            hint = "; figures also differ between versions of matplotlib"
            hint = hint if name.endswith((".svg", ".html")) else ""
            yield f"{folder.name}/{name}: differs from what the outputs give now{hint}"
