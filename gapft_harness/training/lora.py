"""Trains LoRA adapters: the job, its plan, the loop, the folder. Reads nothing but its job."""

from __future__ import annotations

import dataclasses
import time
from importlib.metadata import version
from typing import Any

import torch
from accelerate import PartialState

from gapft_harness.errors import GapftError, UserError
from gapft_harness.model_files import weights_folder, weights_hash
from gapft_harness.protocols import TrainingJob
from gapft_harness.recipe import Training
from gapft_harness.records import Budget
from gapft_harness.streams import derive
from gapft_harness.training.base_model import add_lora, end_id, load_base
from gapft_harness.training.ledger import Step, ledger, ledger_facts
from gapft_harness.training.loop import OPTIMIZER, run_steps
from gapft_harness.training.plan import budget, plan, sequences
from gapft_harness.training.saving import save_adapter


def train(job: TrainingJob) -> dict[str, Any]:
    """Trains one arm's adapter.

    The same job gives the same bytes on a CPU with one thread: adapter initialisation, dropout
    and order each have a stream of their own under the arm's seed.

    Args:
        job: examples, settings, base model, output folder.

    Returns:
        Facts for the manifest, also in ``training.json``: budget, what ``ledger_facts`` gives,
        truncated examples, settings, optimizer, versions, and the hashes of base and adapter.
        ``seconds`` is in the returned facts alone, so that the folder's bytes repeat.

    Raises:
        UserError: a model that is none or not the one that was searched, modules it lacks, a
            sequence that is too long.
        GapftError: the loss or its gradient is no finite number; no folder is written then.
    """
    start = time.monotonic()
    torch.set_num_threads(job.threads)
    settings = Training.model_validate(dict(job.settings))
    fitted = {s.slot: s for s in sequences(job.examples, settings)}
    steps = ledger(plan(fitted, settings, job.arm.seed), fitted, settings)
    found = budget(job.examples, settings)
    _check(job, found, steps)
    model = load_base(job.model_args, settings)
    base = weights_hash(weights_folder(job.model_args))
    _check_base(job, base)
    end = end_id(job.model_args) if any(s.eos for s in fitted.values()) else None
    model = add_lora(model, settings, derive(job.arm.seed, "train/init") >> 33)
    torch.manual_seed(derive(job.arm.seed, "train/dropout") >> 33)
    log = run_steps(job, settings, model, steps, fitted, end)
    facts = {
        "condition": job.arm.condition,
        "seed": job.arm.seed,
        "base_model": job.model_args["pretrained"],
        "base_sha256": base,
        "end_id": end,
        **ledger_facts(steps),
        "budget": dataclasses.asdict(found),
        "truncated": sum(s.truncated for s in fitted.values()),
        "first_loss": log[0]["loss"],
        "last_loss": log[-1]["loss"],
        "optimizer": OPTIMIZER,
        "processes": PartialState().num_processes,
        "settings": settings.model_dump(mode="json"),
        "versions": {name: version(name) for name in _LIBRARIES},
    }
    written = save_adapter(job.output, model, log, facts)
    return {**written, "seconds": round(time.monotonic() - start, 3)}


_LIBRARIES = ("torch", "transformers", "peft", "accelerate")


def _check(job: TrainingJob, found: Budget, steps: list[Step]) -> None:
    """The plan must cost what the budget says, which selection matched arms by."""
    planned = (sum(len(step.slots) for step in steps), len(steps))
    if planned != (found.exposures, found.steps):
        raise GapftError(
            f"{job.arm.name}: the plan has N = {planned[0]} exposures in J = {planned[1]} steps, "
            f"the budget says N = {found.exposures}, J = {found.steps}"
        )


def _check_base(job: TrainingJob, found: str) -> None:
    if job.base_sha256 is not None and found != job.base_sha256:
        raise UserError(
            f"{job.arm.name}: model {job.model_args['pretrained']} is not the one that was "
            f"searched: its weights' hash is {found[:12]}…, the search's {job.base_sha256[:12]}…. "
            "Restore the weights, or start a new run directory"
        )
