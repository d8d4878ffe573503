"""``gapft verify``: check that the arms of a run differ only in what its recipe declares.

Everything is recomputed from the sealed tables: states from verdicts, selections from states,
plans, weights and budgets from selections (Equations 6 and 7). Recorded results are compared with
these, never trusted. Nothing is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.extras import has, install
from gapft_harness.core.records import Arm, Example
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import Progress
from gapft_harness.hooks.registered import TrainerTraits
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory, splits_of
from gapft_harness.run_directory.history import check_history
from gapft_harness.run_directory.manifest import Manifest, naming_plugins
from gapft_harness.stages.experiment import every_experiment
from gapft_harness.stages.experiment.steps import RUN_FOLDERS
from gapft_harness.stages.integrity.differences import Differences
from gapft_harness.stages.integrity.disjoint import require_apart
from gapft_harness.stages.integrity.rests_on import bound, hold, searched_in
from gapft_harness.stages.integrity.subsets import check_subsets
from gapft_harness.stages.search.data import check_splits, matched_ids
from gapft_harness.stages.train.stored import TRAINED_AS
from gapft_harness.stages.verify.arms import check_adapter, check_alike, check_decisions
from gapft_harness.stages.verify.experiments import check_experiments
from gapft_harness.stages.verify.files import (
    check_files,
    check_states,
    check_tables,
    check_task,
    open_run,
    other_version,
)
from gapft_harness.stages.verify.judging import Rejudge, judges
from gapft_harness.stages.verify.keys import Keys
from gapft_harness.stages.verify.selections import check_selections
from gapft_harness.stages.verify.versions import check_versions


def verify(
    path: Path, plugin_files: Sequence[str] = (), progress: Progress = lambda *_: None
) -> Differences:
    """Verify the finished part of a run.

    Args:
        path: the run directory.
        plugin_files: files given by ``--plugin``, those that the run was made with.
        progress: called with the number of verdicts judged again so far.

    Raises:
        UserError: the folder is not a run directory, or a plugin of the recipe is missing.
    """
    plugins = load_plugins(plugin_files)
    findings = Differences(progress=progress)
    opened = open_run(path, findings)
    if opened is not None:
        run, manifest = opened
        with naming_plugins(path):
            _hold(run, manifest, plugins, findings)
            _check(run, manifest, plugins, findings)
        findings.remark = other_version(manifest)
    return findings


def _hold(run: RunDirectory, manifest: Manifest, plugins: Plugins, findings: Differences) -> None:
    """Compare the inputs of the run with the present ones, as far as these are available."""
    if not manifest["files"]:
        return

    def read(paths: Sequence[str]) -> dict[str, Any]:
        try:
            return check_splits(run.recipe, plugins, paths)[2]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"task or data cannot be read ({error!r})") from error

    try:
        bound(run, manifest)
    except UserError as error:  # damage is a difference like any other
        findings.differences.append(str(error))
        return
    held = hold(run, manifest, plugins, (), read)
    if held.compared:
        findings.checked.append(f"unchanged since the search: {', '.join(held.compared)}")
    findings.checked += held.unchecked


def _check(run: RunDirectory, manifest: Manifest, plugins: Plugins, findings: Differences) -> None:
    names = [layout.SCALED, *(each.name for each in every_experiment(plugins))]
    made = {*names, *map(layout.folder_of, manifest.get("steps", {}))}
    folders = [layout.ADAPTERS, *sorted(made.difference(RUN_FOLDERS))]
    findings.gather("manifest.json, files", partial(check_files, run, manifest, folders, findings))
    last, warnings = manifest.get("history"), manifest.get("warnings", [])
    findings.gather(layout.HISTORY, partial(check_history, run.path, run.recipe, last, warnings))
    searched = _searched(run, manifest, findings)
    for split in searched:
        findings.gather(split, partial(check_tables, run, manifest, split))
    for split in dict.fromkeys(s if layout.further(s) else "pool" for s in searched):
        if split not in splits_of(run.recipe):
            continue
        findings.gather("manifest.json, task", partial(check_task, run, manifest, split))
    if searched:
        findings.attempt("problems", partial(_check_apart, run, searched, findings))
    match = partial(matched_ids, run, include_paths=searched_in(run.path))
    check_subsets(run, manifest, match, findings)
    try:
        with naming_plugins(run.path):
            _look_up(run, manifest, plugins)
    except UserError as error:
        if not findings.differences:
            raise
        # a name changed, or its plugin is not loaded: earlier findings are still reported
        findings.differences.append(str(error))
        return
    keys = Keys(run, manifest, plugins, findings.tables, findings.adapters)
    with judges(manifest, plugins, findings) as judge_of:
        for split in searched:
            table = layout.responses(split)
            judge = judge_of.get(layout.further(split), judge_of[""])
            findings.gather(table, partial(judge.check, run, manifest, table, split))
            findings.gather(table, partial(keys.check_table, table, split))
            for table in _states(run, manifest, split):
                findings.gather(table, partial(check_states, run, manifest, plugins, table))
        examples = check_selections(run, manifest, plugins, judge_of[""], findings)
        _adapters(run, manifest, plugins, examples, judge_of, keys, findings)


def _states(run: RunDirectory, manifest: Manifest, split: str) -> Iterator[str]:
    """Yield the tables of a split's states: of all its samples, and of windows."""
    whole = layout.states(split)
    if split != CALIBRATION and (run.path / whole).exists():
        yield whole
    for name in manifest["files"]:
        place = layout.read(name)
        if place is not None and place.split == split and place.window is not None:
            yield name


def _searched(run: RunDirectory, manifest: Manifest, findings: Differences) -> list[str]:
    """List the splits whose search is sealed."""
    splits = splits_of(run.recipe)
    left = map(layout.audit, manifest.get("audits", {}))  # also those no longer in the recipe
    known = dict.fromkeys([*splits, *left])
    there = [s for s in known if layout.responses(s) in manifest["files"]]
    findings.missing += [f"the {split} is not searched" for split in splits if split not in there]
    return [str(split) for split in there]


def _check_apart(run: RunDirectory, searched: Sequence[str], findings: Differences) -> None:
    """Check that no problem is in two splits, by the sealed tables."""
    remarks = require_apart(run, searched)
    if len(searched) > 1:
        but = ", except those that are kept" * run.recipe.data.keep_shared
        said = f"no problem of one split is in another{but} ({', '.join(searched)})"
        findings.checked.append("; ".join([said, *remarks]))


def _look_up(run: RunDirectory, manifest: Manifest, plugins: Plugins) -> None:
    """Check that the plugins needed for verification are loaded."""
    for condition in run.recipe.conditions:
        find_selector(run.recipe, condition, plugins)
    task = manifest["task"]
    of_task = (("response rule", task.get("keep")), ("verifier", task.get("verifier")))
    names = [(kind, str(name)) for kind, name in of_task if name is not None]
    for audit in manifest.get("audits", {}).values():
        names.append(("verifier", str(audit["task"]["verifier"])))
    names += [("experiment", name) for name in run.recipe.experiments]
    for kind, name in names:
        plugins.get(kind, name)


def _adapters(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    examples: dict[Arm, list[Example]],
    judge_of: Mapping[str, Rejudge],
    keys: Keys,
    findings: Differences,
) -> None:
    """Check trained adapters, their decisions, and the output of experiments."""
    trained = [arm for arm in examples if layout.adapter(arm) in manifest["files"]]
    documented = {
        name: plugins.has("trainer", name)
        and plugins.get("trainer", name).declared(TrainerTraits).as_documented
        for name in run.recipe.trainers()
    }
    trainers = {arm: run.recipe.training_of(arm.condition).trainer for arm in trained}
    for arm in trained:
        of = documented[trainers[arm]]
        check = partial(check_adapter, run, arm, examples[arm], manifest, of)
        findings.gather(layout.adapter(arm), check)
        findings.gather(layout.adapter(arm), partial(keys.check_adapter, arm, examples[arm]))
    findings.gather(layout.ADAPTERS, lambda: check_alike(run, trained, documented))
    findings.gather("versions", partial(check_versions, run, manifest, trained, findings))
    findings.missing += [f"{arm.name} is not trained" for arm in examples if arm not in trained]
    for trainer, count in Counter(trainers[arm] for arm in trained).items():
        if documented[trainer]:
            findings.checked.append(
                f"{count} adapters were trained on the steps, tokens, weights and learning "
                "rates that their selections and the recipe give, from one base model"
            )
            if not has("peft"):
                findings.checked.append(
                    f"not checked, because PEFT is not installed ({install('peft')}): whether "
                    "these adapters' configurations match their settings"
                )
        else:
            findings.checked.append(
                f"{count} adapters of trainer {trainer!r}: the steps, tokens, weights, settings "
                "and drawn groups in their folders are right; facts that are not there were not "
                "verified"
            )
    check_decisions(run, manifest, [*examples], trained, judge_of, keys, findings)
    check_experiments(run, manifest, plugins, trained, judge_of, keys, findings)
    places = {file: layout.read(file) for file in manifest["files"]}
    tables = [file for file, of in sorted(places.items()) if of and of.kind == layout.DECISIONS]
    findings.gather("manifest.json, training", partial(keys.check_shared, trained, tables))
    _tell_keys(keys, trained, findings)


def _tell_keys(keys: Keys, trained: Sequence[Arm], findings: Differences) -> None:
    """Report which keys agree with what the run records."""
    if keys.tables or keys.adapters:
        findings.checked.append(
            f"the keys of {len(keys.tables)} tables and {len(keys.adapters)} adapters follow from "
            "their recorded inputs"
        )
    shared = [arm for arm in trained if TRAINED_AS in keys.manifest["training"].get(arm.name, {})]
    if shared and not findings.differences:
        findings.checked.append(
            f"{len(shared)} arms share adapter and answers with an arm with the same training "
            "set, which was trained once"
        )
