"""Train LoRA adapters from jobs: plan the steps, load the base, train, write the folder."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from accelerate.utils.memory import clear_device_cache

from gapft_harness.core.errors import UserError
from gapft_harness.core.pretrained import build_meta_model
from gapft_harness.core.records import Budget
from gapft_harness.core.streams import derive_key
from gapft_harness.core.weights import find_hub_commit
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.recipe.sections import Training
from gapft_harness.training.adapter import save_adapter
from gapft_harness.training.attention import describe_attention
from gapft_harness.training.devices import check_dtype, choose_device
from gapft_harness.training.kernels import check_kernels, use_kernels
from gapft_harness.training.ledger import (
    OPTIMIZER,
    PlannedStep,
    build_ledger,
    compute_ledger_facts,
    hash_sequences,
)
from gapft_harness.training.loop import Checkpoint, run_steps
from gapft_harness.training.memory import (
    MemoryEstimate,
    estimate_memory,
    explain_out_of_memory,
    is_larger_than_gpu,
)
from gapft_harness.training.model import (
    EndToken,
    add_lora,
    check_ids,
    check_targets,
    fuse_lora_layers,
    hash_searched_base,
    load_base,
    load_end_token,
    remove_lora,
)
from gapft_harness.training.output_layer import is_output_layer_last
from gapft_harness.training.plan import TrainingSequence, budget, build_sequences, plan_steps
from gapft_harness.training.tracking import open_tracker


def train(job: TrainingJob) -> dict[str, Any]:
    """Train one arm's adapter; see ``train_together``.

    Args:
        job: examples, settings, base model and output folder.

    Returns:
        The facts that ``train_together`` yields.

    Raises:
        UserError: see ``train_together``.
        GapftError: see ``train_together``.
    """
    (facts,) = train_together([job])
    return facts


def train_together(jobs: Sequence[TrainingJob]) -> Iterator[dict[str, Any]]:
    """Train several arms' adapters one after another on a base that is loaded once.

    On a CPU with one thread, a job gives the same bytes alone or with others: adapter
    initialization, dropout and order each have their own random stream under the arm's seed.

    Args:
        jobs: examples, settings, base model and output folder of each arm. All must have the same
            settings and base.

    Yields:
        Facts for ``run.json``, also in ``training.json``, after each arm: budget,
        ``compute_ledger_facts``, truncated examples, settings, optimizer, versions, attention
        implementation, and the hashes of sequences, base and adapter. Only the yielded facts have
        ``seconds``, so that the folder's bytes are reproducible.

    Raises:
        UserError: the model is missing or differs from the searched one, the model has no module of
            a target's name, a sequence is too long, or the device does not support the dtype.
        GapftError: a loss or gradient is not finite, and no folder is written.
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
    plans = [_plan_arm(job, settings) for job in jobs]
    base = _load_model(first, settings, plans)
    try:
        with use_kernels(settings, base.model):
            for job, arm_plan in zip(jobs, plans, strict=True):
                facts = _train_arm(job, settings, arm_plan, base)
                yield {**facts, "seconds": round(time.monotonic() - start, 3)}
                start = time.monotonic()
    finally:
        del base
        clear_device_cache(garbage_collection=True)  # this process may go on


@dataclass(frozen=True, slots=True)
class _ArmPlan:
    """An arm's sequences, steps and budget."""

    sequences: dict[str, TrainingSequence]
    steps: list[PlannedStep]
    budget: Budget

    @property
    def needs_end(self) -> bool:
        """Whether an end token is supervised."""
        return any(sequence.eos for sequence in self.sequences.values())


@dataclass(frozen=True, slots=True)
class _LoadedBase:
    """The loaded base model.

    Attributes:
        model: the model on its device or devices.
        sha256: hash of its weights.
        end: the token that ends responses; None if no arm supervises one.
        device: the device of its inputs.
        memory: what training holds all the time.
        is_head_last: see ``is_output_layer_last``.
    """

    model: Any
    sha256: str
    end: EndToken | None
    device: torch.device
    memory: MemoryEstimate
    is_head_last: bool


def _plan_arm(job: TrainingJob, settings: Training) -> _ArmPlan:
    """Plan an arm."""
    sequences_by_slot = {s.slot: s for s in build_sequences(job.examples, settings)}
    steps = build_ledger(
        plan_steps(sequences_by_slot, settings, job.arm.seed), sequences_by_slot, settings
    )
    return _ArmPlan(sequences_by_slot, steps, budget(job.examples, settings))


def _load_model(job: TrainingJob, settings: Training, plans: Sequence[_ArmPlan]) -> _LoadedBase:
    """Check the jobs' plans against the model and the memory, then load the base."""
    device = choose_device(job.model_args.get("device"))
    check_dtype(settings, device)
    meta_model = build_meta_model(job.model_args, dtype=settings.dtype)
    check_targets(meta_model, settings)
    for arm_plan in plans:
        for sequence in arm_plan.sequences.values():
            check_ids(meta_model, (*sequence.prompt_ids, *sequence.target_ids), sequence.slot)
    needs_end = any(arm_plan.needs_end for arm_plan in plans)
    end = load_end_token(job.model_args, job.chat_template) if needs_end else None
    model_type = str(meta_model.config.model_type)
    check_kernels(settings, model_type, device)
    is_head_last = is_output_layer_last(meta_model)
    estimate = estimate_memory(meta_model, settings)
    is_spread = is_larger_than_gpu(meta_model, settings, device)
    if is_spread and settings.kernels == "fused":
        raise UserError("training.kernels: fused needs a base that fits one GPU; set plain")
    model = load_base(job.model_args, settings, "auto" if is_spread else None)
    base_hash = hash_searched_base(job)
    with explain_out_of_memory(estimate, job.arm.name, device):
        placed = model if is_spread else model.to(device)
        return _LoadedBase(placed, base_hash, end, device, estimate, is_head_last)


def _train_arm(
    job: TrainingJob, settings: Training, arm_plan: _ArmPlan, base: _LoadedBase
) -> dict[str, Any]:
    """Train one arm's adapter on the loaded base, and write its folder; return its facts."""
    end = base.end if arm_plan.needs_end else None
    identity = {
        "seed": job.arm.seed,
        "base_sha256": base.sha256,
        "end_id": None if end is None else end.id,
        "end_token": None if end is None else end.text,
        **compute_ledger_facts(arm_plan.steps),
        "sequences_sha256": hash_sequences(arm_plan.sequences.values()),
        "budget": dataclasses.asdict(arm_plan.budget),
        "truncated": sum(s.truncated for s in arm_plan.sequences.values()),
        "optimizer": OPTIMIZER,
        "settings": settings.model_dump(mode="json"),
        "versions": {name: version(name) for name in _list_libraries(settings)},
    }
    checkpoint = Checkpoint.for_output(job.output, identity, base.device, job.checkpoint_steps)
    model = add_lora(base.model, settings, derive_key(job.arm.seed, "train/init") >> 33)
    if base.device.type == "cpu":
        fuse_lora_layers(model)
    torch.manual_seed(derive_key(job.arm.seed, "train/dropout") >> 33)
    try:
        # the tracker is closed last: one that hangs must not prevent saving a finished adapter
        with open_tracker(job) as log_step:
            with explain_out_of_memory(base.memory, job.arm.name, base.device):
                log = run_steps(
                    job, settings, model, arm_plan.steps, arm_plan.sequences,
                    None if end is None else end.id, base.device, checkpoint, log_step,
                    base.is_head_last,
                )  # fmt: skip
            losses = {"first_loss": log[0]["loss"], "last_loss": log[-1]["loss"]}
            facts = {
                **identity,
                "base_revision": find_hub_commit(job.model_args),
                **losses,
                "attention": describe_attention(base.model),
            }
            lines = "".join(json.dumps(entry) + "\n" for entry in log)
            facts = save_adapter(job.output, model, facts, {"training_log.jsonl": lines})
            checkpoint.remove()
    finally:
        remove_lora(model, settings)
    return facts


def _list_libraries(settings: Training) -> tuple[str, ...]:
    fused = ("liger-kernel",) if settings.kernels == "fused" else ()
    return ("torch", "transformers", "peft", "accelerate", *fused)
