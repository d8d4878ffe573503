"""What a file of responses says, whatever its format: one response after another."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.records import Verdict
from gapft_harness.core.text import unreadable, whole_text
from gapft_harness.run_directory.manifest import TAKEN

#: By what a row names its problem: ``id``, ``prompt`` or ``doc``, and the id, prompt or document.
Key = tuple[str, Any]


@dataclass(frozen=True, slots=True)
class ImportChoice:
    """What the user of ``gapft import`` chose.

    Attributes:
        files: responses; with ``greedy``, samples alone.
        greedy: a file of greedy responses; None: they are among ``files``.
        judge: have the task's verifier judge; else the files' verdicts are taken over.
        metric: the field or metric that says whether a response passed; None: the format's own.
        filter: lm-eval's filter, whose rows are taken; None: the first row's.
        on: pairs (field of a row, field of the task's document) by which documents are joined.
        ignore_unknown: leave out responses whose problem the split has not.
    """

    files: Sequence[str]
    greedy: str | None = None
    judge: bool = False
    metric: str | None = None
    filter: str | None = None
    on: Sequence[Sequence[str]] = ()
    ignore_unknown: bool = False

    def arguments(self) -> dict[str, Any]:
        """As the arguments of a job: JSON values."""
        told: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return told

    @property
    def paths(self) -> list[str]:
        """All files, the greedy one first."""
        return [*([self.greedy] if self.greedy else []), *self.files]

    def hashes(self) -> dict[str, str]:
        """Each file's hash, in their order.

        Raises:
            UserError: one is not there, or is no file that can be read more than once.
        """
        for given in self.paths:
            path = Path(given)
            if path.is_dir():
                raise UserError(f"{path}: is a folder; expected files of responses")
            if path.exists() and not path.is_file():
                raise UserError(
                    f"{path}: is no file (a pipe?), and an import reads what it takes more than "
                    "once; write it to a file first"
                )
        found: dict[str, str] = {}
        try:
            for given in self.paths:
                found[given] = sha256(Path(given))
        except OSError as error:
            raise UserError(unreadable(Path(given), error)) from error
        return found


@dataclass(frozen=True, slots=True)
class ImportedResponse:
    """One response of a file.

    Attributes:
        line: where it stands in the file, from 1.
        place: file and line, for a message.
        key: names its problem.
        index: ``GREEDY``, or a sample's number; in a format without numbers, that within the file.
        text: the response.
        verdict: the file's; None where it says nothing, or is not asked.
        told_by: what in the file says it.
        finish_reason: ``stop``, ``length``, ``unknown`` or ``context``.
        rule: what must be the same in all rows, or one text could pass and fail; by kind.
    """

    line: int
    place: str
    key: Key
    index: int
    text: str
    verdict: Verdict | None
    told_by: str
    finish_reason: str = "unknown"
    rule: Mapping[str, str] = field(default_factory=dict)


#: Reads a file; ``greedy``: it holds greedy responses alone.
Read = Callable[[Path, ImportChoice, bool], Iterator[ImportedResponse]]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of files.

    Attributes:
        name: as the manifest and messages say it.
        read: reads a file.
        numbered: whether rows say which sample they are, over all files; else those of a second
            file come after those of the first.
        on: what joins its rows with documents, where the user says nothing.
        filters: whether rows are of filters, of which one is taken.
    """

    name: str
    read: Read
    numbered: bool = False
    on: Sequence[Sequence[str]] = ()
    filters: bool = False


def verdict_of(value: Any, name: str, place: str) -> Verdict:
    """A verdict that a file tells by a number or a truth value.

    Raises:
        UserError: it is neither 0 nor 1.
    """
    if not isinstance(value, bool | int | float) or value not in (0, 1):
        raise UserError(
            f"{place}: {name} is {json.dumps(value, default=str)[:60]}, and a verdict is 0 or 1 "
            "(false or true); name another field or metric (--metric), or have the task's verifier "
            "judge (--judge)"
        )
    return taken(bool(value))


def taken(passed: bool) -> Verdict:
    """A verdict of a file, marked as such."""
    return Verdict("pass" if passed else "fail", TAKEN)


def text_of(record: Mapping[str, Any], field: str, place: str) -> str:
    """A text field of a row.

    Raises:
        UserError: it is missing or no text.
    """
    value = record.get(field)
    if not isinstance(value, str):
        found = json.dumps(value, default=str)[:60] if field in record else "nothing"
        raise UserError(f"{place}: key {field!r}: found {found}; expected a string")
    return whole_text(value)
