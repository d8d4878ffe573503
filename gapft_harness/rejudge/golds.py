"""Which part of a logged row is the gold answer that a verifier takes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Gold
from gapft_harness.rejudge.judge import Judge
from gapft_harness.verdicts.sample_logs import LogRow

#: Fields of documents that hold the gold answer, by their names.
_FIELDS = ("gold", "answer", "solution", "label")
_LETTER = re.compile(r"\s*\(?([A-Z])[.)]?\s*")


@dataclass(frozen=True, slots=True)
class Golds:
    """Where the gold answer of a row is.

    Attributes:
        where: in words.
        read: from a row to the gold answer.
        chosen: whether it was found by trying, not named by the user.
    """

    where: str
    read: Callable[[LogRow], Gold]
    chosen: bool = False

    def of(self, row: LogRow, judge: Judge) -> Gold:
        """A row's gold answer.

        Raises:
            UserError: it has none, or the verifier does not take it; file and line are named.
        """
        gold = self.read(row)
        judge.check(
            [(gold, row.place)],
            f"(gold: {self.where}, for verifier {judge.rule}); --gold FIELD takes another field of "
            "the document, --gold doc the whole document",
        )
        return gold


def golds_of(row: LogRow, field: str | None, judge: Judge) -> Golds:
    """Where the gold answers of a log are, from its first row.

    Args:
        row: the first row.
        field: as the user named it; None: the first that the verifier takes, of lm_eval's
            ``target``, the letter in it, the fields named gold, answer, solution or label, and the
            whole document.
        judge: who takes it.

    Raises:
        UserError: the verifier takes none of these.
    """
    document = row.document
    if field is not None:
        if field == "doc" and "doc" not in document:
            return Golds("the whole document", _document)
        if field == "target" and "target" not in document:
            return Golds("target", _target)
        row.value_at(field)
        return Golds(f"doc.{field}", _field(field))
    tried = [Golds("target", _target, True)] if row.target is not None else []
    if isinstance(row.target, str) and _LETTER.fullmatch(row.target):
        tried.append(Golds("the letter in target", _letter, True))
    tried += [Golds(f"doc.{of}", _field(of), True) for of in _FIELDS if document.get(of)]
    tried.append(Golds("the whole document", _document, True))
    first: UserError | None = None
    for golds in tried:
        try:
            golds.of(row, judge)
        except UserError as error:
            if type(error) is not UserError:
                raise
            first = first or error
        else:
            return golds
    assert first is not None
    raise first


def _document(row: LogRow) -> Gold:
    return row.document


def _target(row: LogRow) -> Gold:
    if row.target is None:
        raise UserError(
            f"{row.place}: has no target, or it is null; expected the gold answer there"
        )
    return row.target


def _letter(row: LogRow) -> Gold:
    found = _LETTER.fullmatch(str(_target(row)))
    return found[1] if found else row.target


def _field(name: str) -> Callable[[LogRow], Gold]:
    return lambda row: row.value_at(name)
