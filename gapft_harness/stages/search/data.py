"""Read the task and its data: all splits, to check them, or one, to search it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import Problem
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import ReportProgress, Verifier, report_nothing
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import AuditChoice
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory, Split
from gapft_harness.run_directory.tables import read_prompts, write_items
from gapft_harness.stages.generation.sealing import closing_verifier
from gapft_harness.stages.integrity.disjoint import DuplicateIndex, KeyedText
from gapft_harness.stages.integrity.inputs import (
    hash_components,
    hash_task_content,
    list_search_components,
    locate_task_files,
    merge_audit_inputs,
)
from gapft_harness.stages.integrity.subsets import check_items, find_audit_split, name_audit
from gapft_harness.stages.search.splits import (
    ReadSplit,
    read_split,
    read_splits,
    require_unseen_audit,
)
from gapft_harness.stages.search.trainable import check_trainable

if TYPE_CHECKING:
    from gapft_harness.lm_eval_bridge.loaded_task import LoadedTask


def check_data(
    run_path: str,
    plugin_files: Sequence[str] = (),
    include_paths: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
    recipe: Mapping[str, Any] | None = None,
    only: Sequence[Split] | None = None,
    will_train: bool = False,
) -> dict[str, Any]:
    """Read and check all splits of a run before any is searched, as a job.

    Args:
        run_path: the run directory.
        plugin_files: files given by ``--plugin``.
        include_paths: folders with task YAML.
        progress: called at the start and at the end.
        recipe: the recipe, if it is not yet on disk.
        only: the splits to read, if the run has no others.
        will_train: whether the run trains on the pool; then its conditions must be trainable on it.

    Returns:
        The inputs of the run (``stages/integrity``), without its model.

    Raises:
        UserError: as ``check_splits`` and ``check_trainable``.
    """
    progress(0, 1)
    run, plugins = RunDirectory.open(run_path, recipe), load_plugins(plugin_files)
    splits, task, inputs = check_splits(run.recipe, plugins, include_paths, only)
    if will_train:
        check_trainable(run.recipe, plugins, splits["pool"].problems, task)
    progress(1, 1)
    return inputs


def check_splits(
    recipe: Recipe,
    plugins: Plugins,
    include_paths: Sequence[str],
    only: Sequence[Split] | None = None,
) -> tuple[dict[Split, ReadSplit], dict[str, Any], dict[str, Any]]:
    """Read all or some of the splits of a recipe, and check every gold answer.

    Returns:
        The splits; the task's facts; the inputs (``stages/integrity``), without the model.

    Raises:
        UserError: an unknown task or verifier, missing or malformed data, a problem in two
            splits, few-shot examples that are audit or calibration problems, or a subset of an
            audit with problems that the audit does not have.
    """
    splits, task, facts, inputs = _read_task(recipe, plugins, include_paths, only=only)
    audits, tasks = {}, {}
    for name in recipe.further_audits:
        audit_splits, audit_task, audit_facts, audit_inputs = _read_task(
            recipe.for_audit(name), plugins, include_paths, name
        )
        require_unseen_audit(recipe, task, splits, name, audit_task, audit_splits)
        splits |= audit_splits
        inputs = merge_audit_inputs(inputs, audit_inputs, name)
        audits[name], tasks[name] = audit_facts, audit_task
    for name, choice in _list_matched_subsets(recipe):
        audit_splits, audit_task, _, audit_inputs = _read_task(
            recipe.for_audit(name), plugins, include_paths, name
        )
        ((_, shared),) = audit_splits.items()
        source_task = task if choice.of == "audit" else tasks[str(choice.of)]
        problems = splits[find_audit_split(str(choice.of))].problems
        ids = _match_problems(
            audit_task, shared, [(p.id, source_task.find_question(p)) for p in problems]
        )
        _require_matches(name, choice, ids)
        inputs = merge_audit_inputs(inputs, audit_inputs, name)
    check_items(
        recipe,
        {split: [p.id for p in audit_splits.problems] for split, audit_splits in splits.items()},
    )
    return splits, {**facts, "audits": audits}, inputs


def match_subset(
    run_path: str,
    name: str,
    plugin_files: Sequence[str] = (),
    include_paths: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
    recipe: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the problems of a subset that are in the audit of its task, as a job.

    Raises:
        UserError: no problem is in both audits.
    """
    progress(0, 1)
    run = RunDirectory.open(run_path, recipe)
    choice = run.recipe.audits[name]
    ids = find_matched_ids(run, name, include_paths)
    _require_matches(name, choice, ids)
    write_items(
        run.path / layout.items_path(layout.audit_split(name)), str(choice.of), ids, choice.task
    )
    progress(1, 1)
    return {}


def find_matched_ids(run: RunDirectory, name: str, include_paths: Sequence[str]) -> list[str]:
    """Find the problem ids of a subset that a task defines, in the sealed audit.

    Raises:
        UserError: the task or its data cannot be read.
    """
    choice, own = run.recipe.audits[name], run.recipe.for_audit(name)
    task = _load_recipe_task(own, include_paths)
    problems = read_prompts(run.sealed(layout.problems_path(find_audit_split(str(choice.of)))))
    return _match_problems(task, read_split(task, own, "audit"), problems)


def _list_matched_subsets(recipe: Recipe) -> list[tuple[str, AuditChoice]]:
    """List the subsets whose problems are defined by a task."""
    return [(name, choice) for name, choice in recipe.subsets.items() if choice.task is not None]


def _match_problems(task: LoadedTask, audit: ReadSplit, problems: Iterable[KeyedText]) -> list[str]:
    """Find the ids of the problems that a task's audit has too, by content."""
    index = DuplicateIndex((problem.id, task.find_question(problem)) for problem in audit.problems)
    return [problem[0] for problem in problems if index.find_same(problem) is not None]


def _require_matches(name: str, choice: AuditChoice, ids: Sequence[str]) -> None:
    if not ids:
        raise UserError(
            f"key 'audits.{name}.task': no problem of {name_audit(str(choice.of))} is in the audit "
            f"of task {choice.task}; expected at least one"
        )


def _read_task(
    recipe: Recipe,
    plugins: Plugins,
    include_paths: Sequence[str],
    audit: str = "",
    only: Sequence[Split] | None = None,
) -> tuple[dict[Split, ReadSplit], LoadedTask, dict[str, Any], dict[str, Any]]:
    """Read a task's splits, or one further audit: splits, task, facts, inputs."""
    from gapft_harness.lm_eval_bridge.task_file.opened_files import watch_opened_files

    with watch_opened_files() as opened:
        task = _load_recipe_task(recipe, include_paths)
    facts, verifier = _load_verifier(task, recipe, plugins, audit)
    with closing_verifier(verifier):
        with watch_opened_files() as read_files:
            if audit:
                splits = {layout.audit_split(audit): read_split(task, recipe, "audit")}
            else:
                splits = read_splits(task, recipe, only)
        for read_data in splits.values():
            task.check_golds(verifier, read_data.gold_split)
    opened |= read_files
    inputs = {
        **hash_task_content(
            task, opened, {split: read_data.problems for split, read_data in splits.items()}
        ),
        "plugins": hash_components(plugins, list_search_components(recipe, facts)),
        **locate_task_files(task, opened, include_paths),
    }
    return splits, task, facts, inputs


def load_problems(
    recipe: Recipe, split: Split, plugins: Plugins, include_paths: Sequence[str]
) -> tuple[list[Problem], dict[str, Any], Verifier, dict[str, Any]]:
    """Load a split's problems, with the recipe's overrides of the task applied.

    Returns:
        The problems; the task's facts for the manifest; the verifier, which has accepted every
        gold answer (close it); the inputs that were loaded.

    Raises:
        UserError: an unknown task or verifier, or missing or malformed data.
    """
    audit = layout.find_audit_name(split)
    recipe = recipe.for_audit(audit)
    task = _load_recipe_task(recipe, include_paths)
    read = read_split(task, recipe, "audit" if audit else split)
    facts, verifier = _load_verifier(task, recipe, plugins, audit)
    task.check_golds(verifier, read.gold_split)
    notices = {"dropped": list(read.dropped), "warnings": list(read.warnings)}
    inputs_of_task = {
        **hash_task_content(task, (), {split: read.problems}),
        "plugins": hash_components(plugins, list_search_components(recipe, facts)),
    }
    inputs = merge_audit_inputs({}, inputs_of_task, audit) if audit else inputs_of_task
    return read.problems, facts | notices, verifier, inputs


def _load_recipe_task(recipe: Recipe, include_paths: Sequence[str]) -> LoadedTask:
    from gapft_harness.lm_eval_bridge.discovery import load_task
    from gapft_harness.lm_eval_bridge.loaded_task import ChatLayout

    model = recipe.model
    chat = ChatLayout(model.system_instruction, model.fewshot_as_multiturn)
    paths = [Path(path) for path in include_paths]
    return load_task(recipe.data.task, paths, chat if model.chat_template else None)


def resolve_task_settings(
    recipe: Recipe, plugins: Plugins, include_paths: Sequence[str]
) -> dict[str, dict[str, Any]] | None:
    """Resolve the settings that a recipe leaves to its task; return None for an unreadable task.

    Returns:
        By section: the response rule (``evidence``) and the episode's settings (``episode``).
    """
    try:
        task = _load_recipe_task(recipe, include_paths)
        facts, verifier = _load_verifier(task, recipe, plugins, "")
    except GapftError:
        return None
    with closing_verifier(verifier):
        return {"evidence": {"keep": facts["keep"]}, "episode": dict(facts["episode"])}


def _load_verifier(
    task: LoadedTask, recipe: Recipe, plugins: Plugins, audit: str
) -> tuple[dict[str, Any], Verifier]:
    """Resolve the task's facts and load its verifier."""
    decoding = task.build_decoding(recipe.search)
    attempts = recipe.episode.attempts or task.episode.attempts
    if attempts > 1 and task.has_answer_prefix:
        raise UserError(
            f"{task.location}: gen_prefix would apply only to the first of an episode's {attempts} "
            "attempts; set episode.attempts: 1, or remove gen_prefix from the task"
        )
    override = recipe.verifier
    is_renamed = override.name is not None and override.name != task.verifier
    name = override.name or task.verifier
    task_params = {} if is_renamed else task.verifier_params
    params = recipe.add_think_end_token({**task_params, **override.params})
    try:
        verifier = plugins.create_verifier(name, params)
    except UserError as error:
        if override.name or override.params:
            section = f"audits.{audit}.verifier" if audit else "verifier"
            raise error.with_place(f"recipe, section {section}") from error
        raise error.with_place(task.location) from error
    facts = {
        "name": task.name,
        "version": task.version,
        "fingerprint": task.compute_fingerprint(),
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
            "attempts": attempts,
            "executions": recipe.episode.executions or task.episode.executions,
        },
    }
    return facts, verifier
