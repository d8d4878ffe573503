"""Counts in dry runs, also of an experiment and online training, match the finished run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.run_directory.recorded import read_training
from tests.kit.dry_runs import parse_section
from tests.kit.records import read_records
from tests.kit.runs import BaseRun


def read_forecast(choice: Options) -> tuple[int, int]:
    """Return the numbers of adapters and of responses, without GRPO's, in a dry run."""
    steps = parse_section(describe_dry_run(choice, None), "steps")
    adapters = re.findall(r"at most (\d+) adapters", steps["train"])[0]
    counts = [re.findall(r"^([\d,]+) new", steps[f"search {split}"])[0] for split in SPLITS]
    counts += re.findall(r"= ([\d,]+) responses", steps["audit"])
    counts += re.findall(r"([\d,]+) = ", steps.get("allocation", ""))
    return int(adapters), sum(int(count.replace(",", "")) for count in counts)


def count_responses(run: Path) -> int:
    """Count a run's responses, without GRPO's; arms that reuse an adapter have their own tables."""
    decisions = [name for name in read_records(run) if name.startswith(f"{layout.DECISIONS}/")]
    tables = [*map(layout.responses_path, SPLITS), *decisions]
    return sum(pq.read_metadata(run / table).num_rows for table in tables)


@pytest.mark.thorough
@pytest.mark.parametrize("base", ["demo-code", "online"])
def test_run_generates_predicted_responses(run_at: Callable[..., BaseRun], base: str) -> None:
    run = run_at("audited", base)
    tasks = [str(folder) for folder in run.folder.glob("tasks")]
    recipe = str(run.path / "recipe.yaml")
    choice = Options(recipe, plugin_files=run.plugins, include_paths=tasks)
    adapters, responses = read_forecast(choice)
    assert count_responses(run.path) == responses
    assert adapters == len(read_training(RunDirectory.open(run.path)))
