"""Count responses whose verdict flipped, keep the first ones, and write all to a file if requested.

The texts of all flips may not fit into memory, so they go to disk.
"""

from __future__ import annotations

import csv
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapft_harness.core.files import replace_file
from gapft_harness.core.identities import canonical_json
from gapft_harness.core.text import replace_text_surrogates

COLUMNS = (
    "flip", "where", "document", "response", "was_answer", "now_answer", "reason", "gold", "text",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Flip:
    """A response whose verdict flipped.

    Attributes:
        where: the log and the line.
        document: lm_eval's number of the document.
        index: number of the response in its row, from 0.
        is_right: whether it is right now; else it was right before.
        was_answer: the answer that the earlier rule read; None if unknown.
        now_answer: the answer that the new rule reads; None: no answer, or unknown.
        reason: why it is not right under the new rule.
        gold: the gold answer, as JSON if it is not text.
        text: the response.
    """

    where: str
    document: str
    index: int
    is_right: bool
    was_answer: str | None
    now_answer: str | None
    reason: str
    gold: str
    text: str

    @property
    def kind(self) -> str:
        """The kind of flip, for tables."""
        return "right now" if self.is_right else "wrong now"


@dataclass(slots=True)
class Flips:
    """All flips.

    Attributes:
        limit: number of flips of each kind that are kept.
        right: number of responses that changed from wrong to right.
        wrong: number of responses that changed from right to wrong.
        kept: the first flips of each kind.
    """

    limit: int
    right: int = 0
    wrong: int = 0
    kept: list[Flip] = field(default_factory=list)
    _kept: Counter[bool] = field(default_factory=Counter)
    _file: Any = None

    def add(self, flip: Flip) -> None:
        """Count a flip, write it if a file is requested, and keep the first of each kind."""
        if flip.is_right:
            self.right += 1
        else:
            self.wrong += 1
        if self._kept[flip.is_right] < self.limit:
            self._kept[flip.is_right] += 1
            self.kept.append(flip)
        if self._file is not None:
            csv.writer(self._file).writerow(
                replace_text_surrogates("" if value is None else str(value))
                for value in (
                    *(flip.kind, flip.where, flip.document, flip.index, flip.was_answer),
                    *(flip.now_answer, flip.reason, flip.gold, flip.text),
                )
            )

    def write(self, path: Path) -> None:
        """Write all flips to a CSV file, atomically."""
        assert self._file is not None
        self._file.flush()
        replace_file(path, lambda beside: shutil.copyfile(self._file.name, beside))


@contextmanager
def collect_flips(limit: int, writes_file: bool) -> Iterator[Flips]:
    """Provide a ``Flips`` that stores all flips in a temporary file if they will be written."""
    if not writes_file:
        yield Flips(limit)
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", suffix=".csv") as file:
        csv.writer(file).writerow(COLUMNS)
        yield Flips(limit, _file=file)


def format_gold(gold: Any) -> str:
    """Format a gold answer as text."""
    return gold if isinstance(gold, str) else canonical_json(gold)
