"""A benchmark's splits, each read at its first use, and where its files come from."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, TypeVar

from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.task_file.documents import Documents, read_documents

_logger = logging.getLogger(__name__)


class Splits(Mapping[str, Documents]):
    """Split name -> problems. Reading a split reads only the files that it needs."""

    def __init__(self, load: Mapping[str, Callable[[], Documents]]) -> None:
        """Store the loader of each split."""
        self._load = dict(load)
        self._read: dict[str, Documents] = {}

    def __getitem__(self, name: str) -> Documents:
        """Return the split's problems; the first reading logs what was dropped.

        Raises:
            KeyError: unknown split.
            UserError: its files are missing or malformed.
        """
        if name not in self._read:
            self._read[name] = self._load[name]()
            for sentence in self._read[name].dropped:
                _logger.info("%s", sentence)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the splits' names."""
        return iter(self._load)

    def __len__(self) -> int:
        """Return the number of splits."""
        return len(self._load)


def describe_unpublished(what: str, count: int, published: int) -> str:
    """Describe a count that differs from the paper's; empty if it is equal."""
    if count == published:
        return ""
    return f"differ from the paper: found {what} {count:,}; expected {what} {published:,}"


def resolve_data_files(config: Any, files: Any) -> dict[str, list[str]]:
    """Return ``data_files`` as split -> paths; relative paths start from the YAML's folder."""
    source = (config.metadata or {}).get("config_source", "inline")
    folder = Path.cwd() if source == "inline" else Path(source).resolve().parent
    by_split = files if isinstance(files, Mapping) else {"train": files}
    return {
        split: [
            path if "://" in path else str(folder / path)
            for path in ([paths] if isinstance(paths, str) else paths)
        ]
        for split, paths in by_split.items()
    }


def are_all_local(files: Mapping[str, Sequence[str]]) -> bool:
    """Return whether all files are plain local paths (no URL, pattern or compressed file)."""
    paths = [path for split in files.values() for path in split]
    return not any("://" in p or "*" in p or p.endswith((".gz", ".zst", ".zip")) for p in paths)


def build_local_splits(files: Mapping[str, Sequence[str]]) -> Splits:
    """Build splits from local files, each read at its first use."""

    def read(paths: Sequence[str]) -> Documents:
        documents: Documents = reduce(add, (read_documents(Path(path)) for path in paths))
        return documents

    return Splits({split: partial(read, paths) for split, paths in files.items()})


# A benchmark's files come from ``$GAPFT_DATA_DIR/BENCHMARK`` if that folder exists, else from a
# pinned download. The two are never mixed: a file missing from the folder is an error.


DATA_DIR = "GAPFT_DATA_DIR"

_T = TypeVar("_T")


class DataNotFound(UserError):
    """A benchmark is not in the data folder, and its download failed."""


@dataclass(frozen=True, slots=True)
class Source:
    """The sources of one benchmark's files.

    Attributes:
        benchmark: the name for messages, e.g. ``LogiQA 2.0``.
        folder: the folder under ``GAPFT_DATA_DIR``.
        origin: what is downloaded, for messages.
        variable: the environment variable that overrides the pinned revision.
    """

    benchmark: str
    folder: str
    origin: str
    variable: str

    def find_folder(self) -> Path | None:
        """Find the benchmark's folder under ``GAPFT_DATA_DIR``; None without one.

        Raises:
            UserError: ``GAPFT_DATA_DIR`` is not a folder.
        """
        root = os.environ.get(DATA_DIR)
        if not root:
            return None
        if not Path(root).is_dir():
            raise UserError(f"{DATA_DIR}={root}: folder not found")
        folder = Path(root) / self.folder
        return folder if folder.is_dir() else None

    def read(
        self,
        name: str,
        needed_for: str,
        pinned: str,
        fetch: Callable[[str], Path | Documents],
    ) -> Documents:
        """Read a file of the local folder; without this folder, download it.

        Args:
            name: the file.
            needed_for: what it is needed for, for messages.
            pinned: see ``download``.
            fetch: downloads a revision of the file, or of its records.

        Raises:
            UserError: the folder has no such file, or the file is malformed.
            DataNotFound: the download failed.
        """
        folder = self.find_folder()
        if folder is None:
            downloaded = self.download(name, pinned, fetch)
            return read_documents(downloaded) if isinstance(downloaded, Path) else downloaded
        path = folder / name
        if not path.is_file():
            raise UserError(
                f"{self.benchmark}: {path}: file not found, needed for {needed_for}; add the file, "
                f"or remove {folder} to download all files from {self.origin}"
            )
        return read_documents(path)

    def download(self, name: str, pinned: str, fetch: Callable[[str], _T]) -> _T:
        """Call ``fetch`` with the revision, and turn any failure into an error with a remedy.

        Args:
            name: what is downloaded, for messages.
            pinned: the revision, unless the environment variable sets another.
            fetch: downloads a revision.

        Raises:
            DataNotFound: the download failed.
        """
        revision = os.environ.get(self.variable) or pinned
        try:
            return fetch(revision)
        except Exception as error:  # network libraries raise many types
            root = os.environ.get(DATA_DIR)
            place = f"{Path(root) / self.folder}" if root else f"{DATA_DIR} (not set)"
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise DataNotFound(
                f"{self.benchmark}: {name} not found in {place}, and the download from "
                f"{self.origin} at revision {revision} failed ({reason}); put the benchmark's "
                f"files into ${DATA_DIR}/{self.folder} (docs/tasks.md shows the layout), check "
                f"the network, or set {self.variable}"
            ) from error


def fetch_hub_file(dataset: str, name: str, revision: str) -> Path:
    """Download a file of a dataset on the hub."""
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(dataset, name, repo_type="dataset", revision=revision))
