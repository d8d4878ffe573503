"""Counts in a dry run, also of experiments, match the later run."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import run_recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.run_directory.recorded import read_training
from tests.kit.dry_runs import parse_section
from tests.kit.records import read_records

SETTINGS = (
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


def count_responses(run: Path) -> int:
    """Count a run's responses."""
    decisions = [name for name in read_records(run) if name.startswith(f"{layout.DECISIONS}/")]
    tables = [*map(layout.responses_path, SPLITS), *decisions]
    return sum(pq.read_metadata(run / table).num_rows for table in tables)


@pytest.mark.thorough
def test_run_generates_predicted_responses(tmp_path: Path) -> None:
    choice = Options("demo", overrides=SETTINGS)
    adapters, responses = read_forecast(choice)
    run_recipe(choice, tmp_path / "run")
    assert count_responses(tmp_path / "run") == responses
    assert adapters == len(read_training(RunDirectory.open(tmp_path / "run")))
