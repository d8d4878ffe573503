"""The measured ways of training: our loop with the recipe's settings, and a literal loop."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gapft_harness.core.records import Arm
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.recipe.sections import Training
from gapft_harness.training.attention import SEGMENTS, register_segments
from gapft_harness.training.kernels import use_kernels
from gapft_harness.training.ledger import PlannedStep, build_ledger
from gapft_harness.training.loop import Checkpoint, run_steps
from gapft_harness.training.memory import estimate_memory
from gapft_harness.training.model import add_lora
from gapft_harness.training.plan import TrainingSequence, build_sequences, plan_steps
from tests.benchmarks.gpu.device import FLOPS_PER_PARAMETER, count_base_parameters, synchronize
from tests.benchmarks.gpu.shapes import Shape

#: Steps before timing, in which kernels are chosen and memory is reserved.
WARM = 3


_PACKED = {"padding_free": True}
FUSED = "ours, padding-free, fused kernels"

#: The changes of our loop's ways to the settings of the main LogiQA recipe.
OURS: dict[str, dict[str, Any]] = {
    "ours, padded 2 x 8": {},
    "ours, padded 16 x 1": {"micro_batch": 16, "accumulation": 1},
    "ours, padding-free": _PACKED,
    FUSED: {**_PACKED, "kernels": "fused"},
    "ours, padding-free, gradient checkpointing": {**_PACKED, "gradient_checkpointing": True},
}
LITERAL = "literal loop, padded 2 x 8"


@dataclass(frozen=True)
class Measured:
    """A way's figures over the timed steps.

    Attributes:
        way: the way's name.
        steps: the number of timed steps.
        tokens: the tokens of these steps, with prompts, without padding.
        supervised_tokens: the supervised tokens of these steps.
        seconds: the time of these steps.
        parameters: the base's parameters.
        share_of_peak: 4 x parameters x tokens / seconds, divided by the measured matrix peak.
        peak_gb: peak memory allocated on the device; None on a CPU.
        estimated_gb: weights, adapter and optimizer (``estimate_memory``).
        losses: the losses of all steps, untimed ones first.
    """

    way: str
    steps: int
    tokens: int
    supervised_tokens: int
    seconds: float
    parameters: int
    share_of_peak: float
    peak_gb: float | None
    estimated_gb: float
    losses: list[float]

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds


@dataclass(frozen=True)
class Bench:
    """The state shared by all ways."""

    shape: Shape
    device: torch.device
    peak: float
    steps: int
    dropout: float

    def settings(self, changes: Mapping[str, Any]) -> Training:
        """Return the paper's logic settings (Table 4, the recipe's defaults) with changes."""
        return Training(dtype=self.shape.dtype, dropout=self.dropout, repetitions=1, **changes)  # type: ignore[arg-type, unused-ignore]

    def ours(self, name: str, changes: Mapping[str, Any], folder: Path) -> Measured:
        """Run the loop of ``--only train`` on a base built on the device."""
        settings = self.settings(changes)
        job = TrainingJob(
            arm=Arm("bench", 13),
            examples=self.shape.examples(16 * (WARM + self.steps)),
            settings=settings.model_dump(mode="json"),
            model_args={"pretrained": self.shape.name, "device": self.device.type},
            output=folder / "adapter",
        )
        if settings.padding_free:
            register_segments()
        attention = SEGMENTS if settings.padding_free else None
        base = self.shape.model(self.device, attention)
        with use_kernels(settings, base):
            model = add_lora(base, settings, 13)
            return self._measured(name, model, settings, self._steps(job, settings, model))

    def _steps(self, job: TrainingJob, settings: Training, model: Any) -> Any:
        def go(
            end_of_step: Callable[[], None], steps: list[PlannedStep], fitted: Any
        ) -> list[float]:
            reporting_job = dataclasses.replace(job, progress=lambda done, total: end_of_step())
            checkpoint = Checkpoint.for_output(job.output, {}, self.device, None)
            log = run_steps(
                reporting_job,
                settings,
                model,
                steps,
                fitted,
                None,
                self.device,
                checkpoint,
                is_head_last=True,
            )
            return [line["loss"] for line in log]

        return go

    def literal(self) -> Measured:
        """Run the recipe literally: PEFT, masks, all logits, the plan's order."""
        settings = self.settings({})
        model = add_lora(self.shape.model(self.device, None), settings, 13)

        def go(
            end_of_step: Callable[[], None], steps: list[PlannedStep], fitted: Any
        ) -> list[float]:
            trainable = [p for p in model.parameters() if p.requires_grad]
            optimizer = torch.optim.AdamW(
                trainable, lr=settings.learning_rate, weight_decay=settings.weight_decay
            )
            model.train()
            losses = []
            for step in steps:
                parts = []
                for at in range(0, len(step.slots), settings.micro_batch):
                    rows = [fitted[slot] for slot in step.slots[at : at + settings.micro_batch]]
                    batch = {k: v.to(self.device) for k, v in pad_rows(rows).items()}
                    loss = model(**batch, num_items_in_batch=step.supervised_tokens).loss
                    loss.backward()
                    parts.append(loss.detach())
                torch.nn.utils.clip_grad_norm_(trainable, settings.clip_norm)
                optimizer.step()
                optimizer.zero_grad()
                losses.append(float(torch.stack(parts).sum()))
                end_of_step()
            return losses

        return self._measured(LITERAL, model, settings, go)

    def _measured(self, way: str, model: Any, settings: Training, go: Any) -> Measured:
        fitted = {
            s.slot: s
            for s in build_sequences(self.shape.examples(16 * (WARM + self.steps)), settings)
        }
        steps = build_ledger(plan_steps(fitted, settings, 13), fitted, settings)
        stamps: list[float] = []

        def end_of_step() -> None:
            synchronize(self.device)
            stamps.append(time.perf_counter())

        needed = estimate_memory(self.shape.model(torch.device("meta"), None), settings)
        parameters = count_base_parameters(model)
        torch.manual_seed(0)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        losses = go(end_of_step, steps, fitted)
        seconds = stamps[-1] - stamps[WARM - 1]
        tokens, supervised = count_tokens(steps[WARM:], fitted)
        on_gpu = self.device.type == "cuda"
        peak_gb = torch.cuda.max_memory_allocated(self.device) / 1e9 if on_gpu else None
        return Measured(
            way,
            len(steps) - WARM,
            tokens,
            supervised,
            seconds,
            parameters,
            FLOPS_PER_PARAMETER * parameters * tokens / seconds / self.peak,
            peak_gb,
            needed.total / 1e9,
            losses,
        )


def count_tokens(
    steps: Sequence[PlannedStep], fitted: dict[str, TrainingSequence]
) -> tuple[int, int]:
    members = [fitted[slot] for step in steps for slot in step.slots]
    return sum(m.tokens for m in members), sum(m.supervised for m in members)


def pad_rows(rows: Sequence[TrainingSequence]) -> dict[str, torch.Tensor]:
    """Build ids, mask and labels like a padding collator."""
    length = max(row.tokens for row in rows)
    batch: dict[str, list[list[int]]] = {"input_ids": [], "attention_mask": [], "labels": []}
    for row in rows:
        prompt, target, rest = list(row.prompt_ids), list(row.target_ids), length - row.tokens
        batch["input_ids"].append(prompt + target + [0] * rest)
        batch["attention_mask"].append([1] * row.tokens + [0] * rest)
        batch["labels"].append([-100] * len(prompt) + target + [-100] * rest)
    return {key: torch.tensor(value) for key, value in batch.items()}
