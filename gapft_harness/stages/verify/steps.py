"""Verification of the outputs that steps made: states to experiments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.extras import install_command, is_installed
from gapft_harness.core.records import GREEDY, SOURCE
from gapft_harness.core.streams import SampleStreams
from gapft_harness.engine.checker import Check, Checker
from gapft_harness.engine.outputs import NotKnownYet, Output
from gapft_harness.engine.run import RECORDS
from gapft_harness.engine.step import Step
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registration import TrainerTraits
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, list_arms
from gapft_harness.run_directory.parquet import read_ids
from gapft_harness.run_directory.recorded import TRAINED_AS, read_training
from gapft_harness.stages.decode import decode
from gapft_harness.stages.experiment import Experiment, View, load_experiments
from gapft_harness.stages.integrity.differences import Differences, compare_ids
from gapft_harness.stages.search.stage import find_searched_splits, search_split
from gapft_harness.stages.steps import (
    list_audit_steps,
    list_search_steps,
    list_training_steps,
    make_selections,
    make_states,
)
from gapft_harness.stages.train.job import train
from gapft_harness.stages.verify.arms import check_adapter, check_common_facts
from gapft_harness.stages.verify.judging import ExpectedResponses, TableJudge
from gapft_harness.stages.verify.searches import check_search


def check_steps(
    run: RunDirectory,
    problems: Mapping[str, Any],
    plugins: Plugins,
    plugin_files: Sequence[str],
    judge: TableJudge,
    findings: Differences,
) -> None:
    """Hold the outputs of steps against the recipe; make cheap ones again, judge decodes again.

    Args:
        run: the run directory.
        problems: the hashes of the problems of each searched split, where they are known.
        plugins: the loaded plugins.
        plugin_files: files given by ``--plugin``.
        judge: judges the responses again.
        findings: receives what was checked, what differs and what is missing.
    """
    checker = build_checker(run, plugins, judge)
    arms = [arm for arm in list_arms(run.recipe) if run.has(layout.selection_path(arm))]
    view = View(run, plugins, arms, plugin_files)
    steps = findings.try_reading("search", lambda: list_search_steps(view, problems))
    view.add(checker(steps or ()))
    _check_selections(view, checker, findings)
    trained = [arm for arm in arms if run.has(layout.adapter_path(arm))]
    findings.missing += [f"{arm.name} is not trained" for arm in arms if arm not in trained]
    view = view.with_arms(trained)
    _check_adapters(view, checker, findings)
    check_decodes(view, checker, findings)


def build_checker(run: RunDirectory, plugins: Plugins, judge: TableJudge) -> Checker:
    """Build the checker of a run's outputs; see ``check_steps``."""
    checks: dict[Callable[..., object], Check] = {
        decode: partial(_check_decodes, run, judge),
        train: partial(check_adapter, run, plugins),
        search_split: partial(check_search, run, judge),
    }
    return Checker(run.outputs, checks)


def check_decodes(view: View, checker: Checker, findings: Differences) -> None:
    """Check the decodes of the view's arms, the outputs of experiments, and all other records.

    Args:
        view: the run with its trained arms.
        checker: the checker of ``build_checker``.
        findings: receives what was checked, what differs and what is missing.
    """
    run = view.run
    _check_audit(view, checker, findings)
    experiments = findings.try_reading(
        "recipe.yaml, experiments", lambda: load_experiments(run.recipe, view.plugins)
    )
    for experiment in experiments or ():
        _check_experiment(experiment, view, checker, findings)
    findings.try_reading(RECORDS, checker.check_others)
    for name in checker.run.read_records().keys() - {*checker.checked}:
        place = layout.parse_path(name)
        if place and place.kind == layout.DECISIONS and place.arm and place.arm not in view.arms():
            adapter = layout.adapter_path(place.arm)
            if place.arm.condition != SOURCE and not (run.path / adapter).is_dir():
                findings.differences.append(f"{name}: exists, but {adapter} does not")
    findings.differences += checker.differences
    findings.checked += [f"{RECORDS}: {line}" for line in dict.fromkeys(checker.remarks)]


def _check_selections(view: View, checker: Checker, findings: Differences) -> None:
    """Make states, training sets and budgets again, and compare the budgets that must match."""
    searched = find_searched_splits(view.run)
    findings.try_reading("states", lambda: make_states(view, checker, searched))
    try:
        selections = make_selections(view, checker)
    except NotKnownYet:
        findings.missing.append("not all arms are selected")
        return
    except GapftError as error:
        findings.differences.append(f"selections: {error}")
        return
    if not selections.n:
        findings.checked.append("search recovered nothing, so there is nothing to train on")
    if selections.facts:
        findings.checked.append(
            f"{len(selections.facts)} selections contain the evidence that their conditions choose"
        )
    for first, budget in selections.groups.items():
        findings.checked.append(
            f"the arms matched with {first.name} have n = {budget.n}, N = {budget.exposures}, "
            f"J = {budget.steps}"
        )


def _check_adapters(view: View, checker: Checker, findings: Differences) -> None:
    """Check the adapters of the view's arms, and what they must have in common."""
    run, plugins, arms = view.run, view.plugins, view.arms()
    if not arms:
        return
    steps = findings.try_reading(layout.ADAPTERS, lambda: list_training_steps(view))
    if not steps:
        return
    view.add(checker(steps))
    documented = {
        name: plugins.get("trainer", name).require_traits(TrainerTraits).as_documented
        for name in run.recipe.list_trainers()
    }
    findings.collect(layout.ADAPTERS, lambda: check_common_facts(run, arms, documented))
    trainers = Counter(run.recipe.resolve_training(arm.condition).trainer for arm in arms)
    for trainer, count in trainers.items():
        if not documented[trainer]:
            findings.checked.append(
                f"{count} adapters of trainer {trainer!r}: the steps, tokens, weights, settings "
                "and drawn groups in their folders are right; facts that are not there were not "
                "verified"
            )
            continue
        findings.checked.append(
            f"{count} adapters were trained on the steps, tokens, weights and learning rates that "
            "their selections and the recipe give, from one base model"
        )
        if not is_installed("peft"):
            findings.checked.append(
                f"not checked, because PEFT is not installed ({install_command('peft')}): whether "
                "these adapters' configurations match their settings"
            )
    shared = [name for name, facts in read_training(run).items() if TRAINED_AS in facts]
    if shared:
        findings.checked.append(
            f"{len(shared)} arms share adapter and answers with an arm with the same training set, "
            "which was trained once"
        )


def _check_audit(view: View, checker: Checker, findings: Differences) -> None:
    """Check the decodes of the audit with every trained arm's adapter."""
    before = _Counts.of(checker)
    steps = findings.try_reading(layout.DECISIONS, lambda: list_audit_steps(view))
    view.add(checker(steps or ()))
    arms = {layout.decisions_path(arm): arm.name for arm in view.arms()}
    missing = checker.missing[before.missing :]
    findings.missing += [f"{arms[name]} is not audited" for name in missing]
    if count := len(checker.checked) - before.checked:
        findings.checked.append(
            f"{count} arms' decisions are of the audit's problems, each once, and were decoded "
            "with their adapters"
        )


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
    run: RunDirectory, judge: TableJudge, step: Step, output: Output
) -> Iterable[str]:
    """Yield the differences of a table of decodes from its step, judged again."""
    settings, table = step.settings, step.name
    problems = layout.problems_path(settings["split"])
    ids = settings["ids"]
    expected = read_ids(run.path / problems) if ids is None else ids
    reference = problems if ids is None else "its step"
    yield from compare_ids(table, read_ids(output.path), reference, expected)
    samples, streams = settings["samples"], settings["streams"]
    responses = ExpectedResponses(
        settings["split"],
        [*range(samples)] if samples else [GREEDY],
        None if streams is None else SampleStreams(**streams),
        not samples,
    )
    yield from judge.check_table(run, table, responses, output.facts)
