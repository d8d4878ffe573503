"""Verification of experiments: their faults, and the output of their steps."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
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
from gapft_harness.stages.experiment import Decode, Experiment, Step, View, load_experiments
from gapft_harness.stages.experiment.steps import (
    RUN_FOLDERS,
    build_step_facts,
    compute_key,
    list_inputs,
    make_file,
)
from gapft_harness.stages.integrity.differences import Differences, compare_values
from gapft_harness.stages.verify.arms import check_decoding_adapters, check_table
from gapft_harness.stages.verify.judging import TableJudge
from gapft_harness.stages.verify.keys import KeyChecker


def check_experiments(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    trained: Sequence[Arm],
    judge: TableJudge,
    keys: KeyChecker,
    findings: Differences,
) -> None:
    """Check all output of experiments, including output that the recipe no longer requests.

    Args:
        run: the run directory.
        manifest: its manifest.
        plugins: the loaded plugins.
        trained: the arms with an adapter.
        judge: judges the responses again.
        keys: recomputes the keys of decodes.
        findings: receives what was checked, what differs and what is missing.
    """
    checker = _Checker(run, manifest, plugins, judge, keys, findings)
    view = View(run, plugins, trained)
    experiments = findings.try_reading(
        "recipe.yaml, experiments", lambda: load_experiments(run.recipe, plugins)
    )
    for experiment in experiments or ():
        checker.check_experiment(experiment, view)
    checker.check_unrequested()
    findings.collect(layout.DECISIONS, partial(check_decoding_adapters, run, checker.decoded))


@dataclass(slots=True)
class _Checker:
    run: RunDirectory
    manifest: Manifest
    plugins: Plugins
    judge: TableJudge
    keys: KeyChecker
    findings: Differences
    requested: set[str] = field(default_factory=set)
    decoded: dict[str, tuple[Arm, float]] = field(default_factory=dict)

    def check_experiment(self, experiment: Experiment, view: View) -> None:
        """Check an experiment's faults again, and every step that it requests."""
        name, difference_count = experiment.name, len(self.findings.differences)
        if view.arms():
            self.findings.collect(f"experiments.{name}", lambda: experiment.faults(view))
            if experiment.has_faults and len(self.findings.differences) == difference_count:
                self.findings.checked.append(f"{name}: its requirements before training")
        recomputed_count = decode_count = made_count = 0

        def check_steps() -> None:
            nonlocal recomputed_count, decode_count, made_count
            for next_steps in experiment.steps(view):
                missing = [file for file in next_steps if file not in self.manifest["files"]]
                self.findings.missing += [f"{file} is not made" for file in missing]
                self.requested |= next_steps.keys()
                for file in next_steps.keys() - {*missing}:
                    step = next_steps[file]
                    self._check_step(file, step, name)
                    made_count += 1
                    recomputed_count += step.cheap and step.repeats
                    decode_count += isinstance(step, Decode)
                if missing:
                    return

        self.findings.try_reading(name, check_steps)
        if made_count:
            self.findings.checked.append(
                f"{name}: {made_count} of its files have the settings and inputs that their keys "
                f"record, {recomputed_count} were recomputed, and {decode_count} contain decodes, "
                "each problem once"
            )

    def _check_step(self, file: str, step: Step, name: str) -> None:
        """Compare a sealed file's record and content with those of its step."""
        files, where = self.manifest["files"], f"manifest.json, steps, {file}"
        record = self.manifest.get("steps", {}).get(file)
        missing_inputs = [
            input for argument_files in step.inputs.values()
            for input in ([argument_files] if isinstance(argument_files, str) else argument_files)
            if input not in files
        ]  # fmt: skip
        if missing_inputs:
            self.findings.differences.append(f"{file}: exists, but {missing_inputs[0]} does not")
            return
        facts = build_step_facts(step, name, self.plugins, files)
        if record is None:
            self.findings.differences.append(f"{where}: does not record its inputs")
        else:
            expected = {key: value for key, value in facts.items() if key != "operational"}
            self.findings.collect(where, partial(compare_values, where, record, expected))
            recorded = record.get("operational", {})
            operational = {key: recorded.get(key, value) for key, value in step.operational.items()}
            step = replace(step, operational=operational)
        if isinstance(step, Decode):
            self._check_decode(file, step.arm, facts, step.ids)
        elif step.cheap and step.repeats:
            self.findings.collect(file, partial(_recompute, self.run, file, step))

    def _check_decode(
        self, file: str, arm: Arm, facts: StepFacts, ids: Sequence[str] | None
    ) -> None:
        settings = facts["settings"]
        check_table(
            self.run,
            self.manifest,
            file,
            str(settings["split"]),
            self.judge,
            self.keys,
            self.findings,
            ids,
            bool(settings["samples"]),
        )
        self.decoded[file] = arm, float(settings["scale"])

    def check_unrequested(self) -> None:
        """Check sealed files that no experiment of the recipe requests, from their records."""
        for file in self.manifest["files"].keys() - self.requested:
            place, folder = layout.parse_path(file), layout.find_top_folder(file)
            is_decoded = (
                place is not None and place.kind == layout.DECISIONS and place.experiment != ""
            )
            if is_decoded or folder not in (*RUN_FOLDERS, layout.RECIPE):
                self.findings.collect(file, partial(self._check_recorded, file))

    def _check_recorded(self, file: str) -> Iterator[str]:
        where, files = f"manifest.json, steps, {file}", self.manifest["files"]
        record = self.manifest.get("steps", {}).get(file)
        if record is None:
            yield f"{where}: does not record its inputs"
            return
        if missing_inputs := [input for input in list_inputs(record) if input not in files]:
            yield f"{file}: exists, but {missing_inputs[0]} does not"
            return
        key = compute_key(record, files)
        yield from compare_values(where, record, {"key": key})
        place = layout.parse_path(file)
        if place is None or place.kind != layout.DECISIONS or place.arm is None:
            return
        ids_hash, ids = record["settings"]["ids"], None
        if ids_hash is not None:
            ids = list(dict.fromkeys(read_ids(self.run.path / file)))
            if content_hash(ids) != ids_hash:
                yield f"{file}: has other problems than {where} records"
        if place.arm.condition != SOURCE and "adapter" not in record["inputs"]:
            yield f"{where}: does not record the adapter that it was decoded with"
        self._check_decode(file, place.arm, record, ids)


def _recompute(run: RunDirectory, file: str, step: Step) -> Iterator[str]:
    """Run a step again, and compare its output."""
    function: Any = step.function
    with tempfile.TemporaryDirectory() as folder:
        recomputed = Path(folder) / Path(file).name
        make_file(
            f"{function.__module__}:{function.__qualname__}",
            str(recomputed),
            step.paths(run.path),
            {**step.settings, **step.operational},
        )
        yield from _compare_output(file, run.path / file, recomputed)


def _compare_output(where: str, sealed: Path, recomputed: Path) -> Iterable[str]:
    """Yield the differences between two files or folders."""
    if sealed.is_dir() and recomputed.is_dir():
        names = {path.name for folder in (sealed, recomputed) for path in folder.iterdir()}
        for name in sorted(names):
            yield from _compare_output(f"{where}/{name}", sealed / name, recomputed / name)
    elif not sealed.is_file() or not recomputed.is_file():
        yield f"{where}: is {'missing' if not sealed.exists() else 'not made by its step'}"
    elif where.endswith(".json"):
        contents = [json.loads(path.read_text("utf-8")) for path in (sealed, recomputed)]
        if all(isinstance(content, dict) for content in contents):
            yield from compare_values(where, *contents)
            for key in sorted(contents[0].keys() - contents[1].keys()):
                yield f"{where}: has the key {key}, which its step does not compute"
        elif contents[0] != contents[1]:
            yield f"{where}: differs from what its step computes"
    elif sealed.read_bytes() != recomputed.read_bytes():
        yield f"{where}: differs from what its step computes"
