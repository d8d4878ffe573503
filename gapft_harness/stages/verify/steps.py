"""Verification of the outputs that steps made: states to experiments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

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
from gapft_harness.stages.experiment.loading import load_experiments
from gapft_harness.stages.experiment.view import View
from gapft_harness.stages.search.stage import find_searched_splits, search_split
from gapft_harness.stages.steps import (
    follow_experiment,
    list_audit_steps,
    list_search_steps,
    make_selections,
    make_states,
)
from gapft_harness.stages.train.job import train
from gapft_harness.stages.train.stage import list_training_steps
from gapft_harness.stages.verify.arms import (
    check_adapter,
    check_common_facts,
    find_unchecked_config,
)
from gapft_harness.stages.verify.differences import Differences, compare_ids
from gapft_harness.stages.verify.judging import ExpectedResponses, TableJudge
from gapft_harness.stages.verify.searches import check_search

T = TypeVar("T")


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
    checks: dict[Callable[..., object], Check] = {
        decode: partial(_check_decodes, run, judge),
        train: partial(check_adapter, run, plugins),
        search_split: partial(check_search, run, judge),
    }
    hashed = {
        f"{origin['from']} and the Python files beside it" if "sha256" in origin else origin["from"]
        for origin in plugins.describe_origins().values()
    }
    checker = Checker(run, checks, sorted(hashed))
    arms = [arm for arm in list_arms(run.recipe) if run.has(layout.selection_path(arm))]
    view = View(run, plugins, arms, plugin_files)

    def check_listed(list_steps: Callable[[], Iterable[Step]]) -> None:
        view.add(checker(list_steps()))

    _follow(findings, "search", lambda: check_listed(lambda: list_search_steps(view, problems)))
    _follow(findings, "states", lambda: make_states(view, checker, find_searched_splits(run)))
    groups = _follow(findings, "selections", lambda: make_selections(view, checker)) or {}
    for first, budget in groups.items():
        findings.checked.append(
            f"the arms matched with {first.name} have n = {budget.n}, N = {budget.exposures}, "
            f"J = {budget.steps}"
        )
    _follow(findings, layout.ADAPTERS, lambda: check_listed(lambda: list_training_steps(view)))
    view = view.with_arms(arm for arm in arms if run.has(layout.adapter_path(arm)))
    _check_adapters(view, findings)
    _check_results(view, checker, findings)


def _check_results(view: View, checker: Checker, findings: Differences) -> None:
    """Check the decodes of the view's arms, the outputs of experiments, and all other records."""
    run = view.run
    _follow(findings, layout.DECISIONS, lambda: view.add(checker(list_audit_steps(view))))
    experiments = findings.try_reading(
        "recipe.yaml, experiments", lambda: load_experiments(run.recipe, view.plugins)
    )
    for experiment in experiments or ():
        if view.arms():
            findings.collect(f"experiments.{experiment.name}", partial(experiment.faults, view))
        follow = partial(follow_experiment, view, checker, experiment)
        _follow(findings, experiment.name, follow)
    findings.try_reading(RECORDS, checker.check_others)
    for name in checker.run.read_records().keys() - {*checker.checked}:
        place = layout.parse_path(name)
        if place and place.kind == layout.DECISIONS and place.arm and place.arm not in view.arms():
            adapter = layout.adapter_path(place.arm)
            if place.arm.condition != SOURCE and not (run.path / adapter).is_dir():
                findings.differences.append(f"{name}: exists, but {adapter} does not")
    findings.differences += checker.differences
    findings.missing += [f"{name} is not made" for name in checker.missing]
    if checker.checked:
        findings.checked.append(
            f"{len(checker.checked)} outputs have the settings and inputs of their keys, and "
            f"{len(checker.made_again)} of them were made again"
        )
    findings.checked += [f"{RECORDS}: {line}" for line in dict.fromkeys(checker.remarks)]


def _follow(findings: Differences, subject: str, follow: Callable[[], T]) -> T | None:
    """Go through steps up to an unknown output, which is named as missing or damaged."""

    def follow_known() -> T | None:
        with suppress(NotKnownYet):
            return follow()
        return None

    return findings.try_reading(subject, follow_known)


def _check_adapters(view: View, findings: Differences) -> None:
    """Check what the adapters of the view's arms must have in common; tell what was checked."""
    run = view.run
    arms = view.arms()
    if arms and (line := find_unchecked_config()):
        findings.checked.append(line)
    documented = {
        name: view.plugins.get("trainer", name).require_traits(TrainerTraits).as_documented
        for name in run.recipe.list_trainers()
    }
    findings.collect(layout.ADAPTERS, lambda: check_common_facts(run, arms))
    trainers = Counter(run.recipe.resolve_training(arm.condition).trainer for arm in arms)
    for trainer, count in trainers.items():
        if not documented[trainer]:
            findings.checked.append(
                f"{count} adapters of trainer {trainer!r}: the steps, tokens, weights, settings "
                "and drawn groups in their folders are right; facts that are not there were not "
                "verified"
            )
    shared = [name for name, facts in read_training(run).items() if TRAINED_AS in facts]
    if shared:
        findings.checked.append(
            f"{len(shared)} arms share adapter and answers with an arm with the same training set, "
            "which was trained once"
        )


def _check_decodes(
    run: RunDirectory, judge: TableJudge, step: Step, output: Output
) -> Iterable[str]:
    """Yield the differences of a table of decodes from its step, judged again."""
    settings = step.settings
    table = step.name
    problems = layout.problems_path(settings["split"])
    ids = settings["ids"]
    expected = read_ids(run.path / problems) if ids is None else ids
    reference = problems if ids is None else "its step"
    yield from compare_ids(table, read_ids(output.path), reference, expected)
    samples = settings["samples"]
    streams = settings["streams"]
    responses = ExpectedResponses(
        settings["split"],
        [*range(samples)] if samples else [GREEDY],
        None if streams is None else SampleStreams(**streams),
        not samples,
    )
    yield from judge.check_table(run, table, responses, output.facts)
