"""ReasoningGymTask: the class of a short task YAML that names generators of Reasoning Gym."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.benchmarks.reasoning_gym import load
from gapft_harness.lm_eval_bridge.task import GapTask
from gapft_harness.lm_eval_bridge.task_file.settings import describe_task

#: Defaults of the task YAML, each overridable.
DEFAULTS: Mapping[str, Any] = {
    "custom_dataset": load,
    "output_type": "generate_until",
    "training_split": "pool",
    "test_split": "audit",
    "doc_to_text": ("{{question | trim}}\n\nReply with only the final result, as: Answer: RESULT"),
    "doc_to_target": "answer",
    "fewshot_config": {"doc_to_target": "Answer: {{answer}}"},
    "generation_kwargs": {"do_sample": False, "max_gen_toks": 64, "until": []},
}
#: Defaults of ``metadata.gapft``.
GAPFT_DEFAULTS: Mapping[str, Any] = {
    "verifier": "reasoning_gym",
    "id": "generator",
    "content": ["question"],
    "gold": "gold",
    "gold_only": ["gold"],
}


class ReasoningGymTask(GapTask):
    """A ``GapTask`` whose problems Reasoning Gym generates."""

    def __init__(self, config: dict[str, Any] | None = None, **_: Any) -> None:
        """Fill in the defaults, and build the task.

        Raises:
            UserError: as in ``GapTask`` and ``benchmarks.reasoning_gym.load``.
        """
        settings = dict(config or {})
        metadata = settings.get("metadata") or {}
        gapft = {**GAPFT_DEFAULTS, **(metadata.get("gapft") or {})}
        settings["metadata"] = {"version": 1, **metadata, "gapft": gapft}
        super().__init__({**DEFAULTS, **settings})

    def download(self, dataset_kwargs: dict[str, Any] | None = None, **_: Any) -> None:
        """Generate the problems."""
        try:
            super().download(dataset_kwargs)
        except UserError as error:
            if str(error).startswith(describe_task(self.config)):
                raise
            raise error.with_place(f"{describe_task(self.config)}: dataset_kwargs") from error


if __name__ != "gapft_harness.lm_eval_bridge.reasoning_gym":
    # See the end of task.py.
    from gapft_harness.lm_eval_bridge.reasoning_gym import ReasoningGymTask  # noqa: F401
