"""Training examples and jobs for the training tests."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml
from safetensors.torch import load_file

from gapft_harness.core.records import Arm, Example
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.recipe.sections import Training
from tests.kit.command import succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.records import change_recipe


def example(
    problem_id: str, prompt: int = 5, response: int = 4, *, ended: bool = True, index: int = -1
) -> Example:
    """Build an example of these lengths, with token ids derived from its problem id."""
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
    """Build ``n`` examples of various lengths; every fifth response was cut."""
    return [
        example(f"p{i}", 3 + i * 5 % 11, 1 + i * 7 % 13, ended=i % 5 != 4, index=i)
        for i in range(n)
    ]


def settings(**changes: Any) -> Training:
    """Build settings: float32, no dropout, one exposure, a large learning rate."""
    chosen = {"dtype": "float32", "dropout": 0.0, "repetitions": 1, "learning_rate": 1e-2}
    return Training(**{**chosen, **changes})


def job(
    model: Path, output: Path, chosen: list[Example], seed: int = 13, **changes: Any
) -> TrainingJob:
    """Build the training job of one arm."""
    return TrainingJob(
        arm=Arm("gapft", seed),
        examples=chosen,
        settings=settings(**changes).model_dump(mode="json"),
        model_args={"pretrained": str(model), "device": "cpu"},
        output=output,
    )


def write_letters_recipe(folder: Path, **changes: dict[str, Any]) -> None:
    """Prepare a run of the letters with one arm; the changes are of sections of its recipe."""
    prepare_letters_run(folder)
    path = folder / "recipe.yaml"
    content = yaml.safe_load(path.read_text())
    content |= {"conditions": ["gapft"], "seeds": [13], "executor": {"workers": 1}}
    for section, values in changes.items():
        content[section] = {**content.get(section, {}), **values}
    path.write_text(yaml.safe_dump(content))


def select_letters(folder: Path, **training: Any) -> Path:
    """Make a run of one arm with 80 exposures, stopped after selection; return its folder."""
    write_letters_recipe(folder, budget={"n": 4}, training={"repetitions": 20, **training})
    succeed(
        *("run", "recipe.yaml", "--run-dir", "run", "--include-path", "tasks"),
        *("--plugin", "plugin.py", "--only", "search", "--only", "states", "--only", "select"),
        cwd=folder,
    )
    return folder


def copy_selected(folder: Path, run: Path, **changes: Any) -> Path:
    """Copy a run of ``select_letters``, and change sections and keys of its recipe."""
    shutil.copytree(folder / "run", run)

    def change(recipe: dict[str, Any]) -> None:
        for key, value in changes.items():
            recipe[key] = {**recipe[key], **value} if isinstance(value, dict) else value

    change_recipe(run, change)
    return run


def assert_same_weights(expected: Path, actual: Path) -> None:
    """Assert that two adapters are equal up to float32 rounding.

    Compare norms of tensors, not entries: AdamW divides a gradient by its own size, so where
    one is nearly 0, rounding alone changes an entry by an amount that depends on the processor.
    """
    first, second = (
        load_file(folder / "adapter_model.safetensors") for folder in (expected, actual)
    )
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert (tensor - second[name]).norm() <= 1e-3 * tensor.norm(), name
