"""The search stage: search each split, with its chunks divided among jobs if workers suffice.

Generate and verify the deployment decode and K samples for every problem of a split, or only the
deployment decode for the calibration split. Read the task; write ``SPLIT/problems.parquet`` and
``SPLIT/responses.parquet`` (Section 3.1: d_src(x) and Y_K(x), every generation from the same
prompt, without feedback).
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import GapftError, UserError, describe_error
from gapft_harness.core.records import Problem
from gapft_harness.core.streams import SampleStreams
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import Job, ReportProgress, report_nothing
from gapft_harness.lm_eval_bridge.samplers.endings import format_ignored_entries
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import (
    CALIBRATION,
    SPLITS,
    RunDirectory,
    Split,
    list_splits,
)
from gapft_harness.run_directory.manifest import Manifest, record_warnings
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.recipe_changes import list_differences
from gapft_harness.run_directory.recording import record_search
from gapft_harness.run_directory.tables import write_problems
from gapft_harness.stages.generation.chunks import DecodePhase
from gapft_harness.stages.generation.generation import (
    build_deployment_phase,
    build_search_phases,
    count_reuse,
    generate_and_judge,
    read_decoding,
)
from gapft_harness.stages.generation.reuse import REUSE_KEY, ReuseCounts
from gapft_harness.stages.integrity.disjoint import require_disjoint_splits
from gapft_harness.stages.integrity.inputs import (
    SECTION,
    merge_new_splits,
    read_model_state,
    require_same_inputs,
)
from gapft_harness.stages.search.data import check_data, load_problems
from gapft_harness.stages.search.recorded import (
    build_search_settings,
    record_responses,
    require_unchanged_logs,
)
from gapft_harness.store.store import Store

if TYPE_CHECKING:
    from gapft_harness.stages.context import Context


def search_split(
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
        Facts for the manifest: ``task``, ``source``, and those of ``sealing.write_responses``; none
        for a share.

    Raises:
        UserError: an unknown task, malformed data, an unknown model, or another model than that
            of the splits that are already searched.
    """
    run = RunDirectory.open(run_path, recipe)
    if (facts := read_finished_facts(run.path, split)) is not None:
        return facts
    progress(0, 0)
    plugins = load_plugins(plugin_files)
    problems, task, judge, inputs = load_problems(run.recipe, split, plugins, include_paths)
    log_path, log_facts = run.path / layout.log_responses_path(split), dict[str, Any]()
    try:
        require_same_inputs(run, inputs)
        if run.recipe.search.list_logs(split):
            log_facts = record_responses(run.recipe, log_path, split, problems, task, plugin_files)
    except UserError:
        with judge:  # later, ``generate_and_judge`` closes it
            raise
    try:
        return generate_and_judge(
            run,
            task,
            problems,
            _build_phases(run.recipe, split, task),
            run.path / layout.responses_path(split),
            plugins,
            judge,
            name=split,
            streams=SampleStreams(run.recipe.search.seed, "search", split),
            progress=progress,
            extra=lambda source: {
                "task": task,
                "source": _describe_log_model(source) if log_facts else source,
                **log_facts,
            },
            on_generated=lambda responses: write_problems(
                run.path / layout.problems_path(split), problems, responses.iterate_prompt_ids
            ),
            share=None if share is None else (share[0], share[1]),
            settings=build_search_settings(run.recipe, run.path, split),
            has_verifier=log_facts.get("imported", {}).get("verdicts") != "file",
        )
    finally:
        log_path.unlink(missing_ok=True)


def _describe_log_model(source: Mapping[str, Any]) -> dict[str, Any]:
    """Keep of a description of ``recorded`` what describes the model of the responses."""
    return {
        key: source[key]
        for key in ("pretrained", "tokenizer", "start_ids", "responses_sha256")
        if key in source
    }


def _build_phases(recipe: Recipe, split: Split, task: Mapping[str, Any]) -> list[DecodePhase]:
    greedy = read_decoding(task)
    if split == CALIBRATION:
        return [build_deployment_phase(greedy, recipe.search)]
    return build_search_phases(greedy, recipe.search)


def foresee_search(
    recipe: Recipe,
    split: Split,
    problems: Sequence[Problem],
    task: Mapping[str, Any],
    plugins: Plugins,
    store: Store,
) -> ReuseCounts | None:
    """Count the parts of a split's search that the store has; see ``generation.count_reuse``.

    Args:
        recipe: the recipe.
        split: the split.
        problems: its problems.
        task: the facts of the split's task.
        plugins: the loaded plugins.
        store: the store.
    """
    streams = SampleStreams(recipe.search.seed, "search", split)
    phases = _build_phases(recipe, split, task)
    return count_reuse(recipe, task, problems, phases, plugins, streams, store)


def read_finished_facts(run_path: Path, split: Split) -> dict[str, Any] | None:
    """Return the facts of a split whose search has finished; else None.

    Raises:
        UserError: the table is damaged.
    """
    responses = run_path / layout.responses_path(split)
    if not responses.exists():
        return None
    try:
        return read_facts(responses)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{responses}: damaged ({describe_error(error)}); restore it, or start a new run "
            "directory"
        ) from error


#: Seconds until a file written on another machine must be visible on this one.
_VISIBLE_TIMEOUT_S = 90.0


def run_search_stage(context: Context) -> None:
    """Search all splits of the context; seal each finished one even if another fails.

    After a kill, the next command seals the finished splits before it searches, so that they are
    checked against the same task and model.
    """
    splits, facts_by_split = deque(context.splits), dict[Split, dict[str, Any]]()
    _seal_finished(context, splits, facts_by_split)
    unfinished = [split for split in splits if read_finished_facts(context.run.path, split) is None]
    if unfinished:
        try:
            facts_by_split |= _search_splits(context, unfinished)
        except GapftError:
            with contextlib.suppress(GapftError):  # the first error is reported
                _seal_finished(context, splits, facts_by_split)
            raise
        _seal_finished(context, splits, facts_by_split)
    _report_paper_comparison(context)


def compare_with_paper(run: RunDirectory) -> list[str]:
    """Compare the searched splits with the source's figures that the recipe gives from a paper.

    Args:
        run: the run; without a search the list is empty.

    Raises:
        GapftError: a table of responses was changed after it was sealed.
    """
    from gapft_harness.report.reading.published import describe_differences, measure_search

    recipe = run.recipe.model_dump(mode="json")
    searched_splits = [split for split in SPLITS if run.is_sealed(layout.responses_path(split))]
    for split in searched_splits:
        run.sealed(layout.responses_path(split))
    figures = [
        figure for split in searched_splits for figure in measure_search(run.path, recipe, split)
    ]
    return list(describe_differences(figures))


def _report_paper_comparison(context: Context) -> None:
    for line in compare_with_paper(context.run):
        context.report_line(line)


def _search_splits(context: Context, splits: Sequence[Split]) -> dict[Split, dict[str, Any]]:
    """Search splits in parallel, after the data of all of them are checked.

    Returns:
        The facts of each split's job.
    """
    will_train = "pool" in splits and not context.only_these_splits
    run, inputs = context.run, read_data(context, will_train=will_train)
    if not run.is_empty():
        require_same_inputs(run, inputs)
    if run.is_empty() or SECTION not in run.manifest():
        all_inputs = {**inputs, "model": read_model_state(run.recipe)}
        run.update_manifest(lambda manifest: manifest.update({SECTION: all_inputs}))
    _record_inputs(context, inputs, splits)
    workers = run.recipe.executor.workers // len(splits)
    divided = [split for split in splits if not run.recipe.search.list_logs(split)]
    if workers > 1 and divided:
        jobs = [
            _build_search_job(context, split, (i, workers))
            for split in divided
            for i in range(workers)
        ]
        shares = context.executor.run(jobs, context.progress)
    else:
        shares = []
    results = context.executor.run(
        [_build_search_job(context, split) for split in splits], context.progress
    )
    facts_by_split = dict(zip(splits, results, strict=True))
    for number, split in enumerate(divided if shares else ()):
        split_shares = shares[number * workers : (number + 1) * workers]
        facts_by_split[split][REUSE_KEY] = ReuseCounts.sum(
            share[REUSE_KEY] for share in split_shares if REUSE_KEY in share
        ).to_facts()
    for split in splits:
        _wait_for(run.path, split)
    return facts_by_split


def _record_inputs(context: Context, inputs: dict[str, Any], splits: Sequence[Split]) -> None:
    """Record the inputs of splits that are new in the run."""

    def add_inputs(manifest: Manifest) -> None:
        manifest[SECTION] = merge_new_splits(manifest[SECTION], inputs, splits)
        # after a search of some splits only (gapft gap), the others are added
        manifest[SECTION]["data"] = {**inputs["data"], **manifest[SECTION]["data"]}
        manifest[SECTION]["plugins"].update(inputs["plugins"])

    context.run.update_manifest(add_inputs)


def read_data(
    context: Context, include_paths: Sequence[str] | None = None, *, will_train: bool = False
) -> dict[str, Any]:
    """Read the inputs of the run's task and data in a job (``data.check_data``)."""
    if include_paths is not None:
        context = replace(context, include_paths=include_paths)
    only = None
    if (
        context.only_these_splits
    ):  # together with the searched splits, since splits must be disjoint
        is_sealed = context.run.is_sealed
        only = [
            split
            for split in list_splits(context.run.recipe)
            if split in context.splits or is_sealed(layout.responses_path(split))
        ]
    job = Job.of(
        "read data", check_data, only=only, will_train=will_train, **_build_job_arguments(context)
    )
    return context.executor.run([job], context.progress)[0]


def _wait_for(run_path: Path, split: Split) -> None:
    """Wait until the tables of a finished search are visible on this machine.

    A shared file system may cache for a while that they were missing.
    """
    deadline = time.monotonic() + _VISIBLE_TIMEOUT_S
    while read_finished_facts(run_path, split) is None:
        if time.monotonic() > deadline:
            raise GapftError(
                f"{run_path / split}: its search has finished, but {_VISIBLE_TIMEOUT_S:g} s later "
                "its tables are not visible on this machine; check that all machines see the same "
                "run directory, and run the same command again to continue"
            )
        time.sleep(0.5)


def _seal_finished(
    context: Context, splits: deque[Split], facts_by_split: Mapping[Split, dict[str, Any]]
) -> None:
    """Seal finished splits and remove them from the queue, up to the first unfinished one.

    The order is kept, so that an interrupted run ends with the same manifest.

    Args:
        context: the run.
        splits: the splits to seal.
        facts_by_split: the facts of this command's jobs, which contain more than their tables.
    """
    while splits and (facts := read_finished_facts(context.run.path, splits[0])) is not None:
        split = splits.popleft()
        require_unchanged_logs(split, facts)
        _seal_split(context, split, {**facts, **facts_by_split.get(split, {})})


def store_searched_recipe(context: Context) -> None:
    """Store the recipe of a separate search command, since later stages use it.

    If the run has selected, only the calibration settings are added; another selection needs a
    separate command.
    """
    run = context.run
    if "n" not in run.manifest():
        context.warn(run.record_changes())
        run.write_recipe()
        return
    earlier = RunDirectory.open(run.path).recipe
    merged = earlier.with_scaling_of(run.recipe)
    merged_run = RunDirectory(run.path, merged)
    context.warn(merged_run.record_changes())
    merged_run.write_recipe()
    if pending_changes := list_differences(
        merged.model_dump(mode="json"), run.recipe.model_dump(mode="json")
    ):
        context.report_line(
            f"these settings apply when gapft run selects again: {'; '.join(pending_changes)}"
        )


def _build_search_job(context: Context, split: Split, share: tuple[int, int] | None = None) -> Job:
    if share is None:
        job = Job.of(f"search {split}", search_split, split=split, **_build_job_arguments(context))
    else:
        label = f"search {split}, {share[0] + 1} of {share[1]}"
        job = Job.of(label, search_split, split=split, share=share, **_build_job_arguments(context))
    return replace(job, own_process=context.has_own_process)


def _build_job_arguments(context: Context) -> dict[str, Any]:
    """Build the arguments that all jobs of the search share."""
    return {
        "run_path": str(context.run.path),
        "plugin_files": list(context.plugin_files),
        "include_paths": [str(path) for path in context.include_paths],
        # the recipe on disk does not have calibration yet if it is being added to the run
        "recipe": context.run.recipe.model_dump(mode="json"),
    }


def _seal_split(context: Context, split: Split, facts: dict[str, Any]) -> None:
    """Seal a searched split, record its facts and print its warnings."""
    manifest = context.run.manifest()
    record = record_search(split, facts)
    record(manifest)  # on a copy: a refused split is not sealed
    searched_splits = [
        searched_split
        for searched_split in list_splits(context.run.recipe)
        if searched_split in manifest["verdict_counts"]
    ]
    warnings = require_disjoint_splits(context.run, searched_splits)
    _seal_tables(context.run, split)
    context.run.update_manifest(record)
    context.run.update_manifest(partial(_record_model, recipe=context.run.recipe))
    # the sampler reports ignored settings while it generates; the report needs them too
    ignored = facts["source"].get("generation_config_ignored")
    pretrained = context.run.recipe.model.args["pretrained"]
    recorded = [*warnings, *([format_ignored_entries(pretrained, ignored)] if ignored else [])]
    if recorded:
        context.run.update_manifest(partial(record_warnings, warnings=recorded))
        context.warn(warnings)
    _report_split(context, split, facts)


def _record_model(manifest: Manifest, recipe: Recipe) -> None:
    """Record the state of the model's files if the first search downloaded them."""
    if SECTION in manifest and manifest[SECTION].get("model") is None:
        manifest[SECTION]["model"] = read_model_state(recipe)


def _seal_tables(run: RunDirectory, split: Split) -> None:
    for table in (layout.problems_path(split), layout.responses_path(split)):
        run.seal(table)


def _report_split(context: Context, name: str, facts: dict[str, Any]) -> None:
    for line in facts["task"]["dropped"]:
        context.report_line(line)
    if line := ReuseCounts(**facts.get(REUSE_KEY, {})).describe(context.run.path):
        context.report_line(f"search {name}: {line}")
    context.warn(facts["task"].get("warnings", []))
    context.warn(facts["warnings"], name)
