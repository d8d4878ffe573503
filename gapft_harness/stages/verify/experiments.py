"""Verification of experiments: their faults, and the output of their steps."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.hooks.manager import Plugins
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest, StepFacts
from gapft_harness.run_directory.parquet import read_ids
from gapft_harness.stages.experiment import Decode, Experiment, Step, View, asked
from gapft_harness.stages.experiment.steps import (
    RUN_FOLDERS,
    compute_key,
    describe,
    list_inputs,
    make_file,
)
from gapft_harness.stages.integrity.differences import Differences, unequal
from gapft_harness.stages.verify.arms import check_table, decoded_with
from gapft_harness.stages.verify.judging import Rejudge
from gapft_harness.stages.verify.keys import Keys


def check_experiments(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    trained: Sequence[Arm],
    judge_of: Mapping[str, Rejudge],
    keys: Keys,
    findings: Differences,
) -> None:
    """Check all output of experiments, including output that the recipe no longer requests.

    Args:
        run: the run directory.
        manifest: its manifest.
        plugins: the loaded plugins.
        trained: the arms with an adapter.
        judge_of: the judges of ``open_judges``.
        keys: recomputes the keys of decodes.
        findings: receives what was checked, what differs and what is missing.
    """
    checker = _Checker(run, manifest, plugins, judge_of, keys, findings)
    view = View(run, plugins, trained)
    experiments = findings.attempt("recipe.yaml, experiments", lambda: asked(run.recipe, plugins))
    for experiment in experiments or ():
        checker.check(experiment, view)
    checker.check_others()
    findings.gather(layout.DECISIONS, partial(decoded_with, run, checker.decoded))


@dataclass(slots=True)
class _Checker:
    run: RunDirectory
    manifest: Manifest
    plugins: Plugins
    judge_of: Mapping[str, Rejudge]
    keys: Keys
    findings: Differences
    seen: set[str] = field(default_factory=set)
    decoded: dict[str, tuple[Arm, float]] = field(default_factory=dict)

    def check(self, experiment: Experiment, view: View) -> None:
        """Check an experiment's faults again, and every step that it requests."""
        name, before = experiment.name, len(self.findings.differences)
        if view.arms():
            self.findings.gather(f"experiments.{name}", lambda: experiment.faults(view))
            if experiment.has_faults and len(self.findings.differences) == before:
                self.findings.checked.append(f"{name}: its requirements before training")
        computed = sampled = made = 0

        def walk() -> None:
            nonlocal computed, sampled, made
            for given in experiment.steps(view):
                missing = [file for file in given if file not in self.manifest["files"]]
                self.findings.missing += [f"{file} is not made" for file in missing]
                self.seen |= given.keys()
                for file in given.keys() - {*missing}:
                    step = given[file]
                    self._check_step(file, step, name)
                    made += 1
                    computed += step.cheap and step.repeats
                    sampled += isinstance(step, Decode)
                if missing:
                    return

        self.findings.attempt(name, walk)
        if made:
            self.findings.checked.append(
                f"{name}: {made} of its files have the settings and inputs that their keys "
                f"record, {computed} were recomputed, and {sampled} contain decodes, each problem "
                "once"
            )

    def _check_step(self, file: str, step: Step, name: str) -> None:
        """Compare a sealed file's record and content with those of its step."""
        files, where = self.manifest["files"], f"manifest.json, steps, {file}"
        record = self.manifest.get("steps", {}).get(file)
        lacking = [
            input for of in step.inputs.values() for input in ([of] if isinstance(of, str) else of)
            if input not in files
        ]  # fmt: skip
        if lacking:
            self.findings.differences.append(f"{file}: exists, but {lacking[0]} does not")
            return
        now = describe(step, name, self.plugins, files)
        if record is None:
            self.findings.differences.append(f"{where}: does not record its inputs")
        else:
            expected = {key: value for key, value in now.items() if key != "operational"}
            self.findings.gather(where, partial(unequal, where, record, expected))
            recorded = record.get("operational", {})
            said = {key: recorded.get(key, value) for key, value in step.operational.items()}
            step = replace(step, operational=said)
        if isinstance(step, Decode):
            self._check_decode(file, step.arm, now, step.ids)
        elif step.cheap and step.repeats:
            self.findings.gather(file, partial(_compute_again, self.run, file, step))

    def _check_decode(
        self, file: str, arm: Arm, facts: StepFacts, ids: Sequence[str] | None
    ) -> None:
        settings = facts["settings"]
        check_table(
            self.run,
            self.manifest,
            file,
            str(settings["split"]),
            self.judge_of,
            self.keys,
            self.findings,
            ids,
            bool(settings["samples"]),
        )
        self.decoded[file] = arm, float(settings["scale"])

    def check_others(self) -> None:
        """Check sealed files that no experiment of the recipe requests, from their records."""
        for file in self.manifest["files"].keys() - self.seen:
            place, folder = layout.read(file), layout.folder_of(file)
            is_decoded = place is not None and place.kind == layout.DECISIONS and place.of != ""
            if is_decoded or folder not in (*RUN_FOLDERS, layout.RECIPE):
                self.findings.gather(file, partial(self._check_recorded, file))

    def _check_recorded(self, file: str) -> Iterator[str]:
        where, files = f"manifest.json, steps, {file}", self.manifest["files"]
        record = self.manifest.get("steps", {}).get(file)
        if record is None:
            yield f"{where}: does not record its inputs"
            return
        if lacking := [input for input in list_inputs(record) if input not in files]:
            yield f"{file}: exists, but {lacking[0]} does not"
            return
        key = compute_key(record, files)
        yield from unequal(where, record, {"key": key})
        place = layout.read(file)
        if place is None or place.kind != layout.DECISIONS or place.arm is None:
            return
        wanted, ids = record["settings"]["ids"], None
        if wanted is not None:
            ids = list(dict.fromkeys(read_ids(self.run.path / file)))
            if content_hash(ids) != wanted:
                yield f"{file}: has other problems than {where} records"
        if place.arm.condition != SOURCE and "adapter" not in record["inputs"]:
            yield f"{where}: does not record the adapter that it was decoded with"
        self._check_decode(file, place.arm, record, ids)


def _compute_again(run: RunDirectory, file: str, step: Step) -> Iterator[str]:
    """Run a step again, and compare its output."""
    function: Any = step.function
    with tempfile.TemporaryDirectory() as folder:
        again = Path(folder) / Path(file).name
        make_file(
            f"{function.__module__}:{function.__qualname__}",
            str(again),
            step.paths(run.path),
            {**step.settings, **step.operational},
        )
        yield from _compare(file, run.path / file, again)


def _compare(where: str, sealed: Path, again: Path) -> Iterable[str]:
    """Yield the differences between two files or folders."""
    if sealed.is_dir() and again.is_dir():
        names = {path.name for folder in (sealed, again) for path in folder.iterdir()}
        for name in sorted(names):
            yield from _compare(f"{where}/{name}", sealed / name, again / name)
    elif not sealed.is_file() or not again.is_file():
        yield f"{where}: is {'missing' if not sealed.exists() else 'not made by its step'}"
    elif where.endswith(".json"):
        contents = [json.loads(path.read_text("utf-8")) for path in (sealed, again)]
        if all(isinstance(content, dict) for content in contents):
            yield from unequal(where, *contents)
            for key in sorted(contents[0].keys() - contents[1].keys()):
                yield f"{where}: has the key {key}, which its step does not compute"
        elif contents[0] != contents[1]:
            yield f"{where}: differs from what its step computes"
    elif sealed.read_bytes() != again.read_bytes():
        yield f"{where}: differs from what its step computes"
