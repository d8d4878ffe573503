"""``run.json``: what each output of a run was made from, and facts of the run itself."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256, write_json
from gapft_harness.core.json_values import parse_object
from gapft_harness.core.text import describe_read_error
from gapft_harness.engine.differences import take_unavailable
from gapft_harness.engine.outputs import Facts, Json, Output
from gapft_harness.engine.step import Step
from gapft_harness.engine.store import place_link, remove_complete

#: The file of a run with the records of its outputs.
RECORDS: Final = "run.json"

#: Its format. It increases with every change that could make an earlier run be misread;
#: CHANGELOG.md describes what a change means for existing runs.
FORMAT: Final = 8

#: Parts of a key that may differ from a recorded output's: it stays if only the machine changed.
_FREE_PARTS = ("machine",)

#: The entries of the file that are not facts of the run itself.
_FORMAT_KEY, _OUTPUTS_KEY = "format", "outputs"


@dataclass(frozen=True)
class Record:
    """What a run records of one output.

    Attributes:
        place: the folder in the store, ``FUNCTION/KEY``.
        made_from: the content of the key.
        digest: the hash of the output's bytes.
        facts: what its step reported.
    """

    place: str
    made_from: Mapping[str, Json]
    digest: str
    facts: Facts


@dataclass(frozen=True)
class _Content:
    """The content of ``run.json``, with what tells whether the file was replaced since."""

    stamp: tuple[int, ...] = ()
    facts: dict[str, Json] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)


class Run:
    """The outputs of one run, and facts of the run itself.

    Only the process that holds the run's lock may write.

    Args:
        path: the run directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._content = _Content()

    def read_records(self) -> Mapping[str, Record]:
        """Read the records of outputs by name, the path in the run; empty without ``run.json``.

        Raises:
            UserError: they cannot be read.
        """
        return self._read().records

    def read_facts(self) -> dict[str, Json]:
        """Read the facts of the run itself; empty without ``run.json``.

        Raises:
            UserError: they cannot be read.
        """
        return copy.deepcopy(self._read().facts)

    def write_facts(self, facts: Mapping[str, Json]) -> None:
        """Write facts of the run itself; those of other names stay."""
        self._write({**self.read_facts(), **facts}, self.read_records())

    def has(self, file: str) -> bool:
        """Return whether a file or folder is recorded: as an output, or as a part of one."""
        return self._find_name(file) is not None

    def file(self, file: str) -> Path:
        """Return the path of an output, or of a file in one, after checking the output's content.

        Raises:
            UserError: it does not exist yet, has no record, or was changed after it was made.
        """
        name = self._find_name(file)
        path = self.path / file
        if name is None and path.exists():
            raise UserError(
                f"{path}: has no record in {RECORDS}, so it is not known what it was made from; "
                f"gapft run {self.path} makes it again"
            )
        if name is None or not path.exists():
            raise UserError(describe_missing(path))
        if sha256(self.path / name) != self.read_records()[name].digest:
            raise UserError(
                f"{path}: was changed after it was made (its hash differs from {RECORDS}); restore "
                "it, or delete it: the same command then makes it again"
            )
        return path

    def _find_name(self, file: str) -> str | None:
        """Return the name of the output that a file is, or is a part of; None for others."""
        records = self.read_records()
        names = (file, *map(str, PurePosixPath(file).parents))
        return next((name for name in names if name in records), None)

    def find(
        self,
        step: Step,
        free_parts: Iterable[str] = _FREE_PARTS,
        *,
        accepts_names: bool = False,
    ) -> Output | None:
        """Return the output of a step, if the run has it.

        Parts of its key that are not known on this machine are not compared.

        Args:
            step: the step.
            free_parts: parts of its key that may differ from the recorded ones.
            accepts_names: as for ``take_unavailable``; true only if nothing is made.

        Raises:
            UserError: the output was changed after it was made.
            NotKnownYet: an input of the step does not exist yet.
        """
        record = self.read_records().get(step.name)
        if record is None or not (self.path / step.name).exists():
            return None
        free = {*free_parts}
        recorded = record.made_from
        current = take_unavailable(recorded, step.made_from, accepts_names=accepts_names)
        recorded, current = (
            {part: value for part, value in content.items() if part not in free}
            for content in (recorded, current)
        )
        return Output(self.file(step.name), record.facts) if recorded == current else None

    def put(self, outputs: Mapping[str, tuple[Step, Output]]) -> dict[str, Output]:
        """Link outputs into the run and record them.

        Args:
            outputs: the steps and their outputs, by the name in the run.

        Returns:
            The outputs in the run.
        """
        new = {
            name: Record(step.place, step.made_from, sha256(output.path), output.facts)
            for name, (step, output) in outputs.items()
        }
        records = self.read_records()
        kept = {
            name: record
            for name, record in records.items()
            if name not in new or record.digest == new[name].digest
        }
        self._write(self.read_facts(), kept)  # after a kill no record is that of other content
        for name, (_, output) in outputs.items():
            place_link(output.path, self.path / name)
        self._write(self.read_facts(), {**records, **new})
        return {
            name: Output(self.path / name, output.facts) for name, (_, output) in outputs.items()
        }

    def remove(self, names: Iterable[str]) -> None:
        """Remove outputs and then their records; the store keeps them."""
        removed = {*names}
        for name in removed:
            remove_complete(self.path / name)
        records = self.read_records()
        kept = {name: record for name, record in records.items() if name not in removed}
        self._write(self.read_facts(), kept)

    def _read(self) -> _Content:
        """Read the file, unless it is the one that was read last."""
        path = self.path / RECORDS
        try:
            stamp = _read_stamp(path)
            if stamp != self._content.stamp:
                self._content = _parse(path, stamp, path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            self._content = _Content()
        except OSError as error:
            raise UserError(describe_read_error(path, error)) from error
        except UnicodeDecodeError as error:
            raise _damaged_error(path, "it is not text") from error
        return self._content

    def _write(self, facts: dict[str, Json], records: Mapping[str, Record]) -> None:
        if (facts, records) == (self._read().facts, self.read_records()):
            return
        outputs = {name: asdict(record) for name, record in sorted(records.items())}
        path = self.path / RECORDS
        write_json(path, {_FORMAT_KEY: FORMAT, **facts, _OUTPUTS_KEY: outputs})
        self._content = _Content(_read_stamp(path), facts, {**records})


def describe_missing(path: Path) -> str:
    """Describe that an output of a run does not exist."""
    return (
        f"{path}: does not exist yet; run the stage that makes it first (gapft run runs all stages)"
    )


def _read_stamp(path: Path) -> tuple[int, ...]:
    """Return what changes if a file is replaced."""
    status = os.stat(path)
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _parse(path: Path, stamp: tuple[int, ...], text: str) -> _Content:
    try:
        content = parse_object(text, RECORDS)
    except UserError as error:
        raise _damaged_error(path, str(error)) from error
    if (found := content.pop(_FORMAT_KEY, None)) != FORMAT:
        raise UserError(
            f"{path}: format {found!r}, but this version reads format {FORMAT}: use the version "
            "that made the run, or start a new run directory"
        )
    outputs = content.pop(_OUTPUTS_KEY, {})
    if not isinstance(outputs, dict):
        raise _damaged_error(path, f"{_OUTPUTS_KEY} is not an object")
    records = {name: _parse_record(path, name, entry) for name, entry in outputs.items()}
    return _Content(stamp, content, records)


def _parse_record(path: Path, name: str, entry: Json) -> Record:
    try:
        record = Record(**entry)
    except TypeError as error:
        raise _damaged_error(path, f"the record of {name}: {error}") from error
    types = {"place": str, "made_from": dict, "digest": str, "facts": dict}
    if not all(isinstance(entry[key], kind) for key, kind in types.items()):
        raise _damaged_error(path, f"the record of {name} has values of other types")
    return record


def _damaged_error(path: Path, reason: str) -> UserError:
    return UserError(
        f"{path}: damaged ({reason}); restore it, or delete it: gapft run {path.parent} (with "
        "--plugin and --include-path as before) then makes it again, with the outputs that the "
        "store has"
    )
