"""Where a benchmark's files come from: ``GAPFT_DATA_DIR`` first, then a pinned download.

A folder ``$GAPFT_DATA_DIR/BENCHMARK`` is used alone when it exists: a file missing from it is an
error, never a reason to mix in a file from elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gapft_harness.core.errors import UserError

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
