"""What ``--dry-run`` says of a budget before there is a model or a pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.driver import Choice
from gapft_harness.dry_run import describe
from gapft_harness.errors import UserError
from tests.command import succeed


def select_line(*sets: str) -> str:
    """The demo, whose model and data are here, with the code experiment's shape of a budget."""
    code = ("budget.n=64", "budget.replay=64", "training.update_groups=64")
    shape = ("training.repetitions=1", "training.micro_batch=1", "training.accumulation=8")
    chosen = Choice(
        "demo", conditions=["diffuse", "concentrated"], overrides=[*code, *shape, *sets]
    )
    lines = describe(chosen, None).splitlines()
    return next(line for line in lines if line.startswith("select "))


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([], "n = 64 + 64 replay; N = 128; J = 64"),
        (["training.repetitions=3"], "n = 64 + 64 replay; N = 384; J = 64"),
        (["budget.replay=0"], "n = 64; N = 64; J = 64"),
        (
            ["budget.replay=6", "training.update_groups=null", "training.accumulation=4"],
            "n = 64 + 6 replay; N = 70; J = 18",
        ),
        (
            ["budget.n=recovered"],
            "n = |E_S,K| of the pool + 64 replay, known after search; N = 1 (n + 64); J = 64",
        ),
        (
            ["budget.n=recovered", "budget.replay=0", "training.update_groups=null"],
            "n = |E_S,K| of the pool, known after search; N = 1 n; J = ceil(N / 8)",
        ),
    ],
)
def test_slots_exposures_and_steps(sets: list[str], expected: str) -> None:
    assert select_line(*sets) == f"select  diffuse, concentrated; {expected}"


def test_too_few_examples_for_the_update_groups_are_told_at_once() -> None:
    with pytest.raises(UserError, match=r"update_groups is 64, but .* is only 50, less than one"):
        select_line("budget.n=30", "budget.replay=20")


def test_a_code_recipe_is_described_without_model_or_data(tmp_path: Path) -> None:
    done = succeed(
        *("run", "paper/qwen-coder-livecodebench", "--dry-run"),
        cwd=tmp_path,
        env={"GAPFT_DATA_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1"},
    )
    assert "train   6 adapters (2 conditions x 3 seeds)" in done.stdout
    assert "pool: LiveCodeBench: test.jsonl was found neither under" in done.stdout


def test_scaling_is_described_and_a_split_that_is_not_there_is_missing() -> None:
    chosen = Choice("demo", conditions=["uniform"], overrides=["scaling.calibration=100"])
    text = describe(chosen, "r")
    assert "calibration: 100 problems taken out of the training split, 1 greedy a problem" in text
    assert "scale   3 adapters x scales 0.25, 0.5, 0.75, 1, 1 greedy a calibration problem" in text
    assert "nothing: this recipe can run" in text
    missing = describe(Choice("demo", overrides=["scaling.calibration=validation"]), "r")
    assert "calibration: task gapft_demo has no validation_split" in missing


def test_without_scaling_there_is_no_such_stage() -> None:
    text = describe(Choice("demo"), "r")
    assert "scale " not in text
    assert "calibration" not in text
