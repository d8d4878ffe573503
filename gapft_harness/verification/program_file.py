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
from gapft_harness.core.text import decoded
from gapft_harness.sandbox import Limits, Program, Result, Sandbox, Test
from gapft_harness.sandbox.records import Compat, Isolation, Prelude, Tier
from gapft_harness.verification.programs import check_call, importable, read_test

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
    compat: Compat | None = None,
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
        isolate: see ``Sandbox.judge``; also ``compat`` and ``run_all``.
        progress: called with the number of programs done and the total, None if it is unknown.

    Yields:
        One line of JSON per record, in the file's order, without a line end: ``id``, ``verdict``,
        ``tests`` (each with ``verdict``, ``reason``, ``output``, ``error``, ``cpu_s``), ``tier``.

    Raises:
        UserError: the file or a record is invalid (the message names line and key); in a pipe, the
            records before it are judged first. Or no sandbox tier works on this machine.
        InfrastructureError: the sandbox failed repeatedly.
    """
    names = importable(preload)
    report = progress or (lambda done, total: None)
    with _opened(path) as (file, name):
        total = _check(file, name)
        # Ids are stored during this second reading: the file may have changed since the check.
        ids: dict[int, str] = {}
        problem: UserError | None = None

        def items() -> Iterator[tuple[Program, Sequence[Test]]]:
            nonlocal problem
            try:
                for number, record in enumerate(_read(file, name)):
                    ids[number] = record.id
                    yield record.program, record.tests
            except UserError as error:
                problem = error  # raised after the records before it are judged

        following = finished = 0
        with (
            Sandbox(tier, workers, names, limits, prelude) as sandbox,
            _Notes() as notes,
        ):
            stream = sandbox.stream(items(), isolate=isolate, compat=compat, run_all=run_all)
            for number, result in stream:
                notes.keep(number, _line(ids.pop(number), result))
                finished += 1
                report(finished, total)
                while (line := notes.take(following)) is not None:
                    yield line
                    following += 1
        if problem is not None:
            raise problem
        if total is None:
            report(finished, finished)


@contextlib.contextmanager
def _opened(path: str | Path) -> Iterator[tuple[BinaryIO, str]]:
    """Open the file; yield it with its name for messages."""
    name = "standard input" if str(path) == STDIN else str(path)
    with contextlib.ExitStack() as stack:
        try:
            file = open(0 if str(path) == STDIN else path, "rb", closefd=str(path) != STDIN)  # noqa: SIM115
        except OSError as error:
            raise UserError(f"{name}: cannot be read ({error.strerror})") from error
        yield stack.enter_context(file), name


def _check(file: BinaryIO, name: str) -> int | None:
    """Check all records of a seekable file and count them; return None for a pipe."""
    if not file.seekable():
        return None
    start = file.tell()
    count = sum(1 for _ in _read(file, name))
    file.seek(start)
    return count


class _Notes:
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
        found = self._database.execute("SELECT line FROM ids WHERE id = ?", (key,)).fetchone()
        return int(found[0])

    def keep(self, number: int, line: str) -> None:
        """Store the line of a record until ``take`` removes it."""
        self._database.execute("INSERT INTO lines VALUES (?, ?)", (number, line))

    def take(self, number: int) -> str | None:
        """Remove and return the line of a record; None if it is not stored."""
        query = "SELECT line FROM lines WHERE number = ?"
        found = self._database.execute(query, (number,)).fetchone()
        self._database.execute("DELETE FROM lines WHERE number = ?", (number,))
        return None if found is None else str(found[0])

    def __enter__(self) -> _Notes:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()


def _line(name: str, result: Result) -> str:
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


def _read(file: BinaryIO, name: str) -> Iterator[_Record]:
    """Read the records one by one."""
    record = None
    with _Notes() as notes:
        for number, line in _lines(file, name):
            record = _parse(line, f"{name}, line {number}")
            if (first := notes.first_line(record.id, number)) != number:
                raise UserError(
                    f"{name}, line {number}: id {record.id!r} also occurs on line {first}; "
                    "expected unique ids"
                )
            yield record
    if record is None:
        raise UserError(f"{name}: found no record, expected one JSON object per line")


def _lines(file: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with their numbers."""
    try:
        yield from ((number, line) for number, line in decoded(file, name) if line.strip())
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror})") from error


def _parse(line: str, where: str) -> _Record:
    record = parse_object(line, where)
    refuse_unknown(record, _KEYS, where)
    for key in ("id", "source", "tests"):
        if key not in record:
            raise UserError(f"{where}: the key {key!r} is missing")
    name = record["id"]
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise UserError(f"{where}: id: found {reprlib.repr(name)}, expected text or an integer")
    found = record["tests"]
    if not isinstance(found, list) or not found:
        raise UserError(
            f"{where}: tests: found {'none' if found == [] else type(found).__name__}, expected a "
            "list of at least one (a program without tests is never accepted)"
        )
    source = _text(record, "source", where)
    try:
        program = Program(source, record.get("kind", "stdin"), record.get("function"))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{where}: {error}") from error
    tests = [read_test(test, f"{where}: test {number}") for number, test in enumerate(found, 1)]
    if program.kind == "function":
        for number, test in enumerate(tests, 1):
            check_call(test, f"{where}: test {number}")
    return _Record(str(name), program, tuple(tests))


def _text(record: dict[str, Any], key: str, where: str) -> str:
    value = record[key]
    if not isinstance(value, str):
        raise UserError(f"{where}: {key}: found {type(value).__name__}, expected text")
    return value
