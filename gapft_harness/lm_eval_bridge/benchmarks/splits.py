"""A benchmark's pool and audit split, each read when first asked for."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import TypeVar

from gapft_harness.core.errors import UserError
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

    def read(paths: Sequence[str]) -> SplitData:
        return SplitData(reduce(add, (read_documents(Path(path)) for path in paths)))

    return Splits({split: partial(read, paths) for split, paths in files.items()})


# Where a benchmark's files come from: ``GAPFT_DATA_DIR`` first, then a pinned download.
#
# A folder ``$GAPFT_DATA_DIR/BENCHMARK`` is used alone when it exists: a file missing from it is an
# error, never a reason to mix in a file from elsewhere.


DATA_DIR = "GAPFT_DATA_DIR"

_T = TypeVar("_T")


class DataNotFound(UserError):
    """A benchmark is neither in the data folder nor could it be downloaded."""


@dataclass(frozen=True, slots=True)
class Source:
    """One benchmark's places.

    Attributes:
        benchmark: the name in messages, e.g. ``LogiQA 2.0``.
        folder: the folder under ``GAPFT_DATA_DIR``.
        origin: what is downloaded, in words.
        variable: the environment variable that overrides the pinned revision.
    """

    benchmark: str
    folder: str
    origin: str
    variable: str

    def local(self) -> Path | None:
        """The benchmark's folder under ``GAPFT_DATA_DIR``, or None where it has none.

        Raises:
            UserError: ``GAPFT_DATA_DIR`` names something that is not a folder.
        """
        root = os.environ.get(DATA_DIR)
        if not root:
            return None
        if not Path(root).is_dir():
            raise UserError(f"{DATA_DIR}={root}: there is no such folder")
        folder = Path(root) / self.folder
        return folder if folder.is_dir() else None

    def file(self, folder: Path, name: str, needed_for: str) -> Path:
        """A file of the local folder.

        Raises:
            UserError: it is not there.
        """
        path = folder / name
        if not path.is_file():
            raise UserError(
                f"{self.benchmark}: {path} is missing, but {needed_for} needs it; add the file, "
                f"or take {folder} away to have everything downloaded from {self.origin}"
            )
        return path

    def revision(self, pinned: str) -> str:
        """The pinned revision, or the one that the environment variable names."""
        return os.environ.get(self.variable) or pinned

    def hub_file(self, dataset: str, name: str, revision: str) -> Path:
        """A file of one of the hub's datasets.

        Raises:
            DataNotFound: the download failed.
        """

        def fetch() -> Path:
            from huggingface_hub import hf_hub_download

            return Path(hf_hub_download(dataset, name, repo_type="dataset", revision=revision))

        return self.download(name, revision, fetch)

    def download(self, what: str, revision: str, fetch: Callable[[], _T]) -> _T:
        """Calls ``fetch`` and turns any failure into an error which says what to do.

        Raises:
            DataNotFound: the download failed.
        """
        try:
            return fetch()
        except Exception as error:  # Network libraries raise dozens of kinds.
            root = os.environ.get(DATA_DIR)
            looked = f"{Path(root) / self.folder}" if root else f"{DATA_DIR} (not set)"
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise DataNotFound(
                f"{self.benchmark}: {what} was found neither under {looked} nor downloaded from "
                f"{self.origin} at revision {revision} ({reason}); put the benchmark's files "
                f"under ${DATA_DIR}/{self.folder} (docs/tasks.md has the layout), or check the "
                f"network, or set {self.variable}"
            ) from error
