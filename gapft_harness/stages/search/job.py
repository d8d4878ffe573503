"""Search: one greedy decode and K samples for every problem of a split, verified.

The calibration split gets the greedy decode alone. Reads the task; writes
``SPLIT/problems.parquet`` and ``SPLIT/responses.parquet`` (Section 3.1: d_src(x) and Y_K(x), every
generation from the same prompt, without feedback).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Problem
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import ReportProgress, Verifier
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory, Split
from gapft_harness.run_directory.shards import Shard, part_of, take_part
from gapft_harness.run_directory.tables import read_facts
from gapft_harness.run_directory.tables.problems import write_problems
from gapft_harness.stages.foundation.foundation import codes, content, named, places, require_same
from gapft_harness.stages.generation.answering import answer
from gapft_harness.stages.generation.early_stop import check_early_stop, stops
from gapft_harness.stages.generation.generation import decoding_from, greedy_phase, sample_phases
from gapft_harness.stages.generation.sealing import closing_verifier
from gapft_harness.stages.search.splits import ReadSplit, read_split, read_splits

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.loaded_task import LoadedTask


def search(
    run_path: str,
    split: Split,
    plugin_files: Sequence[str] = (),
    include_paths: Sequence[str] = (),
    progress: ReportProgress = lambda done, total: None,
    shard: str | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Searches one split with the source model, or one shard of a split.

    Args:
        run_path: the run directory.
        split: ``pool``, ``audit`` or ``calibration``, which gets the greedy decode alone.
        plugin_files: files given by ``--plugin``.
        include_paths: folders with task YAML given by ``--include-path``.
        progress: called with (0, 0) before data and model are loaded, then as ``generate`` does.
        shard: ``I/N`` searches the problems of that shard alone, into a folder of its own.
        recipe: as ``RunDirectory.open`` takes it.

    Returns:
        Facts for the manifest: ``task``, ``source``, those of ``sealing.write_responses``, and of
        a shard those of ``shards.take_part``.

    Raises:
        UserError: unknown task, malformed data, no such model, another model than that of the
            splits that are searched already, ...
    """
    run = RunDirectory.open(run_path, recipe)
    one = Shard.parse(shard) if shard else None
    part = part_of(split, one)
    if (found := finished(run.path, part)) is not None:
        return found
    progress(0, 0)
    plugins = load_plugins(plugin_files)
    problems, task, verifier, rests = load_problems(run.recipe, split, plugins, include_paths)
    require_same(run, rests)
    problems, division = take_part(problems, one, run.recipe.identity(plugins))
    settings = run.recipe.search
    check_early_stop(settings, plugins.get("response rule", task["keep"]), task)
    phases = [greedy_phase(decoding_from(task))]
    if split != CALIBRATION:
        phases += sample_phases(decoding_from(task), settings, stops(settings, split))
    return answer(
        run,
        task,
        problems,
        phases,
        run.path / layout.responses(part),
        plugins,
        verifier,
        name=split,
        purpose=f"search/{split}",
        progress=progress,
        extra=lambda source: {"task": task, "source": source, **division},
        generated=lambda journal: write_problems(
            run.path / layout.problems(part), problems, journal.prompt_ids
        ),
    )


def finished(run_path: Path, part: str) -> dict[str, Any] | None:
    """The facts of a part (``shards.part_of``) whose search has ended; None before that.

    What a kill left of its journal is taken away: the tables hold all of it.

    Raises:
        UserError: the table was damaged.
    """
    responses = run_path / layout.responses(part)
    if not responses.exists():
        return None
    try:
        facts = read_facts(responses)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{responses}: is damaged ({type(error).__name__}: {' '.join(str(error).split())}); "
            "restore it, or start a new run directory"
        ) from error
    (run_path / layout.journal(layout.responses(part))).unlink(missing_ok=True)
    return facts


def check_data(
    run_path: str,
    plugin_files: Sequence[str] = (),
    include_paths: Sequence[str] = (),
    progress: ReportProgress = lambda done, total: None,
    recipe: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Reads all splits of a run before any is searched, and holds them apart.

    Args:
        run_path: the run directory.
        plugin_files: files given by ``--plugin``.
        include_paths: folders with task YAML given by ``--include-path``.
        progress: called when all are read.
        recipe: as ``RunDirectory.open`` takes it.

    Returns:
        What the run rests on (``stages/foundation``), but for its model.

    Raises:
        UserError: as ``check_splits``.
    """
    run, plugins = RunDirectory.open(run_path, recipe), load_plugins(plugin_files)
    found = check_splits(run.recipe, plugins, include_paths)[2]
    progress(1, 1)
    return found


def check_splits(
    recipe: Recipe, plugins: Plugins, include_paths: Sequence[str]
) -> tuple[dict[Split, ReadSplit], dict[str, Any], dict[str, Any]]:
    """Reads all splits that a recipe searches, and checks every gold answer.

    Returns:
        The splits; the task's facts; what it rests on (``stages/foundation``), but for its model.

    Raises:
        UserError: an unknown task or verifier, data that are missing or malformed, a problem of
            two splits, or few-shot examples that are audit or calibration problems.
    """
    from gapft_harness.lm_eval_bridge.task_file.opened_files import watching

    with watching() as opened:
        task = _load(recipe, include_paths)
    facts, verifier = _judge(task, recipe, plugins)
    with closing_verifier(verifier):
        with watching() as more:
            found = read_splits(task, recipe)
        for read in found.values():
            task.check_golds(verifier, read.golds)
    opened |= more
    rests = {
        **content(task, opened, {split: read.problems for split, read in found.items()}),
        "plugins": codes(plugins, named(recipe, facts)),
        **places(task, opened, include_paths),
    }
    return found, facts, rests


def load_problems(
    recipe: Recipe, split: Split, plugins: Plugins, include_paths: Sequence[str]
) -> tuple[list[Problem], dict[str, Any], Verifier, dict[str, Any]]:
    """Loads a split's problems, with the recipe's overrides of the task applied.

    Returns:
        The problems; the task's facts for the manifest; the verifier, which has accepted every
        gold answer (close it); what of ``rests_on`` was loaded.

    Raises:
        UserError: an unknown task or verifier, or data that are missing or malformed.
    """
    task = _load(recipe, include_paths)
    read = read_split(task, recipe, split)
    facts, verifier = _judge(task, recipe, plugins)
    task.check_golds(verifier, read.golds)
    told = {"dropped": list(read.dropped), "warnings": list(read.warnings)}
    rests = {
        **content(task, (), {split: read.problems}),
        "plugins": codes(plugins, named(recipe, facts)),
    }
    return read.problems, facts | told, verifier, rests


def _load(recipe: Recipe, include_paths: Sequence[str]) -> LoadedTask:
    from gapft_harness.lm_eval_bridge.discovery import load_task

    return load_task(recipe.data.task, [Path(path) for path in include_paths])


def _judge(task: LoadedTask, recipe: Recipe, plugins: Plugins) -> tuple[dict[str, Any], Verifier]:
    """The task's facts, and its verifier."""
    decoding = task.decoding(recipe.search)
    override = recipe.verifier
    renamed = override.name is not None and override.name != task.verifier
    name = override.name or task.verifier
    params = {**({} if renamed else task.verifier_params), **override.params}
    try:
        verifier = plugins.verifier(name, params)
    except UserError as error:
        if override.name or override.params:
            raise type(error)(f"recipe, section verifier: {error}") from error
        raise type(error)(f"{task.where}: {error}") from error
    facts = {
        "name": task.name,
        "version": task.version,
        "fingerprint": task.fingerprint,
        "dropped": [],
        "warnings": [],
        "verifier": name,
        "verifier_params": params,
        "keep": recipe.evidence.keep or task.keep,
        "decoding": {
            "max_gen_toks": recipe.search.max_gen_toks or decoding.max_gen_toks,
            "until": list(decoding.until),
        },
        "episode": {
            "attempts": recipe.episode.attempts or task.episode.attempts,
            "executions": recipe.episode.executions or task.episode.executions,
        },
    }
    return facts, verifier
