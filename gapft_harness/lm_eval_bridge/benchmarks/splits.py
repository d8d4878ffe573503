"""A benchmark's pool and audit split, each read when first asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gapft_harness.lm_eval_bridge.task_file.documents import Documents, read_documents

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Published:
    """Counts that the paper prints, beside those of the files at hand; both by what they count."""

    found: Mapping[str, int]
    expected: Mapping[str, int]

    @property
    def agree(self) -> bool:
        """Whether the files come to exactly the published counts."""
        return dict(self.found) == dict(self.expected)

    def __str__(self) -> str:
        """Both counts, or that they agree."""
        found, expected = (
            ", ".join(f"{what} {count:,}" for what, count in counts.items())
            for counts in (self.found, self.expected)
        )
        if self.agree:
            return f"verified ({found})"
        return f"NOT as published: found {found}; expected {expected}"


@dataclass(frozen=True, slots=True)
class SplitData:
    """A split's problems, and what was dropped from it.

    Attributes:
        documents: the problems.
        dropped: sentences with counts on what was dropped.
        published: what the paper prints of this split; None where it prints nothing.
    """

    documents: Documents
    dropped: tuple[str, ...] = ()
    published: Published | None = None


class Splits(Mapping[str, Documents]):
    """Split name -> problems. Reading one split reads only the files which that split needs."""

    def __init__(
        self, load: Mapping[str, Callable[[], SplitData]], unpublished: Collection[str] = ()
    ) -> None:
        """Takes a function for each split, and those splits whose files not everybody has."""
        self._load, self._unpublished = dict(load), unpublished
        self._read: dict[str, SplitData] = {}

    def __getitem__(self, name: str) -> Documents:
        """The split's problems; what was dropped is logged on the first reading."""
        return self.read(name).documents

    def __iter__(self) -> Iterator[str]:
        """The splits' names."""
        return iter(self._load)

    def __len__(self) -> int:
        """How many splits there are."""
        return len(self._load)

    def read(self, name: str) -> SplitData:
        """The split with what was dropped from it.

        Raises:
            KeyError: there is no such split.
            UserError: its files are missing or malformed.
        """
        if name not in self._read:
            self._read[name] = self._load[name]()
            for sentence in self._read[name].dropped:
                _logger.info("%s", sentence)
        return self._read[name]

    def published(self) -> Published | None:
        """The published counts of all splits beside those of the files; None without any.

        Raises:
            UserError: files are missing or malformed.
        """
        names = sorted(name for name in self if name not in self._unpublished)
        of_splits = [split.published for split in map(self.read, names) if split.published]
        if not of_splits:
            return None
        return Published(
            dict(count for of in of_splits for count in of.found.items()),
            dict(count for of in of_splits for count in of.expected.items()),
        )


def all_local(files: Mapping[str, Sequence[str]]) -> bool:
    """Whether every file is a plain local path (no URL, no pattern, no compressed file)."""
    paths = [path for split in files.values() for path in split]
    return not any("://" in p or "*" in p or p.endswith((".gz", ".zst", ".zip")) for p in paths)


def local_splits(files: Mapping[str, Sequence[str]]) -> Splits:
    """Splits of local files, each read when first asked for."""

    def reader(paths: Sequence[str]) -> Callable[[], SplitData]:
        def read() -> SplitData:
            first, *others = [read_documents(Path(path)) for path in paths]
            for other in others:
                first = first + other
            return SplitData(first)

        return read

    return Splits({split: reader(paths) for split, paths in files.items()})
