"""Responses whose verdict flipped: counted, the first kept, all written to a file if one is asked.

Texts are not held in memory: a log may have more flips than it holds.
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
from gapft_harness.core.identities import canonical
from gapft_harness.core.text import whole_text

COLUMNS = (
    "flip", "where", "document", "response", "was_answer", "now_answer", "reason", "gold", "text",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Flip:
    """One response whose verdict flipped.

    Attributes:
        where: the log and its line.
        document: lm_eval's number of the document.
        index: number of the response, from 0.
        right: whether it is right now; else it was.
        was_answer: what the earlier rule read as the answer, if that is known.
        now_answer: what the new rule reads; None: nothing, or its verifier does not say.
        reason: why it is not right now.
        gold: the gold answer, as JSON if it is no text.
    """

    where: str
    document: str
    index: int
    right: bool
    was_answer: str | None
    now_answer: str | None
    reason: str
    gold: str
    text: str

    @property
    def kind(self) -> str:
        """What a table calls it."""
        return "right now" if self.right else "wrong now"


@dataclass(slots=True)
class Flips:
    """All flips.

    Attributes:
        most: of each kind as many are kept.
        right: how many are right now that were wrong.
        wrong: how many are wrong now that were right.
        kept: the first of each kind.
    """

    most: int
    right: int = 0
    wrong: int = 0
    kept: list[Flip] = field(default_factory=list)
    _kept: Counter[bool] = field(default_factory=Counter)
    _file: Any = None

    def add(self, flip: Flip) -> None:
        """Count a flip, write it if a file is asked for, and keep the first of each kind."""
        if flip.right:
            self.right += 1
        else:
            self.wrong += 1
        if self._kept[flip.right] < self.most:
            self._kept[flip.right] += 1
            self.kept.append(flip)
        if self._file is not None:
            csv.writer(self._file).writerow(
                whole_text("" if value is None else str(value))
                for value in (
                    *(flip.kind, flip.where, flip.document, flip.index, flip.was_answer),
                    *(flip.now_answer, flip.reason, flip.gold, flip.text),
                )
            )

    def write(self, path: Path) -> None:
        """Writes all to a CSV file, which is whole or absent."""
        assert self._file is not None
        self._file.flush()
        replace_file(path, lambda beside: shutil.copyfile(self._file.name, beside))


@contextmanager
def collecting(most: int, written: bool) -> Iterator[Flips]:
    """Takes in flips; where they will be written, on disk meanwhile."""
    if not written:
        yield Flips(most)
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", suffix=".csv") as file:
        csv.writer(file).writerow(COLUMNS)
        yield Flips(most, _file=file)


def shown(gold: Any) -> str:
    """A gold answer as text."""
    return gold if isinstance(gold, str) else canonical(gold)
