"""A split's records with their places, from files (JSON lines or one JSON list) or rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, overload

from annotated_types import Len
from pydantic import ConfigDict, ValidationError, create_model

from gapft_harness.core.errors import UserError
from gapft_harness.core.json_values import (
    find_json_fault,
    parse_json,
    read_objects,
    require_object,
)
from gapft_harness.core.text import read_lines, read_text
from gapft_harness.core.validation import describe_fault

Document = dict[str, Any]


class Documents(Sequence[Document]):
    """A split's records with the place of each; used where lm-eval expects a dataset.

    Attributes:
        dropped: notes with counts of dropped records.
        unpublished: the count that differs from the paper's; empty if it does not.
    """

    def __init__(
        self,
        records: Sequence[Document],
        places: Sequence[str],
        dropped: Sequence[str] = (),
        unpublished: str = "",
    ) -> None:
        """Pair records with their places, such as ``train.jsonl, line 7``."""
        self._records = list(records)
        self._places = list(places)
        self.dropped = tuple(dropped)
        self.unpublished = unpublished

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> Documents: ...
    def __getitem__(self, index: int | slice) -> Document | Documents:
        """Return one record, or some of them."""
        if isinstance(index, slice):
            return Documents(self._records[index], self._places[index])
        return self._records[index]

    def __iter__(self) -> Iterator[Document]:
        """Iterate over the records in the file's order."""
        return iter(self._records)

    def __add__(self, other: Documents) -> Documents:
        """Return these records followed by the others."""
        return Documents(self._records + other._records, self._places + other._places)

    @property
    def features(self) -> dict[str, None]:
        """The first record's field names, for lm-eval's check of templates."""
        return dict.fromkeys(self._records[0]) if self._records else {}

    def describe_place(self, index: int) -> str:
        """Return a record's file and line, for error messages."""
        return self._places[index]

    def where(self, keep: Callable[[Document], bool]) -> Documents:
        """Return the records that ``keep`` accepts."""
        rows = [row for row, record in enumerate(self._records) if keep(record)]
        return Documents([self._records[r] for r in rows], [self._places[r] for r in rows])

    #: The name of this method in the library ``datasets``.
    filter = where

    def keep(
        self, accept: Callable[[Document], bool], split: str, records: str, reason: str
    ) -> Documents:
        """Return the records that a function accepts, with a note on the others.

        Args:
            accept: the function.
            split: the split's name for the note, such as ``MATH pool``.
            records: what the records are, such as ``problems of train``.
            reason: why the others are dropped.
        """
        rest = self.where(accept)
        note = (
            f"{split}: {len(self) - len(rest)} of {len(self)} {records} dropped ({reason}); "
            f"{len(rest)} kept"
        )
        return rest.with_notes((*self.dropped, note))

    def with_notes(self, dropped: Sequence[str], unpublished: str = "") -> Documents:
        """Return the same records with these notes."""
        return Documents(self._records, self._places, dropped, unpublished)

    def map(self, change: Callable[[Document], Document]) -> Documents:
        """Return all records after ``change``, with the same places."""
        return Documents([change(record) for record in self._records], self._places)


def number_records(rows: Iterable[Any], place: str) -> Documents:
    """Add places to records: their own if they have any, else ``place`` and their number."""
    if isinstance(rows, Documents):
        return rows
    records = [dict(row) for row in rows]
    return Documents(records, [f"{place}, record {n}" for n in range(1, len(records) + 1)])


def to_json_record(row: Mapping[str, Any]) -> Document:
    """Convert a dataset's row to JSON values (a date becomes text)."""
    document: Document = json.loads(json.dumps(dict(row), default=str, ensure_ascii=False))
    return document


def read_documents(path: Path) -> Documents:
    """Read a file of records: JSON lines or one JSON list of objects.

    Raises:
        UserError: the file is missing, empty, not UTF-8, truncated or malformed, or has values
            that are not objects; the message names the line.
    """
    first = next((line for _, line in read_lines(path) if line.strip()), "")
    pairs = [*(_read_list(path) if first.lstrip()[:1] == "[" else stream_documents(path))]
    if not pairs:
        raise UserError(f"{path}: no records; expected at least one")
    return Documents([record for record, _ in pairs], [place for _, place in pairs])


def stream_documents(path: Path) -> Iterator[tuple[Document, str]]:
    """Yield the records of a JSON-lines file with their places, one line in memory at a time.

    Raises:
        UserError: as in ``read_documents``.
    """
    for _, record, place in read_objects(path):
        yield _require_json(record, place), place


def _read_list(path: Path) -> Iterator[tuple[Document, str]]:
    """Yield the records of a JSON list with their places."""
    for number, record in enumerate(parse_json(read_text(path), str(path)), start=1):
        place = f"{path}, record {number}"
        yield _require_json(require_object(record, place), place), place


def _require_json(record: Document, place: str) -> Document:
    """Return a record that can be written and read everywhere.

    Raises:
        UserError: it is nested too deeply, or contains half of a surrogate pair.
    """
    if fault := find_json_fault(record):
        raise UserError(f"{place}: the record {fault}")
    return record


def check_fields(documents: Documents, fields: Mapping[str, Any]) -> None:
    """Check that every record has the fields with the right types.

    Raises:
        UserError: a field is missing or has another type; the message names file and line.
    """
    types: dict[str, Any] = {name: (kind, ...) for name, kind in fields.items()}
    model = create_model("Record", __config__=ConfigDict(strict=True), **types)
    for row, document in enumerate(documents):
        try:
            model.model_validate(document)
        except ValidationError as error:
            fault = error.errors()[0]
            raise UserError(
                f"{documents.describe_place(row)}: {describe_fault(fault, fault['loc'])} "
                "(docs/tasks.md has the format)"
            ) from error


def check_choice(documents: Documents, answer: str, options: str) -> None:
    """Check that the options are 2 to 26 texts and the answer is the index of one.

    Raises:
        UserError: they are not; the message names file and line.
    """
    check_fields(documents, {answer: int, options: Annotated[list[str], Len(2, 26)]})
    for row, document in enumerate(documents):
        if not 0 <= document[answer] < len(document[options]):
            raise UserError(
                f"{documents.describe_place(row)}: the gold answer {answer!r} is "
                f"{document[answer]}; expected the index of an option, 0 to "
                f"{len(document[options]) - 1}"
            )
