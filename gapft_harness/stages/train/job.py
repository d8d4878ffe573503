"""Train adapters: the function of training steps, which executors run.

Steps made by one call share one loaded base, if their settings are equal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gapft_harness.core.files import write_json
from gapft_harness.core.records import Arm, Decoding
from gapft_harness.core.weights import weights_hash
from gapft_harness.hooks.checked import check_facts
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.protocols import (
    ReportProgress,
    SearchedPool,
    TaskVerifier,
    TrainingJob,
)
from gapft_harness.hooks.registration import Registration
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory.tables import read_examples, read_problems, read_states
from gapft_harness.training.ledger import hash_sequences
from gapft_harness.training.plan import build_sequences, build_training_prompt

#: The arguments of a step's function.
Call = Mapping[str, Any]


def train(calls: Sequence[Call], progress: ReportProgress) -> Iterator[tuple[int, dict[str, Any]]]:
    """Train adapters one after another: the function of steps that are made together.

    Args:
        calls: the arguments of each step: ``output``, the folder to write; ``selection``, the
            training set; ``problems`` and ``states`` of the pool for trainers that need them; and
            the settings of ``stages.train.stage``.
        progress: called with the numbers of finished and of all optimizer steps.

    Yields:
        The number of the call, and the trainer's facts, which its ``training.json`` has too.

    Raises:
        PluginError: a trainer wrote no adapter.
    """
    plugins = load_plugins(calls[0]["plugin_files"])
    total = sum(int(call["steps"]) for call in calls)
    finished = 0
    progress(0, total)
    numbers_by_settings: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        text = json.dumps([call["trainer"], call["training"]], sort_keys=True)
        numbers_by_settings.setdefault(text, []).append(number)
    for numbers in numbers_by_settings.values():
        entry = plugins.get("trainer", calls[numbers[0]]["trainer"])
        jobs = []
        start = finished
        for number in numbers:
            jobs.append(build_job(calls[number], plugins, _count_from(start, total, progress)))
            start += int(calls[number]["steps"])
        for number, job, facts in _run_trainer(entry, numbers, jobs):
            _complete_folder(entry, job, facts)
            finished += int(calls[number]["steps"])
            yield number, facts


def _count_from(start: int, total: int, progress: ReportProgress) -> Callable[[int, int], None]:
    return lambda done, _: progress(start + done, total)


def build_job(
    call: Call, plugins: Plugins, progress: Callable[[int, int], None] = lambda done, total: None
) -> TrainingJob:
    """Build the job of a trainer from a step's arguments; see ``train``."""
    settings = Training.model_validate(call["training"])
    return TrainingJob(
        arm=Arm(*call["arm"]),
        examples=[
            replace(e, prompt_ids=build_training_prompt(e.prompt_ids, settings))
            for e in read_examples(call["selection"])
        ],
        settings=settings.model_dump(mode="json"),
        model_args=call["model_args"],
        output=call["output"],
        base_sha256=call["base_sha256"],
        threads=call["threads"],
        checkpoint_steps=call["checkpoint_steps"],
        progress=progress,
        tracker=call["tracker"],
        searched=_read_searched_pool(call, plugins) if "problems" in call else None,
        chat_template=call["chat_template"],
        run=Path(call["run"]),
    )


def _read_searched_pool(call: Call, plugins: Plugins) -> SearchedPool:
    """Read the problems, decoding, verifier and states of the searched pool."""
    decoding = Decoding(**{**call["decoding"], "until": tuple(call["decoding"]["until"])})
    pool = list(read_problems(call["problems"]))
    return SearchedPool(
        problems=[problem for problem, _ in pool],
        prompt_ids={problem.id: ids for problem, ids in pool},
        decoding=decoding,
        verifier=_build_verifier(call["rules"], plugins),
        states={row.problem_id: row.state for row in read_states(call["states"])},
    )


def _build_verifier(rules: Sequence[Sequence[Any]], plugins: Plugins) -> TaskVerifier:
    """Build the task's verifier from name and parameters, with the permissive rule after it."""
    (name, params), *others = rules
    permissive = _build_verifier(others, plugins) if others else None
    make_verifier = lambda **given: plugins.create_verifier(name, {**params, **given})  # noqa: E731
    return TaskVerifier(name, params, make_verifier, permissive)


def _run_trainer(
    entry: Registration, numbers: Sequence[int], jobs: Sequence[TrainingJob]
) -> Iterator[tuple[int, TrainingJob, dict[str, Any]]]:
    """Yield each job, after its number, with its trainer's facts, as soon as it is finished."""
    train_together = getattr(entry.value, "together", None)
    with entry.wrap_errors():
        results = iter(
            train_together(jobs) if train_together is not None else map(entry.value, jobs)
        )
    for number, job in zip(numbers, jobs, strict=True):
        with entry.wrap_errors():
            facts = next(results, None)
        yield (
            number,
            job,
            check_facts(entry, facts, f"the facts of {job.arm.name}", train_together),
        )
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
    default_facts = {
        "settings": dict(job.settings),
        "sequences_sha256": hash_sequences(build_sequences(job.examples, settings)),
    }
    completed = {
        key: facts.get(key, file_facts.get(key, value)) for key, value in default_facts.items()
    }
    completed["adapter_sha256"] = weights_hash(job.output)  # a plugin may have changed the folder
    facts.update(completed)
    if any(file_facts.get(key) != value for key, value in completed.items()):
        write_json(path, {**(file_facts or facts), **completed})
