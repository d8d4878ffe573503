"""Training examples and jobs for the tests of training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from gapft_harness.core.records import Arm, Example
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.recipe.sections import Training


def example(
    problem_id: str, prompt: int = 5, response: int = 4, *, ended: bool = True, index: int = -1
) -> Example:
    """One with ids made from its problem's id, of the lengths asked for."""
    start = 3 + sum(problem_id.encode()) % 100
    return Example(
        problem_id=problem_id,
        state="S",
        prompt_ids=tuple(1 + (start + 7 * i) % 250 for i in range(prompt)),
        response_ids=tuple(3 + (3 * start + 11 * i) % 250 for i in range(response)),
        response_index=index,
        first_success=None,
        ended=ended,
    )


def examples(n: int) -> list[Example]:
    """``n`` of them, of many lengths; every fifth response was cut."""
    return [
        example(f"p{i}", 3 + i * 5 % 11, 1 + i * 7 % 13, ended=i % 5 != 4, index=i)
        for i in range(n)
    ]


def settings(**changes: Any) -> Training:
    """Float32, no dropout, one exposure, a rate that moves the weights; and the changes."""
    chosen = {"dtype": "float32", "dropout": 0.0, "repetitions": 1, "learning_rate": 1e-2}
    return Training(**{**chosen, **changes})


def job(
    model: Path, output: Path, chosen: list[Example], seed: int = 13, **changes: Any
) -> TrainingJob:
    """One arm's job."""
    return TrainingJob(
        arm=Arm("gapft", seed),
        examples=chosen,
        settings=settings(**changes).model_dump(mode="json"),
        model_args={"pretrained": str(model), "device": "cpu"},
        output=output,
    )


def same_weights(expected: Path, found: Path) -> None:
    """Asserts that two adapters are equal but for rounding in float32.

    By the size of each tensor and not by its entries: AdamW divides a gradient by its own size,
    so where one is nearly 0, rounding alone moves an entry, and how far rests on the processor.
    """
    one, other = (load_file(folder / "adapter_model.safetensors") for folder in (expected, found))
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert (tensor - other[name]).norm() <= 1e-3 * tensor.norm(), name
