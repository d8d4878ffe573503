"""``gapft judge FILE.jsonl``: judge programs of a file in the sandbox, one JSON line for each."""

from __future__ import annotations

import contextlib
import json
import reprlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from gapft_harness.core.errors import UserError, refuse_unknown
from gapft_harness.core.json_values import parse_object
from gapft_harness.core.text import decode_lines
from gapft_harness.sandbox import Limits, Program, Result, Sandbox, Test
from gapft_harness.sandbox.records import Isolation, Prelude, Tier
from gapft_harness.verification.programs import check_call, check_preload, read_test

_KEYS = ("id", "source", "kind", "function", "tests")

#: The path that means standard input.
STDIN = "-"


@dataclass(frozen=True, slots=True)
class _Record:
    id: str
    program: Program
    tests: tuple[Test, ...]


def judge_file(
    path: str | Path,
    *,
    tier: Tier | Literal["auto"] = "auto",
    workers: int | None = None,
    preload: Sequence[str] = (),
    limits: Limits | None = None,
    prelude: Prelude = "none",
    isolate: Isolation = "program",
    run_all: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
) -> Iterator[str]:
    """Judge every program of a file.

    A seekable file is checked completely before the first program runs; records of a pipe are
    judged as they arrive. Records are read as workers become free, and ids and finished lines are
    stored on disk, so there may be more records than fit into memory.

    Args:
        path: a file with one JSON record per line: ``id``, ``source``, ``kind`` (default
            ``stdin``), ``function`` (the function's name, for kind ``function``) and ``tests``,
            each with ``input`` and ``expected``. ``-`` is standard input.
        tier: see ``Sandbox``; also ``workers``, ``preload``, ``limits`` and ``prelude``.
        isolate: see ``Sandbox.judge``; also ``run_all``.
        progress: called with the number of programs done and the total, None if it is unknown.

    Yields:
        One line of JSON per record, in the file's order, without a line end: ``id``, ``verdict``,
        ``tests`` (each with ``verdict``, ``reason``, ``output``, ``error``, ``cpu_s``), ``tier``.

    Raises:
        UserError: the file or a record is invalid (the message names line and key); in a pipe, the
            records before it are judged first. Or no sandbox tier works on this machine.
        InfrastructureError: the sandbox failed repeatedly.
    """
    names = check_preload(preload)
    report_progress = progress or (lambda done, total: None)
    with _open_file(path) as (file, name):
        total = _count_records(file, name)
        # Ids are stored during this second reading: the file may have changed since the check.
        ids: dict[int, str] = {}
        problem: UserError | None = None

        def yield_items() -> Iterator[tuple[Program, Sequence[Test]]]:
            nonlocal problem
            try:
                for number, record in enumerate(_read_records(file, name)):
                    ids[number] = record.id
                    yield record.program, record.tests
            except UserError as error:
                problem = error  # raised after the records before it are judged

        next_number = finished = 0
        with (
            Sandbox(tier, workers, names, limits, prelude) as sandbox,
            _Database() as notes,
        ):
            stream = sandbox.stream(yield_items(), isolate=isolate, run_all=run_all)
            for number, result in stream:
                notes.keep(number, _format_line(ids.pop(number), result))
                finished += 1
                report_progress(finished, total)
                while (line := notes.take(next_number)) is not None:
                    yield line
                    next_number += 1
        if problem is not None:
            raise problem
        if total is None:
            report_progress(finished, finished)


@contextlib.contextmanager
def _open_file(path: str | Path) -> Iterator[tuple[BinaryIO, str]]:
    """Open the file; yield it with its name for messages."""
    name = "standard input" if str(path) == STDIN else str(path)
    with contextlib.ExitStack() as stack:
        try:
            file = open(0 if str(path) == STDIN else path, "rb", closefd=str(path) != STDIN)  # noqa: SIM115
        except OSError as error:
            raise UserError(f"{name}: cannot be read ({error.strerror})") from error
        yield stack.enter_context(file), name


def _count_records(file: BinaryIO, name: str) -> int | None:
    """Check all records of a seekable file and count them; return None for a pipe."""
    if not file.seekable():
        return None
    start = file.tell()
    count = sum(1 for _ in _read_records(file, name))
    file.seek(start)
    return count


class _Database:
    """A database of ids, and of finished lines that wait for earlier ones; on disk if large."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("")  # a private file that is deleted at close
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("CREATE TABLE ids (id BLOB PRIMARY KEY, line INTEGER) WITHOUT ROWID")
        self._database.execute("CREATE TABLE lines (number INTEGER PRIMARY KEY, line TEXT)")

    def first_line(self, name: str, line: int) -> int:
        """Return the number of the first line with this id: ``line``, or an earlier one."""
        key = name.encode("utf-8", "surrogatepass")
        self._database.execute("INSERT OR IGNORE INTO ids VALUES (?, ?)", (key, line))
        row = self._database.execute("SELECT line FROM ids WHERE id = ?", (key,)).fetchone()
        return int(row[0])

    def keep(self, number: int, line: str) -> None:
        """Store the line of a record until ``take`` removes it."""
        self._database.execute("INSERT INTO lines VALUES (?, ?)", (number, line))

    def take(self, number: int) -> str | None:
        """Remove and return the line of a record; None if it is not stored."""
        query = "SELECT line FROM lines WHERE number = ?"
        row = self._database.execute(query, (number,)).fetchone()
        self._database.execute("DELETE FROM lines WHERE number = ?", (number,))
        return None if row is None else str(row[0])

    def __enter__(self) -> _Database:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()


def _format_line(name: str, result: Result) -> str:
    tests = [
        {
            "verdict": test.verdict,
            "reason": test.reason,
            "output": test.output,
            "error": test.error,
            "cpu_s": round(test.cpu_s, 3),
        }
        for test in result.tests
    ]
    record = {"id": name, "verdict": result.verdict, "tests": tests, "tier": result.tier}
    return json.dumps(record)


def _read_records(file: BinaryIO, name: str) -> Iterator[_Record]:
    """Read the records one by one."""
    record = None
    with _Database() as notes:
        for number, line in _read_lines(file, name):
            record = _parse_record(line, f"{name}, line {number}")
            if (first_line := notes.first_line(record.id, number)) != number:
                raise UserError(
                    f"{name}, line {number}: id {record.id!r} also occurs on line {first_line}; "
                    "expected unique ids"
                )
            yield record
    if record is None:
        raise UserError(f"{name}: found no record, expected one JSON object per line")


def _read_lines(file: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers."""
    try:
        yield from ((number, line) for number, line in decode_lines(file, name) if line.strip())
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror})") from error


def _parse_record(line: str, where: str) -> _Record:
    record = parse_object(line, where)
    refuse_unknown(record, _KEYS, where)
    for key in ("id", "source", "tests"):
        if key not in record:
            raise UserError(f"{where}: the key {key!r} is missing")
    name = record["id"]
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise UserError(f"{where}: id: found {reprlib.repr(name)}, expected text or an integer")
    raw_tests = record["tests"]
    if not isinstance(raw_tests, list) or not raw_tests:
        raise UserError(
            f"{where}: tests: found {'none' if raw_tests == [] else type(raw_tests).__name__}, "
            "expected a list of at least one (a program without tests is never accepted)"
        )
    source = _require_text(record, "source", where)
    try:
        program = Program(source, record.get("kind", "stdin"), record.get("function"))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{where}: {error}") from error
    tests = [read_test(test, f"{where}: test {number}") for number, test in enumerate(raw_tests, 1)]
    if program.kind == "function":
        for number, test in enumerate(tests, 1):
            check_call(test, f"{where}: test {number}")
    return _Record(str(name), program, tuple(tests))


def _require_text(record: dict[str, Any], key: str, where: str) -> str:
    value = record[key]
    if not isinstance(value, str):
        raise UserError(f"{where}: {key}: found {type(value).__name__}, expected text")
    return value
