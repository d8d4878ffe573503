"""Train LoRA adapters: the job, its plan, the loop, the folder. The only inputs are jobs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.memory import free_memory
from gapft_harness.core.records import Budget
from gapft_harness.core.streams import derive
from gapft_harness.core.weights import hub_commit, weights_folder
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.recipe.sections import Training
from gapft_harness.store.digests import Digests
from gapft_harness.training.adapter import model_card, save_adapter
from gapft_harness.training.attention import attention_of
from gapft_harness.training.devices import Devices, asked_device
from gapft_harness.training.kernels import check_kernels, kernels
from gapft_harness.training.ledger import (
    OPTIMIZER,
    Step,
    ledger,
    ledger_facts,
    sequences_hash,
)
from gapft_harness.training.loop import Checkpoint, run_steps
from gapft_harness.training.memory import (
    Estimate,
    enforce,
    enforce_loading,
    estimate,
    fit_at_once,
    give_back,
    told,
)
from gapft_harness.training.model import (
    EndToken,
    add_lora,
    check_ids,
    check_targets,
    fuse,
    is_converted,
    load_base,
    load_end_token,
    take_off,
    without_weights,
)
from gapft_harness.training.output_layer import is_last
from gapft_harness.training.passes import cut
from gapft_harness.training.plan import Fitted, budget, plan, sequences
from gapft_harness.training.speed import Tell, followed


def train(job: TrainingJob) -> dict[str, Any]:
    """Train one arm's adapter; see ``train_together``.

    Args:
        job: examples, settings, base model, output folder.

    Returns:
        Facts for the manifest, also in ``training.json``.

    Raises:
        UserError: see ``train_together``.
        GapftError: see ``train_together``.
    """
    (facts,) = train_together([job])
    return facts


def train_together(jobs: Sequence[TrainingJob]) -> Iterator[dict[str, Any]]:
    """Train several arms' adapters one after another on a base that is loaded once.

    The same job gives the same bytes on a CPU with one thread, alone or with others: adapter
    initialisation, dropout and order each have their own random stream under the arm's seed.

    Args:
        jobs: examples, settings, base model, output folder. Settings and base must be the same in
            all.

    Yields:
        Facts for the manifest, also in ``training.json``, after each arm: budget,
        ``compute_ledger_facts``, truncated examples, settings, optimizer, versions, attention
        implementation, and the hashes of sequences, base and adapter. Only the yielded facts have
        ``seconds``, so that the folder's bytes are reproducible.

    Raises:
        UserError: the model is missing or differs from the searched one, modules are missing, a
            sequence is too long, the device lacks the dtype, or memory is too small.
        GapftError: the loss or its gradient is not finite; no folder is written.
        ValueError: the jobs differ in base or settings.
    """
    start = time.monotonic()
    first = jobs[0]
    if any(
        (job.settings, job.model_args, job.base_sha256, job.threads)
        != (first.settings, first.model_args, first.base_sha256, first.threads)
        for job in jobs
    ):
        raise ValueError("jobs trained together must have the same base and settings")
    torch.set_num_threads(first.threads)
    settings = Training.model_validate(dict(first.settings))
    plans = [_plan(job, settings) for job in jobs]
    base = _load(first, settings, plans)
    try:
        with kernels(settings, base.model):
            for job, planned in zip(jobs, plans, strict=True):
                facts = _train(job, settings, planned, base)
                yield {**facts, "seconds": round(time.monotonic() - start, 3)}
                start = time.monotonic()
    finally:
        del base
        give_back()


def fit_side_by_side(jobs: Sequence[TrainingJob], processes: int) -> tuple[int, str]:
    """Count the trainings that fit into the device's memory at once, without loading weights.

    Args:
        jobs: the jobs to train, with any settings; the largest one counts.
        processes: processes that share every step of each training.

    Returns:
        The number, 0 if not even one fits, and a text with the needed and the free memory.

    Raises:
        UserError: the model is missing, or a sequence is too long.
    """
    by_settings: dict[str, list[TrainingJob]] = {}
    for job in jobs:
        by_settings.setdefault(json.dumps(job.settings, sort_keys=True), []).append(job)
    device = asked_device(jobs[0].model_args.get("device"))
    devices = Devices(None, device, 0, processes, jobs[0].fsdp)
    free, counts = free_memory(device), []
    for alike in by_settings.values():
        first, settings = alike[0], Training.model_validate(dict(alike[0].settings))
        weightless = without_weights(first.model_args, settings)
        plans = [_plan(job, settings) for job in alike]
        needed = _estimate(settings, plans, devices, weightless, is_last(weightless))
        mapped = not is_converted(first.model_args, settings) and settings.quantize is None
        here = processes if device.type == "cpu" else 1
        count = fit_at_once(needed, free, device, here, mapped)
        each = f" for each of {processes} processes" if processes > 1 else ""
        counts.append((count, f"{needed}{each}; {free / 1e9:.3g} GB are free on {device}"))
    return min(counts)


@dataclass(frozen=True, slots=True)
class _Planned:
    """An arm's sequences, steps and budget."""

    fitted: dict[str, Fitted]
    steps: list[Step]
    budget: Budget

    @property
    def needs_end(self) -> bool:
        return any(sequence.eos for sequence in self.fitted.values())


@dataclass(frozen=True, slots=True)
class _Base:
    """The loaded base.

    Attributes:
        model: the model on its device.
        sha256: hash of its weights.
        end: the token that ends responses, if one is supervised.
        devices: the processes that share the training.
        estimated_memory: the memory estimate.
        is_head_last: whether logits are the output of the output layer.
    """

    model: Any
    sha256: str
    end: EndToken | None
    devices: Devices
    needed: Estimate
    head_is_last: bool


def _plan(job: TrainingJob, settings: Training) -> _Planned:
    """Plan an arm, and check that the plan costs exactly the budget by which arms were matched."""
    fitted = {s.slot: s for s in sequences(job.examples, settings)}
    steps = ledger(plan(fitted, settings, job.arm.seed), fitted, settings)
    found = budget(job.examples, settings)
    planned = (sum(len(step.slots) for step in steps), len(steps))
    if planned != (found.exposures, found.steps):
        raise GapftError(
            f"{job.arm.name}: the plan has N = {planned[0]} exposures in J = {planned[1]} steps, "
            f"but the budget has N = {found.exposures}, J = {found.steps}"
        )
    return _Planned(fitted, steps, found)


def _load(job: TrainingJob, settings: Training, plans: Sequence[_Planned]) -> _Base:
    devices = Devices.of(job)
    devices.check(settings)
    weightless = without_weights(job.model_args, settings)
    check_targets(weightless, settings)
    for planned in plans:
        for sequence in planned.fitted.values():
            check_ids(weightless, (*sequence.prompt_ids, *sequence.target_ids), sequence.slot)
    needs_end = any(planned.needs_end for planned in plans)
    end = load_end_token(job.model_args, job.chat_template) if needs_end else None
    model_type = str(weightless.config.model_type)
    check_kernels(settings, model_type, devices.device, devices.sharded)
    last = is_last(weightless)
    needed = _check_memory(job, settings, plans, devices, weightless, last)
    with told(
        needed, job.arm.name, devices.device
    ):  # a quantized base is loaded directly to its device
        model = load_base(job.model_args, settings, devices.device)
    found = Digests().of_weights(weights_folder(job.model_args))
    if job.base_sha256 is not None and found != job.base_sha256:
        raise UserError(
            f"{job.arm.name}: model {job.model_args['pretrained']} differs from the searched one: "
            f"its weights' hash is {found[:12]}…, the search's {job.base_sha256[:12]}…. "
            "Restore the weights, or start a new run directory"
        )
    with told(needed, job.arm.name, devices.device):
        return _Base(devices.place(model), found, end, devices, needed, last)


def _check_memory(
    job: TrainingJob,
    settings: Training,
    plans: Sequence[_Planned],
    devices: Devices,
    weightless: Any,
    head_is_last: bool,
) -> Estimate:
    """Reject a training that cannot fit, before it is loaded; return the estimate."""
    needed = _estimate(settings, plans, devices, weightless, head_is_last)
    enforce(needed, free_memory(devices.device), devices.device, devices.on_this_memory)
    if devices.sharded and is_converted(job.model_args, settings):
        host = free_memory(torch.device("cpu"))
        enforce_loading(weightless, settings, host, devices.on_this_machine)
    return needed


def _estimate(
    settings: Training,
    plans: Sequence[_Planned],
    devices: Devices,
    weightless: Any,
    head_is_last: bool,
) -> Estimate:
    """Estimate the memory that one process needs for the largest pass of all plans."""
    passes = (
        one_pass
        for planned in plans
        for step in planned.steps
        for one_pass in cut(
            [planned.fitted[slot] for slot in step.slots],
            step.weights,
            settings,
            devices.share,
            devices.shares,
            devices.device.type,
        )
    )
    shards = devices.shares if devices.sharded else 1
    return estimate(weightless, settings, passes, shards, head_is_last, devices.device)


def _train(job: TrainingJob, settings: Training, planned: _Planned, base: _Base) -> dict[str, Any]:
    devices = base.devices
    end = base.end if planned.needs_end else None
    identity = {
        "condition": job.arm.condition,
        "seed": job.arm.seed,
        "base_sha256": base.sha256,
        "end_id": None if end is None else end.id,
        "end_token": None if end is None else end.text,
        **ledger_facts(planned.steps),
        "sequences_sha256": sequences_hash(planned.fitted.values()),
        "budget": dataclasses.asdict(planned.budget),
        "truncated": sum(s.truncated for s in planned.fitted.values()),
        "optimizer": OPTIMIZER,
        "processes": devices.shares,
        **({"fsdp": True} if devices.sharded else {}),
        "settings": settings.model_dump(mode="json"),
        "versions": {name: version(name) for name in _libraries(settings)},
        "stored": job.stored,
    }
    checkpoint = Checkpoint.beside(job.output, identity, devices, job.checkpoint_steps)
    model = add_lora(base.model, settings, derive(job.arm.seed, "train/init") >> 33)
    if devices.device.type == "cpu":
        fuse(model)
    stream = "train/dropout" if devices.first else f"train/dropout/{devices.share}"
    torch.manual_seed(derive(job.arm.seed, stream) >> 33)
    try:
        # trackers end last, so that one that hangs cannot prevent saving a finished adapter
        with contextlib.ExitStack() as trackers:

            def follow(first_step: int) -> Tell:
                return trackers.enter_context(followed(job, model, devices, first_step))

            with told(base.needed, job.arm.name, devices.device):
                log = run_steps(
                    job, settings, model.to(devices.device), planned.steps, planned.fitted,
                    None if end is None else end.id, devices, checkpoint, follow, base.head_is_last,
                )  # fmt: skip
            ends = {"first_loss": log[0]["loss"], "last_loss": log[-1]["loss"]}
            named = {
                "base_model": job.model_args["pretrained"],
                "base_revision": hub_commit(job.model_args),
            }
            told_after = {**named, **ends}
            facts = {**identity, **told_after, "attention": attention_of(base.model)}
            if devices.first:
                lines = "".join(json.dumps(entry) + "\n" for entry in log)
                files = {"training_log.jsonl": lines, "README.md": model_card(facts)}
                facts = save_adapter(job.output, model, facts, files)
                checkpoint.remove()
            devices.wait()
    finally:
        take_off(model, settings)
    return facts


def _libraries(settings: Training) -> tuple[str, ...]:
    quantizer = ("bitsandbytes",) if settings.quantize else ()
    fused = ("liger-kernel",) if settings.kernels == "fused" else ()
    return ("torch", "transformers", "peft", "accelerate", *quantizer, *fused)
