"""The outputs of a run: its files, and ``run.json``, which tells what each was made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256_cached, write_json
from gapft_harness.core.json_values import parse_object
from gapft_harness.core.text import describe_read_error
from gapft_harness.engine.differences import take_unavailable
from gapft_harness.engine.outputs import Facts, Json, Output
from gapft_harness.engine.step import Step
from gapft_harness.engine.store import place_link, remove_path

#: The file of a run with the records of its outputs.
RECORDS: Final = "run.json"

#: Parts of a key that may differ from a recorded output's: it stays if only the machine changed.
_FREE_PARTS = ("machine",)


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


class Run:
    """The outputs of one run.

    Args:
        path: the run directory.
    """

    def __init__(self, path: Path) -> None:
        self.folder = path
        self._records: dict[str, Record] | None = None

    def read_records(self) -> Mapping[str, Record]:
        """Read the records of outputs by name, the path in the run; once for this object.

        Raises:
            UserError: they cannot be read.
        """
        if self._records is None:
            self._records = self._read_file()
        return self._records

    def _read_file(self) -> dict[str, Record]:
        path = self.folder / RECORDS
        if not path.exists():
            return {}
        try:
            content = parse_object(path.read_text(encoding="utf-8"), str(path))
            return {name: Record(**entry) for name, entry in content.items()}
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(describe_read_error(path, error)) from error
        except TypeError as error:
            raise UserError(f"{path}: damaged ({error}); restore it") from error

    def path(self, name: str) -> Path:
        """Return the path of an output after checking its content.

        Raises:
            UserError: it does not exist yet, or was changed after it was made.
        """
        record, path = self.read_records().get(name), self.folder / name
        if record is None or not path.exists():
            raise UserError(
                f"{path}: does not exist yet; run the stage that makes it first (gapft run runs "
                "all stages)"
            )
        if sha256_cached(path) != record.digest:
            raise UserError(
                f"{path}: was changed after it was made (its hash differs from {RECORDS}); restore "
                "it, or delete it: the same command then makes it again"
            )
        return path

    def read_output(self, name: str) -> Output:
        """Return a recorded output; its content is not checked."""
        return Output(self.folder / name, self.read_records()[name].facts)

    def find(self, step: Step, free_parts: Iterable[str] = _FREE_PARTS) -> Output | None:
        """Return the output of a step, if the run has it.

        Parts of its key that are not known on this machine are not compared.

        Args:
            step: the step.
            free_parts: parts of its key that may differ from the recorded ones.

        Raises:
            UserError: the output was changed after it was made.
            NotKnownYet: an input of the step does not exist yet.
        """
        record = self.read_records().get(step.name)
        if record is None or not (self.folder / step.name).exists():
            return None
        free = {*free_parts}
        recorded, current = (
            {part: value for part, value in content.items() if part not in free}
            for content in (record.made_from, take_unavailable(record.made_from, step.made_from))
        )
        return Output(self.path(step.name), record.facts) if recorded == current else None

    def put(self, outputs: Mapping[str, tuple[Step, Output]]) -> dict[str, Output]:
        """Link outputs into the run and record them.

        Args:
            outputs: the steps and their outputs, by the name in the run.

        Returns:
            The outputs in the run.
        """
        records = {**self.read_records()}
        for name, (step, output) in outputs.items():
            place_link(output.path, self.folder / name)
            digest = sha256_cached(output.path)
            records[name] = Record(step.place, step.made_from, digest, output.facts)
        self._write_records(records)
        return {
            name: Output(self.folder / name, output.facts) for name, (_, output) in outputs.items()
        }

    def remove(self, names: Iterable[str]) -> None:
        """Remove outputs and their records; the store keeps them."""
        removed = {*names}
        records = self.read_records()
        self._write_records({n: record for n, record in records.items() if n not in removed})
        for name in removed:
            remove_path(self.folder / name)

    def _write_records(self, records: Mapping[str, Record]) -> None:
        if {**records} != self.read_records():
            content = {name: asdict(record) for name, record in sorted(records.items())}
            write_json(self.folder / RECORDS, content)
            self._records = {**records}
