"""``gapft verify``: check that the arms of a run differ only in what its recipe declares.

Everything is recomputed from the sealed tables: states from verdicts, selections from states,
plans, weights and budgets from selections (Equations 6 and 7). Recorded results are compared with
these, never trusted. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from gapft_harness.core.errors import GapftError, UserError, describe_error
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import Progress
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, list_splits
from gapft_harness.run_directory.history import check_history
from gapft_harness.run_directory.manifest import Manifest, name_missing_plugins
from gapft_harness.stages.experiment import load_all_experiments
from gapft_harness.stages.experiment.view import RUN_FOLDERS
from gapft_harness.stages.integrity.differences import Differences
from gapft_harness.stages.integrity.disjoint import require_disjoint_splits
from gapft_harness.stages.verify.files import (
    check_files,
    check_task,
    describe_other_version,
    open_run,
)
from gapft_harness.stages.verify.judging import open_judge
from gapft_harness.stages.verify.steps import check_steps


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
        with name_missing_plugins(path):
            try:
                _check_run(run, manifest, plugins, plugin_files, findings)
            except GapftError:
                raise
            except Exception as error:  # a damaged manifest makes it raise nearly anything
                reason = describe_error(error)
                findings.differences.append(f"manifest.json: cannot be read ({reason})")
        findings.remark = describe_other_version(manifest)
    return findings


def _check_run(
    run: RunDirectory,
    manifest: Manifest,
    plugins: Plugins,
    plugin_files: Sequence[str],
    findings: Differences,
) -> None:
    names = [layout.SCALED, *(experiment.name for experiment in load_all_experiments(plugins))]
    output_folders = {*names, *map(layout.find_top_folder, manifest["files"])}
    folders = [layout.ADAPTERS, *sorted(output_folders.difference(RUN_FOLDERS))]
    findings.collect("manifest.json, files", partial(check_files, run, manifest, folders, findings))
    last, warnings = manifest.get("history"), manifest.get("warnings", [])
    findings.collect(layout.HISTORY, partial(check_history, run.path, run.recipe, last, warnings))
    searched_splits = _find_searched_splits(run, manifest, findings)
    if searched_splits:
        findings.collect("manifest.json, task", partial(check_task, run, manifest))
        findings.try_reading("problems", partial(_check_disjoint, run, searched_splits, findings))
    try:
        with name_missing_plugins(run.path):
            _require_plugins(run, manifest, plugins)
    except UserError as error:
        if not findings.differences:
            raise
        # a name changed, or its plugin is not loaded: earlier findings are still reported
        findings.differences.append(str(error))
        return
    with open_judge(run, manifest, plugins, findings) as judge:
        check_steps(run, manifest, plugins, plugin_files, judge, findings)


def _find_searched_splits(
    run: RunDirectory, manifest: Manifest, findings: Differences
) -> list[str]:
    """List the splits whose search is sealed."""
    splits = list_splits(run.recipe)
    searched_splits = [s for s in splits if layout.responses_path(s) in manifest["files"]]
    findings.missing += [
        f"the {split} is not searched" for split in splits if split not in searched_splits
    ]
    return [str(split) for split in searched_splits]


def _check_disjoint(run: RunDirectory, searched: Sequence[str], findings: Differences) -> None:
    """Check that no problem is in two splits, by the sealed tables."""
    warnings = require_disjoint_splits(run, searched)
    if len(searched) > 1:
        exception = ", except those that are kept" * run.recipe.data.keep_shared
        result = f"no problem of one split is in another{exception} ({', '.join(searched)})"
        findings.checked.append("; ".join([result, *warnings]))


def _require_plugins(run: RunDirectory, manifest: Manifest, plugins: Plugins) -> None:
    """Check that the plugins needed for verification are loaded."""
    for condition in run.recipe.conditions:
        find_selector(run.recipe, condition, plugins)
    for trainer in run.recipe.list_trainers():
        plugins.get("trainer", trainer)
    task = manifest["task"]
    task_components = (("response rule", task.get("keep")), ("verifier", task.get("verifier")))
    names = [(kind, str(name)) for kind, name in task_components if name is not None]
    names += [("experiment", name) for name in run.recipe.experiments]
    for kind, name in names:
        plugins.get(kind, name)
