"""Hold the recorded outputs of a run against the pipeline, for ``gapft verify``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import describe_error
from gapft_harness.core.files import sha256
from gapft_harness.core.identities import content_hash
from gapft_harness.engine.differences import describe_values, take_unavailable
from gapft_harness.engine.outputs import (
    Json,
    NotKnownYet,
    Output,
    Unknown,
    hash_content,
)
from gapft_harness.engine.run import RECORDS, Record, Run
from gapft_harness.engine.runner import call_function
from gapft_harness.engine.step import Step

#: A check of outputs that are not made again: yields a sentence for each difference.
Check = Callable[[Step, Output], Iterable[str]]


@dataclass
class Checker:
    """Compares recorded outputs with the steps that a pipeline requests.

    A key must follow from recipe, inputs and plugins, with the machine that was recorded. Cheap
    steps run again; others are checked by a function of their own.

    Attributes:
        run: the run.
        checks: the checks of steps that are not cheap, by their function.
        plugins: names of the plugins' files and packages whose code is hashed in keys.
        differences: a sentence for each difference.
        missing: the names of outputs that do not exist yet.
        checked: the names of outputs that were compared.
        made_again: those of them that were made again.
        remarks: sentences on libraries and machines that differ from these.
    """

    run: Run
    checks: Mapping[Callable[..., object], Check] = field(default_factory=dict)
    plugins: Sequence[str] = ()
    differences: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    made_again: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    _machines: dict[str, tuple[str, Json]] = field(default_factory=dict)

    def __call__(self, steps: Iterable[Step]) -> dict[str, Output | Unknown]:
        """Check the outputs of steps, and return the recorded ones by name."""
        return {step.name: self._check(step) for step in steps}

    def check_others(self) -> None:
        """Check the records of outputs that no step requested."""
        for name, record in self.run.read_records().items():
            if name not in (*self.checked, *self.missing):
                self.differences += _check_record(name, record)
                self.differences += _check_bytes(self.run.path / name, name, record)

    def _check(self, step: Step) -> Output | Unknown:
        record = self.run.read_records().get(step.name)
        path = self.run.path / step.name
        if record is None:
            self.missing.append(step.name)
            return Unknown(f"{step.name} is not made")
        self.checked.append(step.name)
        self.differences += _check_record(step.name, record)
        self.differences += _check_bytes(path, step.name, record)
        if not path.exists():
            return Unknown(f"{step.name} does not exist")
        output = Output(path, record.facts)
        try:
            self.differences += self._compare_key(step, record)
            if step.cheap:
                self.differences += _make_again(step, output)
                self.made_again.append(step.name)
            elif (check := self.checks.get(step.function)) is not None:
                self.differences += check(step, output)
        except NotKnownYet as error:
            self.differences.append(f"{step.name}: exists, but {error}")
        except Exception as error:  # damaged files make their readers raise nearly anything
            self.differences.append(f"{step.name}: cannot be checked ({describe_error(error)})")
        return output

    def _compare_key(self, step: Step, record: Record) -> Iterator[str]:
        recorded_machine = record.made_from.get("machine")
        expected = replace(step, machine=recorded_machine or {}).made_from
        expected = take_unavailable(record.made_from, expected)
        names = f" ({', '.join(self.plugins)})" if self.plugins else ""
        relation = f"but recipe, inputs and plugins{names} give"
        place = f"{RECORDS}, {step.name}"
        yield from describe_values(place, record.made_from, expected, relation)
        function = str(record.made_from.get("function"))
        other, machine = self._machines.setdefault(function, (step.name, recorded_machine))
        if machine != recorded_machine:
            place = f"{RECORDS}, the machines of {other} and {step.name}"
            yield from describe_values(place, machine, recorded_machine, "and")
        elif other == step.name:
            machine_here = dict(step.machine)
            self.remarks += describe_values(
                "the machine", recorded_machine, machine_here, "here it is"
            )


def _check_record(name: str, record: Record) -> Iterator[str]:
    """Yield a fault of a record whose key does not follow from its content."""
    if content_hash(record.made_from) != record.place.rpartition("/")[2]:
        yield f"{RECORDS}, {name}: its key does not follow from made_from"
    function = str(record.made_from.get("function")).rpartition(":")[2]
    if function != record.place.rpartition("/")[0]:
        yield f"{RECORDS}, {name}: its place is not that of its function {function}"


def _check_bytes(path: Path, name: str, record: Record) -> Iterator[str]:
    if not path.exists():
        yield f"{name}: does not exist"
    elif sha256(path) != record.digest:
        yield f"{name}: was changed after it was made (its hash differs from {RECORDS})"


def _make_again(step: Step, output: Output) -> Iterator[str]:
    """Run a step again and yield the differences of its output and its facts."""
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / Path(step.name).name
        values = {**step.settings, **step.operational}
        facts = call_function(step.function_name, again, step.list_paths(), values)
        yield from compare_outputs(step.name, output.path, again)
        yield from describe_values(f"{RECORDS}, facts of {step.name}", output.facts, facts)


def compare_outputs(name: str, recorded: Path, again: Path) -> Iterator[str]:
    """Yield a sentence for each difference of two files or folders, as their readers see them."""
    if recorded.is_dir() and again.is_dir():
        inner_names = {path.name for folder in (recorded, again) for path in folder.iterdir()}
        for inner in sorted(inner_names):
            yield from compare_outputs(f"{name}/{inner}", recorded / inner, again / inner)
    elif not recorded.is_file() or not again.is_file():
        yield f"{name}: is {'not made by its step' if recorded.exists() else 'missing'}"
    elif hash_content(recorded) != hash_content(again):
        yield from _describe_contents(name, recorded, again)


def _describe_contents(name: str, recorded: Path, again: Path) -> Iterator[str]:
    """Describe how two files differ: JSON objects by their keys, other files as a whole."""
    contents: list[Any] = []
    if recorded.suffix == ".json":
        contents = [json.loads(path.read_text("utf-8")) for path in (recorded, again)]
    if contents and all(isinstance(content, dict) for content in contents):
        yield from describe_values(name, *contents)
    else:
        yield f"{name}: differs from what its step computes"
