"""The search stage: search each split, with its chunks divided among jobs if workers suffice.

Generate and verify one greedy decode and K samples for every problem of a split, or only the greedy
decode for the calibration split. Read the task; write ``SPLIT/problems.parquet`` and
``SPLIT/responses.parquet`` (Section 3.1: d_src(x) and Y_K(x), every generation from the same
prompt, without feedback).
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import GapftError, UserError, describe
from gapft_harness.core.records import Problem
from gapft_harness.core.streams import SampleStreams
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import Job, ReportProgress, report_nothing
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.binding import differences
from gapft_harness.run_directory.directory import (
    CALIBRATION,
    SPLITS,
    RunDirectory,
    Split,
    splits_of,
)
from gapft_harness.run_directory.manifest import Manifest, record_warnings
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.recording import record_search
from gapft_harness.run_directory.tables import write_problems
from gapft_harness.stages.generation.chunks import Phase
from gapft_harness.stages.generation.foreseen import FORESEEN, Foreseen
from gapft_harness.stages.generation.generation import (
    answer,
    check_early_stop,
    decoding_from,
    foresee,
    greedy_phase,
    search_phases,
    stops,
)
from gapft_harness.stages.integrity.disjoint import require_apart
from gapft_harness.stages.integrity.rests_on import SECTION, model_state, require_same, with_audits
from gapft_harness.stages.integrity.subsets import seal_subsets, unsealed
from gapft_harness.stages.search.data import check_data, load_problems, match_subset
from gapft_harness.stages.selection.other_runs import check_sources
from gapft_harness.store.store import Store

if TYPE_CHECKING:
    from gapft_harness.stages.context import Context


def search(
    run_path: str,
    split: Split,
    plugin_files: Sequence[str] = (),
    include_paths: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
    share: Sequence[int] | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Search one split with the source model, as a job.

    Args:
        run_path: the run directory.
        split: one of ``list_splits``; ``calibration`` is only decoded greedily.
        plugin_files: files given by ``--plugin``.
        include_paths: folders with task YAML.
        progress: called with (0, 0) before data and model are loaded, then as by ``generate``.
        share: (worker number from 0, number of workers): generate only this worker's chunks, and
            write no table.
        recipe: the recipe, if it is not yet on disk.

    Returns:
        Facts for the manifest: ``task``, ``source``, for a further audit ``said`` (the recipe's
        settings of it), and those of ``sealing.write_responses``; none for a share.

    Raises:
        UserError: an unknown task, malformed data, an unknown model, or another model than that
            of the splits that are already searched.
    """
    run = RunDirectory.open(run_path, recipe)
    if (found := finished(run.path, split)) is not None:
        return found
    shutil.rmtree(run.path / layout.imported(split), ignore_errors=True)  # from a killed import
    progress(0, 0)
    plugins = load_plugins(plugin_files)
    problems, task, verifier, rests = load_problems(run.recipe, split, plugins, include_paths)
    require_same(run, rests)
    settings = run.recipe.search
    if not layout.further(split):
        check_early_stop(settings, plugins.get("response rule", task["keep"]), task)
    choice = run.recipe.audits.get(layout.further(split))
    said = {} if choice is None else {"said": choice.said()}
    return answer(
        run,
        task,
        problems,
        _phases(run.recipe, split, task),
        run.path / layout.responses(split),
        plugins,
        verifier,
        name=split,
        streams=SampleStreams(settings.seed, "search", split),
        progress=progress,
        extra=lambda source: {"task": task, "source": source, **said},
        generated=lambda responses: write_problems(
            run.path / layout.problems(split), problems, responses.prompt_ids
        ),
        share=None if share is None else (share[0], share[1]),
    )


def _phases(recipe: Recipe, split: Split, task: Mapping[str, Any]) -> list[Phase]:
    greedy = decoding_from(task)
    if split == CALIBRATION:
        return [greedy_phase(greedy)]
    return search_phases(greedy, recipe.search, stops(recipe.search, split))


def foresee_search(
    recipe: Recipe,
    split: Split,
    problems: Sequence[Problem],
    task: Mapping[str, Any],
    plugins: Plugins,
    store: Store,
) -> Foreseen | None:
    """Count the parts of a split's search that the store has; see ``generation.foresee``.

    Args:
        recipe: the recipe.
        split: the split.
        problems: its problems.
        task: the facts of the split's task.
        plugins: the loaded plugins.
        store: the store.
    """
    streams = SampleStreams(recipe.search.seed, "search", split)
    phases = _phases(recipe, split, task)
    return foresee(recipe, task, problems, phases, plugins, streams, store)


def finished(run_path: Path, split: Split) -> dict[str, Any] | None:
    """Return the facts of a split whose search has finished; else None.

    Raises:
        UserError: the table is damaged.
    """
    responses = run_path / layout.responses(split)
    if not responses.exists():
        return None
    try:
        return read_facts(responses)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{responses}: damaged ({describe(error)}); restore it, or start a new run directory"
        ) from error


#: Seconds until a file written on another machine must be visible on this one.
_PATIENCE_S = 90.0


def search_stage(context: Context) -> None:
    """Search all splits of the context; seal each finished one even if another fails.

    After a kill, the next command seals the finished splits before it searches, so that they are
    checked against the same task and model.
    """
    splits, made = deque(context.splits), dict[Split, dict[str, Any]]()
    _take_up(context, splits, made)
    left = [split for split in splits if finished(context.run.path, split) is None]
    if left:
        try:
            made |= _search(context, left)
        except GapftError:
            with contextlib.suppress(GapftError):  # the first error is reported
                _take_up(context, splits, made)
            raise
        _take_up(context, splits, made)
    _seal_subsets(context)
    _hold_to_paper(context)


def held_to_paper(run: RunDirectory) -> list[str]:
    """Compare the searched splits with the source's figures that the recipe gives from a paper.

    Args:
        run: the run; without a search the list is empty.

    Raises:
        GapftError: a table of responses was changed after it was sealed.
    """
    from gapft_harness.report.reading.paper import searched, told

    recipe = run.recipe.model_dump(mode="json")
    there = [split for split in SPLITS if run.is_sealed(layout.responses(split))]
    for split in there:
        run.sealed(layout.responses(split))
    figures = [of for split in there for of in searched(run.path, recipe, split)]
    return [said.line for said in told(figures)]


def _hold_to_paper(context: Context) -> None:
    for line in held_to_paper(context.run):
        context.say(line)


def _seal_subsets(context: Context) -> None:
    """Seal every subset of a searched audit: those of ids, and those defined by a task."""
    run = context.run
    seal_subsets(run)
    if not (names := [name for name, _ in unsealed(run)]):
        return
    _record(context, read_data(context), [layout.audit(name) for name in names])
    jobs = [Job.of(f"match {name}", match_subset, name=name, **_where(context)) for name in names]
    context.executor.run(jobs, context.progress)
    for name in names:
        run.seal(layout.items(layout.audit(name)))


def _search(context: Context, splits: Sequence[Split]) -> dict[Split, dict[str, Any]]:
    """Search splits in parallel, after the data of all of them are checked.

    Returns:
        The facts of each split's job.
    """
    trains = "pool" in splits and context.searching is None and not context.alone
    run, now = context.run, read_data(context, trains=trains)
    if not run.is_empty():
        require_same(run, now)
    check_sources(run, context.plugins, now)
    if run.is_empty() or SECTION not in run.manifest():
        rests = {**now, "model": model_state(run.recipe)}
        run.update_manifest(lambda manifest: manifest.update({SECTION: rests}))
    _record(context, now, splits)
    workers = run.recipe.executor.workers // len(splits)
    if workers > 1 and context.searching is None:
        jobs = [_job(context, split, (i, workers)) for split in splits for i in range(workers)]
        shares = context.executor.run(jobs, context.progress)
    else:
        shares = []
    found = context.executor.run([_job(context, split) for split in splits], context.progress)
    for number, facts in enumerate(found if shares else ()):
        of_split = shares[number * workers : (number + 1) * workers]
        facts[FORESEEN] = Foreseen.sum(of[FORESEEN] for of in of_split if FORESEEN in of).facts()
    for split in splits:
        _wait_for(run.path, split)
    return dict(zip(splits, found, strict=True))


def _record(context: Context, now: dict[str, Any], splits: Sequence[Split]) -> None:
    """Record the inputs of splits that are new in the run."""

    def change(manifest: Manifest) -> None:
        manifest[SECTION] = with_audits(manifest[SECTION], now, splits)
        # after a search of some splits only (gapft gap), the others are added
        manifest[SECTION]["data"] = {**now["data"], **manifest[SECTION]["data"]}
        manifest[SECTION]["plugins"].update(now["plugins"])

    context.run.update_manifest(change)


def read_data(
    context: Context, include_paths: Sequence[str] | None = None, *, trains: bool = False
) -> dict[str, Any]:
    """Read the inputs of the run's task and data in a job (``data.check_data``)."""
    if include_paths is not None:
        context = replace(context, include_paths=include_paths)
    only = None
    if context.alone:  # together with the searched splits, since splits must be disjoint
        there = context.run.is_sealed
        only = [
            split
            for split in splits_of(context.run.recipe)
            if split in context.splits or there(layout.responses(split))
        ]
    job = Job.of("read data", check_data, only=only, trains=trains, **_where(context))
    return context.executor.run([job], context.progress)[0]


def _wait_for(run_path: Path, split: Split) -> None:
    """Wait until the tables of a finished search are visible on this machine.

    A shared file system may cache for a while that they were missing.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while finished(run_path, split) is None:
        if time.monotonic() > deadline:
            raise GapftError(
                f"{run_path / split}: its search has finished, but {_PATIENCE_S:g} s later its "
                "tables are not visible on this machine; check that all machines see the same run "
                "directory, and run the same command again to continue"
            )
        time.sleep(0.5)


def _take_up(context: Context, splits: deque[Split], made: Mapping[Split, dict[str, Any]]) -> None:
    """Seal finished splits and remove them from the queue, up to the first unfinished one.

    The order is kept, so that an interrupted run ends with the same manifest.

    Args:
        context: the run.
        splits: the splits to seal.
        made: the facts of this command's jobs, which contain more than their tables.
    """
    while splits and (facts := finished(context.run.path, splits[0])) is not None:
        split = splits.popleft()
        _finish(context, split, {**facts, **made.get(split, {})})


def keep_searched(context: Context) -> None:
    """Store the recipe of a separate search command, since later stages use it.

    If the run has selected, only the calibration and audit settings are added; another selection
    needs a separate command.
    """
    run = context.run
    if "n" not in run.manifest():
        context.warn(run.record_changes())
        run.commit()
        return
    earlier = RunDirectory.open(run.path).recipe
    now = earlier.searched_as(run.recipe)
    kept = RunDirectory(run.path, now)
    context.warn(kept.record_changes())
    kept.commit()
    if later := differences(now.model_dump(mode="json"), run.recipe.model_dump(mode="json")):
        context.say(f"these settings apply when gapft run selects again: {'; '.join(later)}")


def _job(context: Context, split: Split, share: tuple[int, int] | None = None) -> Job:
    if context.searching:
        return Job.of(f"import {split}", context.searching, split=split, **_where(context))
    if share is None:
        job = Job.of(f"search {split}", search, split=split, **_where(context))
    else:
        label = f"search {split}, {share[0] + 1} of {share[1]}"
        job = Job.of(label, search, split=split, share=share, **_where(context))
    return replace(job, own_process=context.own_process)


def _where(context: Context) -> dict[str, Any]:
    """Build the arguments that all jobs of the search share."""
    return {
        "run_path": str(context.run.path),
        "plugin_files": list(context.plugin_files),
        "include_paths": [str(path) for path in context.include_paths],
        # the recipe on disk does not have calibration yet if it is being added to the run
        "recipe": context.run.recipe.model_dump(mode="json"),
    }


def _finish(context: Context, split: Split, facts: dict[str, Any]) -> None:
    """Seal a searched split, record its facts and print its warnings."""
    manifest = context.run.manifest()
    if name := layout.further(split):
        # the table may come from an earlier command with another recipe that did not seal it
        choice = context.run.recipe.audits.get(name)
        said = {} if choice is None else choice.said()
        if said and (lines := differences(facts["said"], said, f"audits.{name}")):
            raise UserError(
                f"{context.run.path}: {name} was searched with other settings, and not sealed: "
                f"{'; '.join(lines)}. Remove {context.run.path / split}, and run the command again"
            )
    record = record_search(split, facts)
    record(manifest)  # on a copy: a refused split is not sealed
    there = [each for each in splits_of(context.run.recipe) if each in manifest["verdict_counts"]]
    remarks = require_apart(context.run, there)
    _seal(context.run, split)
    context.run.update_manifest(record)
    context.run.update_manifest(partial(_record_model, recipe=context.run.recipe))
    if remarks:
        context.run.update_manifest(partial(record_warnings, warnings=remarks))
        context.warn(remarks)
    _tell(context, split, facts)


def _record_model(manifest: Manifest, recipe: Recipe) -> None:
    """Record the state of the model's files if the first search downloaded them."""
    if SECTION in manifest and manifest[SECTION].get("model") is None:
        manifest[SECTION]["model"] = model_state(recipe)


def _seal(run: RunDirectory, split: Split) -> None:
    for table in (layout.problems(split), layout.responses(split)):
        run.seal(table)


def _tell(context: Context, name: str, facts: dict[str, Any]) -> None:
    for line in facts["task"]["dropped"]:
        context.say(line)
    if line := Foreseen(**facts.get(FORESEEN, {})).describe(context.run.path):
        context.say(f"search {name}: {line}")
    context.warn(facts["task"].get("warnings", []))
    context.warn(facts["warnings"], name)
