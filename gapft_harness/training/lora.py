"""The LoRA loop: short, so that steps, members and loss weights can be seen.

Reads nothing but its job; writes a standard PEFT folder, beside its place and then renamed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import shutil
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors import SafetensorError

from gapft_harness.errors import GapftError
from gapft_harness.files import unwritable
from gapft_harness.protocols import TrainingJob
from gapft_harness.recipe import Training
from gapft_harness.records import Budget
from gapft_harness.streams import derive
from gapft_harness.training.base_model import add_lora, end_id, load_base
from gapft_harness.training.card import model_card
from gapft_harness.training.objective import Batch, collate, token_weights, weighted_loss
from gapft_harness.training.plan import Fitted, budget, plan, sequences, table_hash


def train(job: TrainingJob) -> dict[str, Any]:
    """Trains one arm's adapter.

    The same job gives the same bytes on a CPU with one thread: adapter initialisation, dropout
    and order each have a stream of their own under the arm's seed.

    Args:
        job: examples, settings, base model, output folder.

    Returns:
        Facts for the manifest, also in ``training.json``: budget, the hash of the (step → slots)
        table, the hash of supervised tokens per step, truncated examples, settings, versions.
        ``seconds`` is in the returned facts alone, so that the folder's bytes repeat.

    Raises:
        UserError: a model that is none, modules it lacks, a sequence that is too long.
        GapftError: the loss or its gradient is no finite number; nothing is written then.
    """
    start = time.monotonic()
    torch.set_num_threads(job.threads)
    settings = Training.model_validate(dict(job.settings))
    fitted = {s.slot: s for s in sequences(job.examples, settings)}
    table = plan(fitted, settings, job.arm.seed)
    found = budget(job.examples, settings)
    _check(job, found, table)
    model = load_base(job.model_args, settings.dtype)
    end = end_id(job.model_args) if any(s.eos for s in fitted.values()) else None
    model = add_lora(model, settings, derive(job.arm.seed, "train/init") >> 33)
    torch.manual_seed(derive(job.arm.seed, "train/dropout") >> 33)
    log = _loop(job, settings, model, [[fitted[slot] for slot in step] for step in table], end)
    facts = {
        "condition": job.arm.condition,
        "seed": job.arm.seed,
        "base_model": job.model_args["pretrained"],
        "plan_sha256": table_hash(table),
        "supervised_sha256": _hash([entry["supervised_tokens"] for entry in log]),
        "budget": dataclasses.asdict(found),
        "truncated": sum(s.truncated for s in fitted.values()),
        "first_loss": log[0]["loss"],
        "last_loss": log[-1]["loss"],
        "settings": settings.model_dump(mode="json"),
        "versions": {name: version(name) for name in _LIBRARIES},
    }
    _save(job.output, model, log, table, facts)
    return {**facts, "seconds": round(time.monotonic() - start, 3)}


_LIBRARIES = ("torch", "transformers", "peft", "accelerate")


def _check(job: TrainingJob, found: Budget, table: list[list[str]]) -> None:
    """The plan must cost what the budget says, which selection matched arms by."""
    planned = (sum(map(len, table)), len(table))
    if planned != (found.exposures, found.steps):
        raise GapftError(
            f"{job.arm.name}: the plan has N = {planned[0]} exposures in J = {planned[1]} steps, "
            f"the budget says N = {found.exposures}, J = {found.steps}"
        )


def _loop(
    job: TrainingJob, settings: Training, model: Any, steps: list[list[Fitted]], end: int | None
) -> list[dict[str, Any]]:
    """Runs the optimizer over all steps; gives the log, an entry a step."""
    accelerator = Accelerator(cpu=_on_cpu(job))
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        trainable, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
    )
    model, optimizer = accelerator.prepare(model, optimizer)
    model.train()
    log = []
    for number, members in enumerate(steps, start=1):
        parts = []
        for batch in micro_batches(members, settings, end):
            part = weighted_loss(model, batch.to(accelerator.device))
            accelerator.backward(part)
            parts.append(part.detach())
        # read here, not after each forward pass: reading waits for the device
        loss = float(torch.stack(parts).sum())
        norm = float(accelerator.clip_grad_norm_(trainable, settings.clip_norm))
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise GapftError(
                f"{job.arm.name}: step {number} of {len(steps)} has loss {loss} and gradient norm "
                f"{norm}; examples: {', '.join(m.slot for m in members)}. Nothing was written"
            )
        optimizer.step()
        optimizer.zero_grad()
        supervised = sum(member.supervised for member in members)
        log.append(
            {
                "step": number,
                "loss": loss,
                "grad_norm": norm,
                "learning_rate": settings.learning_rate,
                "supervised_tokens": supervised,
            }
        )
        job.progress(number, len(steps))
    return log


def micro_batches(members: Sequence[Fitted], settings: Training, end: int | None) -> list[Batch]:
    """Cuts one optimizer step into micro-batches.

    Members are sorted by length first, which saves padding and changes neither members nor loss.
    """
    weights = token_weights(members, settings.normalization)
    pairs = sorted(
        zip(members, weights, strict=True), key=lambda pair: (pair[0].tokens, pair[0].slot)
    )
    size = settings.micro_batch
    return [
        collate([m for m, _ in part], [w for _, w in part], end)
        for part in (pairs[start : start + size] for start in range(0, len(pairs), size))
    ]


def _on_cpu(job: TrainingJob) -> bool:
    return job.model_args.get("device") == "cpu" or not torch.cuda.is_available()


def _save(
    output: Path,
    model: Any,
    log: list[dict[str, Any]],
    table: list[list[str]],
    facts: dict[str, Any],
) -> None:
    """Writes the folder beside its place and renames it."""
    partial = output.with_name(f".{output.name}.partial")
    try:
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        model.save_pretrained(partial)
        _deterministic_config(partial / "adapter_config.json")
        lines = [
            json.dumps({**entry, "examples": slots}) + "\n"
            for entry, slots in zip(log, table, strict=True)
        ]
        (partial / "training_log.jsonl").write_text("".join(lines), encoding="utf-8")
        (partial / "training.json").write_text(json.dumps(facts, indent=1) + "\n", "utf-8")
        (partial / "README.md").write_text(model_card(facts), encoding="utf-8")
        for file in partial.iterdir():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        partial.rename(output)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        # safetensors has an error of its own for a full disk
        if isinstance(error, OSError | SafetensorError):
            raise unwritable(output, error) from error
        raise


def _deterministic_config(path: Path) -> None:
    """PEFT writes ``target_modules`` from a set; sorted, the file's bytes repeat."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _hash(values: Sequence[int]) -> str:
    return hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()
