"""Train some of a run's arms: the function of training jobs, which executors run.

Read sealed selections; write ``adapters/ARM`` for each arm. A job's arms share one loaded base.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from packaging.requirements import Requirement

from gapft_harness.core.errors import UserError
from gapft_harness.core.extras import find_version, install_command
from gapft_harness.core.files import write_json
from gapft_harness.core.records import Arm
from gapft_harness.core.weights import read_adapter_facts, weights_hash
from gapft_harness.hooks.checked import check_facts
from gapft_harness.hooks.manager import Plugins, Registration, load_plugins
from gapft_harness.hooks.protocols import (
    ReportProgress,
    SearchedPool,
    TaskVerifier,
    TrainingJob,
    report_nothing,
)
from gapft_harness.hooks.registration import TrainerTraits
from gapft_harness.recipe.recipe import Recipe, build_sampler_settings, resolve_model_args
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples, read_problems, read_states
from gapft_harness.stages.generation.generation import build_sampled_decoding, read_decoding
from gapft_harness.stages.integrity.inputs import hash_components, require_same_inputs
from gapft_harness.stages.train.stored import (
    STORED,
    claim_adapter,
    compute_groups,
    copy_from_store,
    is_stored,
    store_adapter,
)
from gapft_harness.store.store import StoreGroup
from gapft_harness.training.ledger import hash_sequences
from gapft_harness.training.plan import build_sequences, build_training_prompt


def train_arms(
    run_path: str,
    arms: Sequence[Sequence[Any]],
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
) -> dict[str, Any]:
    """Train those adapters of some arms that do not exist yet, as a job.

    Args:
        run_path: the run directory.
        arms: (condition, seed) of each arm.
        plugin_files: files given by ``--plugin``.
        progress: called with the numbers of finished and of all optimizer steps of all arms; steps
            of arms trained earlier count as finished.

    Returns:
        The trainer's facts for the manifest by arm name (also in ``adapters/ARM/training.json``).

    Raises:
        UserError: an arm's folder exists but is incomplete.
    """
    run, plugins = RunDirectory.open(run_path), load_plugins(plugin_files)
    requested = [Arm(*pair) for pair in arms]
    groups = compute_groups(
        run, requested, plugins, partial(read_searched_pool, run, plugins, plugin_files)
    )
    facts_by_arm = read_finished_facts(run, requested)
    steps = {name: int(budget["steps"]) for name, budget in run.manifest()["budgets"].items()}
    total = sum(steps[arm.name] for arm in requested)
    finished_steps = sum(steps[name] for name in facts_by_arm)
    progress(finished_steps, total)

    def report_further_steps(further: int, _: int) -> None:
        progress(finished_steps + further, total)

    unfinished = [arm for arm in requested if arm.name not in facts_by_arm]
    for wait in (False, True):  # adapters that another command trains are awaited last, one by one
        for arm_group in [[arm] for arm in unfinished] if wait else [unfinished]:
            with contextlib.ExitStack() as claims:
                claimed = [
                    a
                    for a in arm_group
                    if claims.enter_context(claim_adapter(groups[a], wait=wait))
                ]
                new_facts = _obtain_adapters(
                    run, {arm: groups[arm] for arm in claimed}, plugin_files, report_further_steps
                )
            facts_by_arm |= new_facts
            finished_steps += sum(steps[name] for name in new_facts)
        unfinished = [arm for arm in unfinished if arm.name not in facts_by_arm]
    return facts_by_arm


def _obtain_adapters(
    run: RunDirectory,
    groups: Mapping[Arm, StoreGroup],
    plugin_files: Sequence[str],
    progress: Callable[[int, int], None],
) -> dict[str, dict[str, Any]]:
    """Copy adapters from the store; train and store the others. Their claims must be held."""
    facts_by_arm = {
        arm.name: copy_from_store(run, arm, group)
        for arm, group in groups.items()
        if is_stored(group)
    }
    missing = [arm for arm in groups if arm.name not in facts_by_arm]
    if missing:
        missing_groups = {arm: groups[arm] for arm in missing}
        facts_by_arm |= _train_adapters(run, missing_groups, plugin_files, progress)
    for arm in missing:
        store_adapter(groups[arm], run.path / layout.adapter_path(arm), run)
    return facts_by_arm


def count_trainings_at_once(
    run_path: str,
    arms: Sequence[Sequence[Any]],
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
) -> dict[str, Any]:
    """Count how many trainings of some arms fit into this machine's memory in parallel, as a job.

    Args:
        run_path: the run directory.
        arms: as for ``train_arms``. Arms of a trainer that is not ``as_documented`` are left out,
            since its memory use is unknown.
        plugin_files: files given by ``--plugin``.
        progress: not used.

    Returns:
        ``count`` (None if unknown), the reason ``why``, in words, and whether they are ``on_gpu``.
    """
    run, plugins = RunDirectory.open(run_path), load_plugins(plugin_files)
    jobs = [
        _build_job(run, arm, lambda done, total: None, None)
        for arm in (Arm(*pair) for pair in arms)
        if plugins.get("trainer", run.recipe.resolve_training(arm.condition).trainer)
        .require_traits(TrainerTraits)
        .as_documented
    ]
    if not jobs:
        return {"count": None, "why": "", "on_gpu": False}
    from gapft_harness.training.devices import resolve_device
    from gapft_harness.training.lora import count_parallel_trainings

    device = resolve_device(jobs[0].model_args.get("device"))
    count, reason = count_parallel_trainings(jobs, device)
    return {"count": count, "why": reason, "on_gpu": device.type == "cuda"}


def read_finished_facts(run: RunDirectory, arms: Iterable[Arm]) -> dict[str, dict[str, Any]]:
    """Return the trainer's facts of the arms whose adapter exists, by name.

    Raises:
        UserError: an arm's folder is incomplete, or was changed after it was sealed.
    """
    sealed, facts_by_arm = run.manifest()["files"], {}
    for arm in arms:
        relative = layout.adapter_path(arm)
        if relative in sealed and (run.path / relative).exists():  # a lost one is trained again
            facts = json.loads((run.sealed(relative) / "training.json").read_text("utf-8"))
        else:
            facts = read_adapter_facts(run.path / relative, "training.json")
        if facts is not None:
            facts_by_arm[arm.name] = facts
    return facts_by_arm


def _train_adapters(
    run: RunDirectory,
    groups: Mapping[Arm, StoreGroup],
    plugin_files: Sequence[str],
    progress: Callable[[int, int], None],
) -> dict[str, dict[str, Any]]:
    """Train the adapters of some groups of the store.

    Args:
        run: the run.
        groups: the groups by arm.
        plugin_files: files given by ``--plugin``.
        progress: called with the numbers of finished and of all optimizer steps of all arms.

    Returns:
        The trainer's facts by arm name.

    Raises:
        PluginError: a trainer wrote no adapter.
    """
    budgets, arms = run.manifest()["budgets"], list(groups)
    steps = [int(budgets[arm.name]["steps"]) for arm in arms]

    def count_from(finished_steps: int) -> Callable[[int, int], None]:
        return lambda done, _: progress(finished_steps + done, sum(steps))

    plugins = load_plugins(plugin_files)
    trainer_by_arm = {arm: run.recipe.resolve_training(arm.condition).trainer for arm in arms}
    entries = {trainer: plugins.get("trainer", trainer) for trainer in trainer_by_arm.values()}
    require_same_inputs(
        run, {"plugins": hash_components(plugins, [("trainer", name) for name in entries])}
    )
    needs_pool = any(
        entry.require_traits(TrainerTraits).needs_problems for entry in entries.values()
    )
    pool = read_searched_pool(run, plugins, plugin_files) if needs_pool else None
    # jobs with the same settings share a loaded base
    jobs_by_settings: dict[str, list[TrainingJob]] = {}
    for i, arm in enumerate(arms):
        job_pool = (
            pool
            if entries[trainer_by_arm[arm]].require_traits(TrainerTraits).needs_problems
            else None
        )
        job = _build_job(run, arm, count_from(sum(steps[:i])), job_pool, groups[arm].name)
        jobs_by_settings.setdefault(json.dumps(job.settings, sort_keys=True), []).append(job)
    facts_by_arm = {}
    for jobs in jobs_by_settings.values():
        trainer = trainer_by_arm[jobs[0].arm]
        for job, facts in _run_trainer(entries[trainer], jobs):
            facts_by_arm[job.arm.name] = facts
            _complete_folder(entries[trainer], job, facts)
    return facts_by_arm


def _build_job(
    run: RunDirectory,
    arm: Arm,
    progress: Callable[[int, int], None],
    searched: SearchedPool | None,
    stored: str = "",
) -> TrainingJob:
    recipe, settings = run.recipe, run.recipe.resolve_training(arm.condition)
    examples = read_examples(run.sealed(layout.selection_path(arm)))
    return TrainingJob(
        arm=arm,
        examples=[
            replace(e, prompt_ids=build_training_prompt(e.prompt_ids, settings)) for e in examples
        ],
        settings=settings.model_dump(mode="json"),
        model_args=resolve_model_args(recipe),
        output=run.path / layout.adapter_path(arm),
        base_sha256=run.manifest()["source"].get("weights_sha256"),
        threads=recipe.executor.threads_per_worker,
        checkpoint_steps=recipe.executor.checkpoint_steps,
        progress=progress,
        tracker=recipe.tracker,
        searched=searched,
        chat_template=build_sampler_settings(recipe).chat_template,
        stored=stored,
    )


def read_searched_pool(run: RunDirectory, plugins: Plugins, files: Sequence[str]) -> SearchedPool:
    """Read the problems, decoding, verifier and states of the run's searched pool."""
    task = run.manifest()["task"]
    name, params = task["verifier"], task["verifier_params"]
    other = plugins.find_other_rule(name, params)

    def build_verifier(
        name: str, params: Mapping[str, Any], other: TaskVerifier | None
    ) -> TaskVerifier:
        make_verifier = lambda **given: plugins.create_verifier(name, {**params, **given})  # noqa: E731
        return TaskVerifier(name, params, make_verifier, other, files)

    permissive = (
        build_verifier(other.name, other.params, None) if other and other.permissive else None
    )
    pool = list(read_problems(run.sealed(layout.problems_path("pool"))))
    return SearchedPool(
        problems=[problem for problem, _ in pool],
        prompt_ids={problem.id: ids for problem, ids in pool},
        decoding=build_sampled_decoding(read_decoding(task), run.recipe.search),
        verifier=build_verifier(name, params, permissive),
        states={
            row.problem_id: row.state for row in read_states(run.sealed(layout.states_path("pool")))
        },
    )


def _run_trainer(
    entry: Registration, jobs: Sequence[TrainingJob]
) -> Iterator[tuple[TrainingJob, dict[str, Any]]]:
    """Yield each job with its trainer's facts, as soon as it is finished."""
    train_together = getattr(entry.value, "together", None)
    with entry.wrap_errors():
        results = iter(
            train_together(jobs) if train_together is not None else map(entry.value, jobs)
        )
    for job in jobs:
        with entry.wrap_errors():
            facts = next(results, None)
        yield job, check_facts(entry, facts, f"the facts of {job.arm.name}", train_together)
    with entry.wrap_errors():
        extra_count = sum(1 for _ in results)  # this also runs the rest of the trainer's code
    if extra_count:
        raise entry.contract_error(f"returned facts of {extra_count} unknown arms", train_together)


def _complete_folder(entry: Registration, job: TrainingJob, facts: dict[str, Any]) -> None:
    """Add settings, sequences and the weights' hash to ``training.json``, whatever the trainer.

    The trainer's own entries on settings and sequences stay: ``gapft verify`` checks them.
    """
    if not (job.output / "adapter_config.json").is_file():
        raise entry.contract_error(f"wrote no PEFT folder at {job.output}")
    settings = Training.model_validate(dict(job.settings))
    path = job.output / "training.json"
    file_facts = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    # the first entry identifies a folder that was left unsealed, whatever the trainer
    default_facts = {
        STORED: job.stored,
        "settings": dict(job.settings),
        "sequences_sha256": hash_sequences(build_sequences(job.examples, settings)),
    }
    completed = {
        key: facts.get(key, file_facts.get(key, value)) for key, value in default_facts.items()
    }
    completed[STORED] = job.stored
    completed["adapter_sha256"] = weights_hash(job.output)  # a plugin may have changed the folder
    facts.update(completed)
    if any(file_facts.get(key) != value for key, value in completed.items()):
        write_json(path, {**(file_facts or facts), **completed})


def list_missing_packages(recipe: Recipe, plugins: Plugins) -> list[str]:
    """Describe each package that the tracker or a trainer needs and this machine does not have."""
    faults = [
        f"trainer {name!r} needs {requirement}, but {f'{version} is' if version else 'it is not'} "
        f"installed; {install_command(Requirement(requirement).name)}"
        for name in recipe.list_trainers()
        for requirement in plugins.get("trainer", name).require_traits(TrainerTraits).needs
        if not (version := find_version(Requirement(requirement).name))
        or version not in Requirement(requirement).specifier
    ]
    if recipe.tracker and not find_version(recipe.tracker):
        faults.append(
            f"tracker: {recipe.tracker} is not installed; {install_command(recipe.tracker)}"
        )
    return faults


def check_packages(recipe: Recipe, plugins: Plugins) -> None:
    """Refuse a recipe whose tracker or trainers cannot work on this machine.

    Raises:
        UserError: a required package is missing.
    """
    if faults := list_missing_packages(recipe, plugins):
        raise UserError("\n".join(faults))
