"""Verification of the outputs that steps made: decodes of the audit, and experiments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gapft_harness.core.records import SOURCE, Arm
from gapft_harness.core.streams import SampleStreams
from gapft_harness.engine.checker import Checker, compare_facts
from gapft_harness.engine.outputs import OWN_RUN_ONLY, NotKnownYet, Output
from gapft_harness.engine.run import Run
from gapft_harness.engine.step import Step
from gapft_harness.hooks.manager import Plugins
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.run_directory.parquet import read_facts, read_ids
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.decode import decode
from gapft_harness.stages.experiment import Experiment, View, load_experiments
from gapft_harness.stages.integrity.differences import Differences, compare_ids
from gapft_harness.stages.verify.judging import TableJudge


def check_steps(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    plugin_files: Sequence[str],
    trained: Sequence[Arm],
    judge: TableJudge,
    findings: Differences,
) -> None:
    """Hold the outputs of steps against the recipe, and judge decodes again.

    Args:
        run: the run directory.
        manifest: its manifest.
        plugins: the loaded plugins.
        plugin_files: files given by ``--plugin``.
        trained: the arms with an adapter.
        judge: judges the responses again.
        findings: receives what was checked, what differs and what is missing.
    """
    records = findings.try_reading("run.json", Run(run.path).read_records)
    if records is None:
        return
    view = View(run, plugins, trained, plugin_files)
    checker = Checker(Run(run.path), {decode: partial(_check_decodes, run, manifest, judge)})
    _check_audit(view, checker, findings)
    experiments = findings.try_reading(
        "recipe.yaml, experiments", lambda: load_experiments(run.recipe, plugins)
    )
    for experiment in experiments or ():
        _check_experiment(experiment, view, checker, findings)
    findings.try_reading("run.json", checker.check_others)
    for name in records.keys() - {*checker.checked}:
        place = layout.parse_path(name)
        if place and place.kind == layout.DECISIONS and place.arm and place.arm not in trained:
            adapter = layout.adapter_path(place.arm)
            if place.arm.condition != SOURCE and not (run.path / adapter).is_dir():
                findings.differences.append(f"{name}: exists, but {adapter} does not")
    findings.differences += checker.differences
    findings.checked += [f"run.json: {line}" for line in dict.fromkeys(checker.remarks)]


def _check_audit(view: View, checker: Checker, findings: Differences) -> None:
    """Check the decodes of the audit with every trained arm's adapter."""
    tables = {layout.decisions_path(arm): arm.name for arm in view.arms()}
    for arm in view.arms():
        table = layout.decisions_path(arm)
        findings.try_reading(table, partial(_check_arm, view, arm, checker))
    findings.missing += [f"{tables[name]} is not audited" for name in checker.missing]
    if checker.checked:
        findings.checked.append(
            f"{len(checker.checked)} arms' decisions are of the audit's problems, each once, and "
            "were decoded with their adapters"
        )


def _check_arm(view: View, arm: Arm, checker: Checker) -> None:
    view.add(checker([view.decode(layout.decisions_path(arm), arm)]))


def _check_experiment(
    experiment: Experiment, view: View, checker: Checker, findings: Differences
) -> None:
    """Check an experiment's faults again, and the output of every step that it requests."""
    name, difference_count = experiment.name, len(findings.differences)
    if view.arms():
        findings.collect(f"experiments.{name}", lambda: experiment.faults(view))
        if experiment.has_faults and len(findings.differences) == difference_count:
            findings.checked.append(f"{name}: its requirements before training")
    before = _Counts.of(checker)

    def check() -> None:
        try:
            for steps in experiment.steps(view):
                view.add(checker(steps))
        except NotKnownYet:  # the output that it waits for is named as missing or damaged
            pass

    findings.try_reading(name, check)
    findings.missing += [f"{file} is not made" for file in checker.missing[before.missing :]]
    if made_count := len(checker.checked) - before.checked:
        again_count = len(checker.made_again) - before.made_again
        findings.checked.append(
            f"{name}: {made_count} of its files have the settings and inputs of their keys, and "
            f"{again_count} were made again"
        )


@dataclass(frozen=True, slots=True)
class _Counts:
    """How many outputs a checker had found in some state."""

    missing: int
    checked: int
    made_again: int

    @classmethod
    def of(cls, checker: Checker) -> _Counts:
        return cls(len(checker.missing), len(checker.checked), len(checker.made_again))


def _check_decodes(
    run: RunDirectory, manifest: Manifest, judge: TableJudge, step: Step, output: Output
) -> Iterable[str]:
    """Yield the differences of a table of decodes from its step, judged again."""
    settings, table = step.settings, step.name
    problems = layout.problems_path(settings["split"])
    ids = settings["ids"]
    expected = read_ids(run.path / problems) if ids is None else ids
    reference = problems if ids is None else "its step"
    yield from compare_ids(table, read_ids(output.path), reference, expected)
    is_sampled = bool(settings["samples"])
    yield from judge.check_table(run, manifest, table, settings["split"], is_sampled)
    yield from _check_seeds(table, output, settings["streams"], settings["samples"])
    own_facts = {key: value for key, value in output.facts.items() if key != OWN_RUN_ONLY}
    yield from compare_facts(table, own_facts, read_facts(output.path))


def _check_seeds(
    table: str, output: Output, streams: Mapping[str, Any] | None, samples: int
) -> Iterable[str]:
    """Yield the first response whose seed is not that of its random stream."""
    for problem_id, judged in read_judged(output.path):
        for response in (row.response for row in judged):
            seed = 0
            if streams is not None:
                (seed,) = SampleStreams(**streams).derive_seeds(
                    problem_id, len(response.attempts) + 1, [response.index], not samples
                )
            if response.seed != seed:
                yield (
                    f"{table}: problem {problem_id}, index {response.index} has the seed "
                    f"{response.seed}, but its random stream gives {seed}"
                )
                return
