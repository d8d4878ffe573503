"""``gapft verify``: check that the arms of a run differ only in what its recipe declares.

The pipeline is followed again from the recipe: keys must follow from it, exact and quick steps are
made again, and texts are judged again. Recorded results are compared with these, never trusted.
Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError, describe_error
from gapft_harness.engine.checker import Checker
from gapft_harness.engine.run import RECORDS, Run
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import Progress
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, list_splits, name_missing_plugins
from gapft_harness.run_directory.facts import build_facts
from gapft_harness.stages.experiment.loading import load_all_experiments
from gapft_harness.stages.experiment.view import RUN_FOLDERS
from gapft_harness.stages.search.disjoint import check_searched_splits
from gapft_harness.stages.search.stage import find_searched_splits
from gapft_harness.stages.verify.differences import Differences
from gapft_harness.stages.verify.judging import open_judge
from gapft_harness.stages.verify.report import check_report
from gapft_harness.stages.verify.searches import check_task
from gapft_harness.stages.verify.steps import check_steps
from gapft_harness.version import __version__

#: Folders of a run whose files have no records.
_UNRECORDED_FOLDERS = ("tracking", layout.REPORT)


def verify(
    path: Path, plugin_files: Sequence[str] = (), progress: Progress = lambda *_: None
) -> Differences:
    """Verify the finished part of a run.

    Args:
        path: the run directory.
        plugin_files: files given by ``--plugin``, those that the run was made with.
        progress: called with the number of verdicts judged again so far.

    Raises:
        UserError: the folder is not a run directory, its ``run.json`` is missing or damaged, or a
            plugin of the recipe is missing.
    """
    plugins = load_plugins(plugin_files)
    findings = Differences(progress=progress)
    if not (path / RECORDS).is_file():
        RunDirectory.open(path)  # raises the error
    Run(path).read_records()
    run = findings.try_reading(layout.RECIPE, lambda: RunDirectory.open(path))
    if run is None:
        return findings
    with name_missing_plugins(path):
        try:
            _check_run(run, plugins, plugin_files, findings)
        except GapftError:
            raise
        except Exception as error:  # damaged facts make it raise nearly anything
            findings.differences.append(f"{RECORDS}: cannot be read ({describe_error(error)})")
    findings.remark = _describe_other_version(run)
    return findings


def _check_run(
    run: RunDirectory, plugins: Plugins, plugin_files: Sequence[str], findings: Differences
) -> None:
    missing = build_facts().keys() - run.read_facts().keys()
    findings.differences += [f"{RECORDS}: has no entry {name}" for name in sorted(missing)]
    findings.try_reading(layout.RECIPE, run.require_recorded_recipe)
    findings.collect(RECORDS, partial(_list_unrecorded_files, run, plugins))
    searched = find_searched_splits(run)
    others = [split for split in list_splits(run.recipe) if split not in searched]
    findings.missing += [f"the {split} is not searched" for split in others]
    problems = check_task(run, plugins, findings) if searched else {}
    findings.try_reading("problems", partial(_check_disjoint, run, searched, findings))
    try:
        with name_missing_plugins(run.path):
            _require_plugins(run, plugins)
    except UserError as error:
        # a plugin is not loaded, or its data are not on this machine: contents are still compared
        checker = Checker(run)
        checker.check_others()
        findings.differences += checker.differences
        if not findings.differences:
            raise
        findings.differences.append(str(error))
        return
    with open_judge(run, plugins, findings) as judge:
        check_steps(run, problems, plugins, plugin_files, judge, findings)
    findings.try_reading(layout.REPORT, partial(check_report, run, plugins, findings))


def _list_unrecorded_files(run: RunDirectory, plugins: Plugins) -> Iterator[str]:
    """Yield the files in the folders of outputs that no record contains, without hidden ones."""
    folders = {*RUN_FOLDERS, *map(layout.find_top_folder, run.read_records())}
    folders |= {layout.SCALED, *(experiment.name for experiment in load_all_experiments(plugins))}
    for folder in sorted(folders.difference(_UNRECORDED_FOLDERS)):
        for path in sorted((run.path / folder).rglob("*")):
            file = path.relative_to(run.path)
            is_hidden = any(part.startswith(".") for part in file.parts)
            if path.is_file() and not is_hidden and not run.has(file.as_posix()):
                yield f"{file.as_posix()}: exists, but {RECORDS} has no record of it"


def _check_disjoint(run: RunDirectory, searched: Sequence[str], findings: Differences) -> None:
    """Check that no problem is in two splits, by their tables."""
    if not searched:
        return
    warnings = check_searched_splits(run, searched)
    if len(searched) > 1:
        exception = ", except those that are kept" * run.recipe.data.keep_shared
        result = f"no problem of one split is in another{exception} ({', '.join(searched)})"
        findings.checked.append("; ".join([result, *warnings]))


def _require_plugins(run: RunDirectory, plugins: Plugins) -> None:
    """Check that the plugins needed for verification are loaded, and that the verifier works."""
    for condition in run.recipe.conditions:
        find_selector(run.recipe, condition, plugins)
    for trainer in run.recipe.list_trainers():
        plugins.get("trainer", trainer)
    task = run.facts()["task"]
    keep = run.recipe.evidence.keep or task.get("keep")
    task_components = (("response rule", keep), ("verifier", task.get("verifier")))
    names = [(kind, str(name)) for kind, name in task_components if name is not None]
    names += [("experiment", name) for name in run.recipe.experiments]
    for kind, name in names:
        plugins.get(kind, name)
    if task:
        _require_verifier(task["verifier"], task["verifier_params"], plugins)


def _require_verifier(name: str, params: Mapping[str, Any], plugins: Plugins) -> None:
    """Check that a verifier can be created: for example, its data may be on another machine."""
    try:
        plugins.create_verifier(name, params).close()
    except GapftError:
        raise
    except Exception as error:
        raise UserError(
            f"verifier {name!r} cannot be created ({describe_error(error)}), so no verdict can be "
            "compared; give it what it needs and verify again"
        ) from error


def _describe_other_version(run: RunDirectory) -> str:
    """Describe that another version of this package made the run; else return an empty text."""
    made_by = run.facts()["versions"].get("gapft-harness")
    if made_by in (None, __version__):
        return ""
    return (
        f"the run was made by version {made_by} of gapft-harness, but this is {__version__}, which "
        "may write other contents; verify the run with the version that made it"
    )
