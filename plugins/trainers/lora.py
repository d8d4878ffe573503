"""The bundled trainer: LoRA on response tokens, on accelerate and PEFT."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gapft_harness.api import Register, TrainingJob, hookimpl


class Lora:
    """LoRA on response tokens only, with the recipe's settings."""

    def __call__(self, job: TrainingJob) -> dict[str, Any]:
        """Train one arm."""
        from gapft_harness.api import train_lora

        return train_lora(job)

    def together(self, jobs: Sequence[TrainingJob]) -> Iterator[dict[str, Any]]:
        """Train several arms on a base model that is loaded once."""
        from gapft_harness.training.lora import train_together

        return train_together(jobs)


lora = Lora()


@hookimpl
def register_trainers(register: Register) -> None:
    """Register the trainer."""
    register("lora", lora, as_documented=True)
