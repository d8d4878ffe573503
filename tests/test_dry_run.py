"""What ``--dry-run`` foretells and finds, and what a run then does or refuses to begin."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from torch import cuda

from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import run_recipe, run_stages_alone
from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.directory import SPLITS
from tests.kit.command import gapft, parse_section


def read_budget(*sets: str) -> str:
    """Return the description of a condition with the budget of the code experiment."""
    code = ("budget.n=64", "budget.replay=64", "training.update_groups=64")
    shape = ("training.repetitions=1", "training.micro_batch=1", "training.accumulation=8")
    chosen = Options(
        "demo", conditions=["diffuse", "concentrated"], overrides=[*code, *shape, *sets]
    )
    conditions = parse_section(describe_dry_run(chosen, None), "conditions")
    assert conditions["diffuse"] == conditions["concentrated"]
    return conditions["diffuse"]


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
    assert read_budget(*sets) == expected


def test_describes_code_recipe_without_model_or_data(tmp_path: Path) -> None:
    done = gapft(
        *("run", "paper/qwen-coder-livecodebench", "--dry-run"),
        cwd=tmp_path,
        env={"GAPFT_DATA_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 1
    missing = done.stdout.partition("# missing here\n")[2]
    assert "LiveCodeBench: test.jsonl" in missing
    assert "Qwen2.5-Coder" in missing
    assert parse_section(done.stdout, "conditions")["diffuse"].endswith("J = 64")


def test_describes_steps_before_start(tmp_path: Path) -> None:
    text = describe_dry_run(Options("demo"), tmp_path / "r")
    steps = parse_section(text, "steps")
    assert "# steps\nproblems: pool 400, audit 1,000\n" in text
    assert steps["search pool"].startswith("3,600 new")
    assert steps["search audit"].startswith("9,000 new")
    assert "at most 12 adapters" in steps["train"]
    assert "at most 12 x 1,000 = 12,000 responses" in steps["audit"]
    memory = parse_section(text, "conditions")["memory"]
    assert all(word in memory for word in ("weights", "adapter and optimizer", "may be used"))
    assert list(tmp_path.iterdir()) == []


#: Settings of a run with experiments.
EXPERIMENTING = (
    "data.pool_limit=150", "data.audit_limit=16", "conditions=[diffuse, concentrated]",
    "seeds=[13]", "budget.n=40", "training.repetitions=1", "statistics.replicates=20",
    "experiments={allocation: {diffuse: diffuse, concentrated: concentrated}, "
    "stability: {sets: 2, k: 8}}",
)  # fmt: skip


def read_forecast(choice: Options) -> tuple[int, int]:
    """Return the numbers of adapters and of responses in a dry run."""
    steps = parse_section(describe_dry_run(choice, None), "steps")
    adapters = re.findall(r"at most (\d+) adapters", steps["train"])[0]
    counts = [re.findall(r"^([\d,]+) new", steps[f"search {split}"])[0] for split in SPLITS]
    counts += re.findall(r"= ([\d,]+) responses", steps["audit"])
    experiments = [steps[name] for name in ("allocation", "stability")]
    counts += [count for line in experiments for count in re.findall(r"([\d,]+) = ", line)]
    return int(adapters), sum(int(count.replace(",", "")) for count in counts)


@pytest.mark.thorough
def test_run_generates_predicted_responses(tmp_path: Path) -> None:
    choice = Options("demo", overrides=EXPERIMENTING)
    adapters, responses = read_forecast(choice)
    run = tmp_path / "run"
    run_recipe(choice, run)
    tables = [*run.glob("*/responses.parquet"), *run.glob("decisions/*.parquet")]
    assert sum(pq.read_metadata(table).num_rows for table in tables) == responses
    assert adapters == len([*run.glob("adapters/*/training.json")])


FUSED = ["training.kernels=fused", "training.dtype=bfloat16"]


@pytest.mark.skipif(cuda.is_available(), reason="fused kernels may be had here")
def test_rejects_unavailable_kernels_before_search(tmp_path: Path) -> None:
    expected = "training.kernels: fused"
    choice = Options("demo", overrides=FUSED)
    text = describe_dry_run(choice, Path("r"))
    assert expected in text.partition("# missing here\n")[2]
    for run in (
        lambda: run_recipe(choice, tmp_path / "run"),
        lambda: run_stages_alone(["train"], tmp_path / "run", choice),
    ):
        with pytest.raises(UserError, match=expected):
            run()
        assert not (tmp_path / "run").exists()
    # another executor trains on an unknown machine
    elsewhere = [*FUSED, "executor.name=ray", "executor.address=ray://elsewhere:1"]
    assert expected not in describe_dry_run(Options("demo", overrides=elsewhere), Path("r"))
