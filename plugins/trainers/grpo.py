"""The online trainer: GRPO by TRL's GRPOTrainer, on the prompts of the searched pool."""

from __future__ import annotations

from typing import Any

from gapft_harness.api import Register, TrainingJob, hookimpl


def grpo(job: TrainingJob) -> dict[str, Any]:
    """Train with GRPO, by the recipe's settings under ``training.grpo``."""
    from gapft_harness.training.grpo import train_grpo

    return train_grpo(job)


@hookimpl
def register_trainers(register: Register) -> None:
    """Register the trainer."""
    register("grpo", grpo, needs_problems=True, needs=("trl>=1.16",))
