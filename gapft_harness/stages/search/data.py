"""Read the task and its data: all splits, to check them, or one, to search it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.identities import canonical_json
from gapft_harness.core.records import Problem
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import ReportProgress, report_nothing
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.directory import Split
from gapft_harness.run_directory.recipe_changes import select_searched
from gapft_harness.stages.search.splits import (
    ReadSplit,
    read_splits,
)
from gapft_harness.stages.search.trainable import check_trainable

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.loaded_task import LoadedTask


def check_data(
    recipe: Mapping[str, Any],
    plugin_files: Sequence[str] = (),
    include_paths: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
    only: Sequence[Split] | None = None,
    will_train: bool = False,
) -> dict[str, Any]:
    """Read and check all splits of a run before any is searched, in the command or as a job.

    Args:
        recipe: the recipe.
        plugin_files: files given by ``--plugin``.
        include_paths: folders with task YAML.
        progress: called at the start and at the end.
        only: the splits to read, if the run has no others.
        will_train: whether the run trains on the pool; then its conditions must be trainable on it.

    Returns:
        The facts of the ``task``, with its notices, and what ``hash_problems`` returns for each of
        its ``splits``.

    Raises:
        UserError: as ``check_splits`` and ``check_trainable``.
    """
    progress(0, 1)
    checked, plugins = check_recipe(dict(recipe), "the run's recipe"), load_plugins(plugin_files)
    splits, task = check_splits(checked, plugins, include_paths, only)
    if will_train:
        check_trainable(checked, plugins, splits["pool"].problems, task)
    progress(1, 1)
    notices = {
        "dropped": [line for read in splits.values() for line in read.dropped],
        "warnings": [line for read in splits.values() for line in read.warnings],
    }
    return {
        "task": task | notices,
        "splits": {split: hash_problems(read.problems) for split, read in splits.items()},
    }


def hash_problems(problems: Iterable[Problem]) -> dict[str, Any]:
    """Count and hash problems, in the order of their ids."""
    digest = hashlib.sha256()
    count = 0
    for problem in sorted(problems, key=lambda problem: problem.id):
        fields = [problem.id, problem.prompt, problem.turns, problem.gold, dict(problem.document)]
        digest.update(canonical_json(fields).encode() + b"\n")
        count += 1
    return {"problems": count, "sha256": digest.hexdigest()}


def check_splits(
    recipe: Recipe,
    plugins: Plugins,
    include_paths: Sequence[str],
    only: Sequence[Split] | None = None,
) -> tuple[dict[Split, ReadSplit], dict[str, Any]]:
    """Read all or some of the splits of a recipe, and check every gold answer.

    Returns:
        The splits, and the task's facts.

    Raises:
        UserError: an unknown task or verifier, missing or malformed data, a problem in two
            splits, or few-shot examples that are audit or calibration problems.
    """
    task = _load_recipe_task(recipe, include_paths)
    facts, judge = _load_verifier(task, recipe, plugins)
    with judge:
        splits = read_splits(task, recipe, only)
        for read_data in splits.values():
            task.check_golds(judge, read_data.gold_split)
    return splits, facts


def _load_recipe_task(recipe: Recipe, include_paths: Sequence[str]) -> LoadedTask:
    from gapft_harness.lm_eval_bridge.discovery import load_task
    from gapft_harness.lm_eval_bridge.loaded_task import ChatLayout

    model = recipe.model
    chat = ChatLayout(model.system_instruction, model.fewshot_as_multiturn)
    paths = [Path(path) for path in include_paths]
    return load_task(recipe.data.task, paths, chat if model.chat_template else None)


def resolve_task_settings(
    recipe: Recipe, plugins: Plugins, include_paths: Sequence[str]
) -> dict[str, Any] | None:
    """Resolve the settings that a recipe leaves to its task; return None for an unreadable task.

    Returns:
        The response rule (``keep``) and the episode's settings (``episode``).
    """
    try:
        task = _load_recipe_task(recipe, include_paths)
        facts, judge = _load_verifier(task, recipe, plugins)
    except GapftError:
        return None
    with judge:
        return {"keep": facts["keep"], "episode": dict(facts["episode"])}


def _load_verifier(
    task: LoadedTask, recipe: Recipe, plugins: Plugins
) -> tuple[dict[str, Any], Judge]:
    """Resolve the task's facts and load its verifier."""
    decoding = task.build_decoding(recipe.search)
    attempts = recipe.episode.attempts or task.episode.attempts
    if attempts > 1 and task.has_answer_prefix:
        raise UserError(
            f"{task.location}: gen_prefix would apply only to the first of an episode's {attempts} "
            "attempts; set episode.attempts: 1, or remove gen_prefix from the task"
        )
    # Choose the verifier and its parameters, and create it once to check them
    override = recipe.verifier
    is_renamed = override.name is not None and override.name != task.verifier
    name = override.name or task.verifier
    task_params = {} if is_renamed else task.verifier_params
    params = recipe.add_think_end_token({**task_params, **override.params})
    try:
        judge = plugins.create_verifier(name, params)
    except UserError as error:
        if override.name or override.params:
            raise error.with_place("recipe, section verifier") from error
        raise error.with_place(task.location) from error
    if recipe.evidence.keep is None:
        try:
            plugins.get("response rule", task.keep)
        except UserError as error:
            raise error.with_place(f"{task.location}: metadata.gapft.keep") from error
    # Record what decides prompts, responses and verdicts
    facts = {
        "name": task.name,
        "version": task.version,
        "fingerprint": task.compute_fingerprint(),
        "dropped": [],
        "warnings": [],
        "verifier": name,
        "verifier_params": params,
        "keep": task.keep,
        "decoding": {
            "max_gen_toks": recipe.search.max_gen_toks or decoding.max_gen_toks,
            "until": list(decoding.until),
        },
        "episode": {
            "attempts": attempts,
            "executions": recipe.episode.executions or task.episode.executions,
        },
        "recipe": select_searched(recipe),
    }
    return facts, judge
