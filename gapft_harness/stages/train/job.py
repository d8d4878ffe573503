"""Train some of a run's arms: the function of training jobs, which executors run.

Read sealed selections; write ``adapters/ARM`` for each arm. A job's arms share one loaded base.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from gapft_harness.core.errors import ERRORS, FAULTS, GapftError, UserError, describe
from gapft_harness.core.extras import install, installed
from gapft_harness.core.files import write_json
from gapft_harness.core.processes import die_with, thread_limits
from gapft_harness.core.records import Arm
from gapft_harness.core.weights import adapter_facts, weights_hash
from gapft_harness.hooks.checked import plain_facts, require_methods
from gapft_harness.hooks.manager import Plugins, Registered, load_plugins
from gapft_harness.hooks.protocols import (
    ReportProgress,
    SearchedPool,
    TaskVerifier,
    TrainingJob,
    report_nothing,
)
from gapft_harness.hooks.registered import TrackerTraits, TrainerTraits, own_line
from gapft_harness.hooks.tracking import TrackedArm, Tracker, Tracking
from gapft_harness.recipe.recipe import Recipe, model_args, sampler_settings
from gapft_harness.recipe.sections import ExecutorChoice, Training
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples, read_problems, read_states
from gapft_harness.stages.generation.generation import decoding_from, sampled_decoding
from gapft_harness.stages.integrity.rests_on import codes, require_same
from gapft_harness.stages.train.stored import (
    STORED,
    as_trained,
    claim,
    groups_of,
    is_stored,
    put_into_store,
    take_from_store,
)
from gapft_harness.store.store import Group
from gapft_harness.training.ledger import sequences_hash
from gapft_harness.training.plan import sequences, training_prompt

#: The prefix of lines with which a training process reports.
MARK = "gapft-training: "


def launch(
    run: Path,
    arms: Sequence[Arm],
    plugin_files: Sequence[str],
    settings: ExecutorChoice,
    progress: Callable[[int, int], None],
) -> dict[str, list[str]]:
    """Train arms on ``settings.processes`` processes of this machine, and wait for them.

    Args:
        run: the run directory.
        arms: the arms.
        plugin_files: files given by ``--plugin``.
        settings: the executor's settings.
        progress: called with the numbers of finished and of all optimizer steps.

    Returns:
        The trackers' warnings by arm name, if any.

    Raises:
        GapftError: the error of the process that failed.
    """
    command = [
        sys.executable,
        "-s",
        "-m",
        "gapft_harness.stages.train.job",
        str(os.getpid()),
    ]
    processes = settings.processes
    command += ["--standalone", f"--nproc-per-node={processes}", "-m"]
    command += ["gapft_harness.training", str(run), "--held"]
    for arm in arms:
        command += ["--arm", arm.name]
    for file in plugin_files:
        command += ["--plugin", file]
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            **thread_limits(settings.threads or max(1, settings.threads_each // processes)),
            "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path))),
        },
    )
    assert child.stdout is not None
    failure: GapftError | None = None
    warnings: dict[str, list[str]] = {}
    for line in child.stdout:
        if not line.startswith(MARK):
            print(line, end="")
            continue
        kind, *fields = json.loads(line.removeprefix(MARK))
        if kind == "progress":
            progress(*fields)
        elif kind == "warnings":
            (warnings,) = fields
        elif failure is None:  # the first error is the cause; others may follow from it
            name, text = fields
            failure = next((e for e in ERRORS if e.__name__ == name), GapftError)(text)
    if child.wait() or failure:
        raise failure or GapftError(
            f"training on {processes} processes ended with exit status {child.returncode}"
        )
    return warnings


if __name__ == "__main__":
    from torch.distributed.run import main

    die_with(int(sys.argv[1]))
    main(sys.argv[2:])
    # All processes have finished. With the rendezvous's threads still running, the interpreter has
    # been observed to hang at exit.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


#: The key of a job's result with the trackers' warnings; the manifest does not compare it.
TRACKING_WARNINGS = "tracking_warnings"


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
        The trainer's facts for the manifest by arm name (also in ``adapters/ARM/training.json``),
        with the trackers' warnings under ``TRACKING_WARNINGS``.

    Raises:
        UserError: an arm's folder exists but is incomplete.
    """
    run, plugins = RunDirectory.open(run_path), load_plugins(plugin_files)
    wanted = [Arm(*named) for named in arms]
    groups = groups_of(run, wanted, plugins, partial(searched_pool, run, plugins, plugin_files))
    found = finished(run, wanted)
    steps = {name: int(of["steps"]) for name, of in run.manifest()["budgets"].items()}
    total = sum(steps[arm.name] for arm in wanted)
    done = sum(steps[name] for name in found)
    progress(done, total)

    def onward(further: int, _: int) -> None:
        progress(done + further, total)

    left = [arm for arm in wanted if arm.name not in found]
    for wait in (False, True):  # adapters that another command trains are awaited last, one by one
        for together in [[arm] for arm in left] if wait else [left]:
            with contextlib.ExitStack() as claims:
                mine = [a for a in together if claims.enter_context(claim(groups[a], wait=wait))]
                new = _obtain(run, {arm: groups[arm] for arm in mine}, plugin_files, onward)
            found |= new
            done += sum(steps[name] for name in new)
        left = [arm for arm in left if arm.name not in found]
    return found


def _obtain(
    run: RunDirectory,
    groups: Mapping[Arm, Group],
    plugin_files: Sequence[str],
    progress: Callable[[int, int], None],
) -> dict[str, dict[str, Any]]:
    """Copy adapters from the store; train and store the others. Their claims must be held."""
    found = {
        arm.name: take_from_store(run, arm, group)
        for arm, group in groups.items()
        if is_stored(group)
    }
    missing = [arm for arm in groups if arm.name not in found]
    warnings: dict[str, list[str]] = {}
    if missing and run.recipe.executor.processes > 1:
        warnings = launch(run.path, missing, plugin_files, run.recipe.executor, progress)
        found |= finished(run, missing)
    elif missing:
        trained, warnings = train_here(run, missing, plugin_files, progress)
        found |= trained
    for arm in missing:
        put_into_store(groups[arm], run.path / layout.adapter(arm), run, arm)
    for name, told in warnings.items():
        found[name] |= {TRACKING_WARNINGS: told}
    return found


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
        ``count`` (None if unknown) and the reason ``why``, in words.
    """
    run, plugins = RunDirectory.open(run_path), load_plugins(plugin_files)
    jobs = [
        _job(run, arm, lambda done, total: None, Tracking(), False, None)
        for arm in (Arm(*named) for named in arms)
        if plugins.get("trainer", run.recipe.training_of(arm.condition).trainer)
        .declared(TrainerTraits)
        .as_documented
    ]
    if not jobs:
        return {"count": None, "why": ""}
    from gapft_harness.training.lora import fit_side_by_side

    count, why = fit_side_by_side(jobs, run.recipe.executor.processes)
    return {"count": count, "why": why}


def finished(run: RunDirectory, arms: Iterable[Arm]) -> dict[str, dict[str, Any]]:
    """Return the trainer's facts of the arms whose adapter exists, by name.

    Raises:
        UserError: an arm's folder is incomplete, or was changed after it was sealed.
    """
    sealed, found = run.manifest()["files"], {}
    for arm in arms:
        relative = layout.adapter(arm)
        if relative in sealed and (run.path / relative).exists():  # a lost one is trained again
            facts = json.loads((run.sealed(relative) / "training.json").read_text("utf-8"))
        else:
            facts = adapter_facts(run.path / relative, "training.json")
        if facts is not None:
            found[arm.name] = facts
    return found


def train_here(
    run: RunDirectory,
    arms: Sequence[Arm],
    plugin_files: Sequence[str],
    progress: Callable[[int, int], None],
    *,
    fsdp: bool = False,
) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    """Train arms in this process, or in its share of several processes.

    Args:
        run: the run.
        arms: the arms.
        plugin_files: files given by ``--plugin``.
        progress: called with the numbers of finished and of all optimizer steps of all arms.
        fsdp: whether a launcher requested FSDP, regardless of the recipe.

    Returns:
        The trainer's facts by arm name, and the trackers' warnings by arm name, if any.

    Raises:
        PluginError: a trainer wrote no adapter.
    """
    budgets = run.manifest()["budgets"]
    steps = [int(budgets[arm.name]["steps"]) for arm in arms]

    def counted(before: int) -> Callable[[int, int], None]:
        return lambda done, _: progress(before + done, sum(steps))

    plugins = load_plugins(plugin_files)
    named = {arm: run.recipe.training_of(arm.condition).trainer for arm in arms}
    entries = {trainer: plugins.get("trainer", trainer) for trainer in named.values()}
    require_same(run, {"plugins": codes(plugins, [("trainer", name) for name in entries])})
    needed = any(entry.declared(TrainerTraits).needs_problems for entry in entries.values())
    searched = searched_pool(run, plugins, plugin_files) if needed else None
    by = {
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "fsdp": fsdp or run.recipe.executor.fsdp,
    }
    groups = groups_of(run, arms, plugins, lambda: searched_pool(run, plugins, plugin_files))
    together: dict[str, list[TrainingJob]] = {}  # jobs with the same settings share a loaded base
    for i, arm in enumerate(arms):
        own = searched if entries[named[arm]].declared(TrainerTraits).needs_problems else None
        name = as_trained(groups[arm], by).name
        job = _job(run, arm, counted(sum(steps[:i])), tracking(run, arm, plugins), fsdp, own, name)
        together.setdefault(json.dumps(job.settings, sort_keys=True), []).append(job)
    found, warnings = {}, {}
    for jobs in together.values():
        trainer = named[jobs[0].arm]
        for job, facts in _trained(entries[trainer], jobs):
            found[job.arm.name] = facts
            _check_folder(entries[trainer], job, facts, by["processes"])
            if told := [*job.tracking.warnings, *job.tracking.unused(trainer)]:
                warnings[job.arm.name] = told
    return found, warnings


def _job(
    run: RunDirectory,
    arm: Arm,
    progress: Callable[[int, int], None],
    followed: Tracking,
    fsdp: bool,
    searched: SearchedPool | None,
    stored: str = "",
) -> TrainingJob:
    recipe, settings = run.recipe, run.recipe.training_of(arm.condition)
    examples = read_examples(run.sealed(layout.selection(arm)))
    return TrainingJob(
        arm=arm,
        examples=[replace(e, prompt_ids=training_prompt(e.prompt_ids, settings)) for e in examples],
        settings=settings.model_dump(mode="json"),
        model_args=model_args(recipe),
        output=run.path / layout.adapter(arm),
        base_sha256=run.manifest()["source"].get("weights_sha256"),
        threads=recipe.executor.threads_each,
        checkpoint_steps=recipe.executor.checkpoint_steps,
        fsdp=fsdp or recipe.executor.fsdp,
        progress=progress,
        tracking=followed,
        searched=searched,
        chat_template=sampler_settings(recipe).chat_template,
        stored=stored,
    )


def searched_pool(run: RunDirectory, plugins: Plugins, files: Sequence[str]) -> SearchedPool:
    """Read the problems, decoding, verifier and states of the run's searched pool."""
    task = run.manifest()["task"]
    name, params = task["verifier"], task["verifier_params"]
    other = plugins.other_rule(name, params)

    def judge(name: str, params: Mapping[str, Any], other: TaskVerifier | None) -> TaskVerifier:
        made = lambda **given: plugins.verifier(name, {**params, **given})  # noqa: E731
        return TaskVerifier(name, params, made, other, files)

    permissive = judge(other.name, other.params, None) if other and other.permissive else None
    pool = list(read_problems(run.sealed(layout.problems("pool"))))
    return SearchedPool(
        problems=[problem for problem, _ in pool],
        prompt_ids={problem.id: ids for problem, ids in pool},
        decoding=sampled_decoding(decoding_from(task), run.recipe.search),
        verifier=judge(name, params, permissive),
        states={of.problem_id: of.state for of in read_states(run.sealed(layout.states("pool")))},
    )


def _trained(
    entry: Registered, jobs: Sequence[TrainingJob]
) -> Iterator[tuple[TrainingJob, dict[str, Any]]]:
    """Yield each job with its trainer's facts, as soon as it is finished."""
    together = getattr(entry.value, "together", None)
    with entry.blamed():
        given = iter(together(jobs) if together is not None else map(entry.value, jobs))
    for job in jobs:
        with entry.blamed():
            facts = next(given, None)
        yield job, plain_facts(entry, facts, f"the facts of {job.arm.name}", together)
    with entry.blamed():
        more = sum(1 for _ in given)  # this also runs the rest of the trainer's code
    if more:
        raise entry.broke(f"returned facts of {more} unknown arms", together)


def _check_folder(
    entry: Registered, job: TrainingJob, facts: dict[str, Any], processes: int
) -> None:
    """Add settings, sequences and the weights' hash to ``training.json``, whatever the trainer.

    The trainer's own entries on settings and sequences stay: ``gapft verify`` checks them.
    """
    if not (job.output / "adapter_config.json").is_file():
        raise entry.broke(f"wrote no PEFT folder at {job.output}")
    settings = Training.model_validate(dict(job.settings))
    path = job.output / "training.json"
    written = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    # the first entry identifies a folder that was left unsealed, whatever the trainer
    known = {
        STORED: job.stored,
        "processes": processes,
        "settings": dict(job.settings),
        "sequences_sha256": sequences_hash(sequences(job.examples, settings)),
    }
    told = {key: facts.get(key, written.get(key, value)) for key, value in known.items()}
    told[STORED] = job.stored
    told["adapter_sha256"] = weights_hash(job.output)  # a plugin may have changed the folder
    facts.update(told)
    if any(written.get(key) != value for key, value in told.items()):
        write_json(path, {**(written or facts), **told})


def missing_packages(recipe: Recipe, plugins: Plugins) -> list[str]:
    """Describe each package that a tracker or trainer needs and this machine does not have.

    Raises:
        UserError: a tracker is unknown.
    """
    trainers = [
        f"trainer {name!r} needs {needed}, but {f'{found} is' if found else 'it is not'} "
        f"installed; {install(Requirement(needed).name)}"
        for name in recipe.trainers()
        for needed in plugins.get("trainer", name).declared(TrainerTraits).needs
        if not (found := installed(Requirement(needed).name))
        or found not in Requirement(needed).specifier
    ]
    return trainers + [
        f"tracker {name!r} needs the package {package!r}, which is not installed; "
        f"pip install {package}, or remove {name} from the recipe's trackers"
        for name in recipe.trackers
        for package in plugins.get("tracker", name).declared(TrackerTraits).needs
        if not installed(package)
    ]


def check_trackers(recipe: Recipe, plugins: Plugins) -> None:
    """Refuse a recipe whose trackers or trainers cannot work on this machine.

    Raises:
        UserError: a tracker is unknown, or a required package is missing.
    """
    if missing := missing_packages(recipe, plugins):
        raise UserError("\n".join(missing))


def tracking(run: RunDirectory, arm: Arm, plugins: Plugins) -> Tracking:
    """Return the trackers of one arm, not opened yet."""
    openers: dict[str, Callable[[int], Tracker]] = {
        name: partial(_open, plugins, name, run, arm) for name in run.recipe.trackers
    }
    return Tracking(openers)


def _open(plugins: Plugins, name: str, run: RunDirectory, arm: Arm, first_step: int) -> Tracker:
    told = TrackedArm(
        project=run.recipe.name,
        run=run.path.resolve().name,
        arm=arm,
        folder=run.path / "tracking",
        first_step=first_step,
        settings=_settings(run, arm),
    )
    entry = plugins.get("tracker", name)
    try:
        opened: Tracker = entry.value(told)
    except FAULTS as error:
        raise GapftError(
            f"{arm.name}: {entry.who} cannot be opened: {describe(error)}"
            f"{own_line(error, entry.home)}. Configure it, or train without trackers: --set "
            "trackers=[] (gapft run), or trackers: [] in the run's recipe.yaml"
        ) from error
    require_methods(entry, opened, "log", "finish")
    return opened


def _settings(run: RunDirectory, arm: Arm) -> dict[str, Any]:
    recipe = run.recipe
    budget: Mapping[str, Any] = run.manifest()["budgets"][arm.name]
    found = {
        "condition": arm.condition,
        "seed": arm.seed,
        "task": recipe.data.task,
        "base_model": recipe.model.args["pretrained"],
        **recipe.training_of(arm.condition).model_dump(mode="json"),
        **budget,
    }
    return {key: _plain(value) for key, value in found.items() if value is not None}


def _plain(value: Any) -> Any:
    """Convert a list to text: trackers compare hyperparameters as single values."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
