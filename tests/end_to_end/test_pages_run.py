"""Documentation pages whose commands run unchanged on README's demo run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.end_to_end.readme import read_blocks, run_blocks, run_section
from tests.kit.report_tables import read_results

DOCS = Path(__file__).parents[2] / "docs"


def run_page(page: str | Path, demo_run: Path, folder: Path) -> str:
    """Run a page's commands beside a copy of the demo run; return their output."""
    shutil.copytree(demo_run.parent, folder / "runs")
    run_blocks(DOCS / page, folder)
    return (folder / "log.txt").read_text()


@pytest.mark.thorough
def test_commands_on_runs_work(demo_run: Path, tmp_path: Path) -> None:
    log = run_page("run.md", demo_run, tmp_path)
    assert "pass@1" in log
    assert "verified: the arms differ only" in log


@pytest.mark.thorough
def test_commands_on_machines_work(tmp_path: Path) -> None:
    run_blocks(DOCS / "machines.md", tmp_path)
    log = (tmp_path / "log.txt").read_text()
    assert "# steps\nproblems: pool" in log
    assert (tmp_path / "runs/rate/pool/responses.parquet").is_file()


@pytest.mark.thorough
def test_gap_example_matches_its_command(tmp_path: Path) -> None:
    """The command prints the page's greedy lines, which do not depend on sampling."""
    run_blocks(DOCS / "gap.md", tmp_path)
    page_lines = re.findall(r"^ (?:greedy|G:) .*$", (DOCS / "gap.md").read_text(), re.MULTILINE)
    log = (tmp_path / "log.txt").read_text()
    assert len(page_lines) == 2
    assert [line for line in page_lines if line not in log] == []


@pytest.mark.thorough
def test_slurm_scripts_work(tmp_path: Path) -> None:
    """Run both scripts with Slurm's variables and a small recipe."""
    for block in read_blocks(DOCS / "machines.md"):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
    small = ["demo", "--set", "data.pool_limit=40", "--set", "data.audit_limit=20"]
    small += ["--set", "search.k=4", "--set", "training.repetitions=2"]
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(run_script, "search.sbatch", small, tmp_path, SLURM_ARRAY_TASK_ID=part)
            for part in ("2", "1")
        ]
    for job in jobs:
        job.result()
    for _ in range(2):  # twice, as after a failure
        run_script("rest.sbatch", [*small, "--condition", "gapft", "--seed", "13"], tmp_path)
    rows = read_results(tmp_path / "runs/whole")["conditions"]
    assert [row["condition"] for row in rows] == ["source", "gapft"]
    made_for = count_responses(tmp_path / "runs/.store")
    assert str(tmp_path / "runs/whole") not in made_for, "the array generated all of it"


def count_responses(store: Path) -> Counter[str]:
    """Count the responses of searches in a store by the run that they were generated for."""
    counts = Counter[str]()
    for file in store.glob("generate_chunks/*/*/made_from.json"):
        record = json.loads(file.read_text())
        if record["key"]["settings"]["sampler"]["adapter"] is None:
            counts[record["run"]] += record["facts"]["responses"]
    return counts


def run_script(name: str, arguments: list[str], folder: Path, **variables: str) -> None:
    """Run a job script in its own shell, as Slurm does."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path, **variables}
    done = subprocess.run(
        ["bash", name, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_import_and_export_work(demo_run: Path, tmp_path: Path) -> None:
    run_page("run-directory.md", demo_run, tmp_path)
    assert (tmp_path / "exported" / "trl" / "gapft-seed13.jsonl").is_file()
    written = (tmp_path / "exported" / "decisions.jsonl").read_text().splitlines()
    for row in read_results(demo_run)["seeds"]:
        arm = f"{row['condition']}-seed{row['seed']}"
        own = [decision for decision in map(json.loads, written) if decision["model"] == arm]
        assert sum(decision["passed"] for decision in own) == row["correct"]
    pool = pq.read_table(tmp_path / "exported" / "responses" / "pool.parquet").to_pylist()
    assert {row["solve_rate"] for row in pool if row["state"] == "U"} == {0.0}


@pytest.mark.thorough
def test_rejudged_run_generates_nothing(demo_run: Path, tmp_path: Path) -> None:
    """Every response that ``boxed_math`` passes, ``math`` passes too."""
    shutil.copytree(demo_run.parent / ".store", tmp_path / "runs" / ".store")
    run_section(DOCS / "comparing.md", "### Judge a run by another verifier", tmp_path)
    run = tmp_path / "runs" / "demo-math"
    assert str(run) not in count_responses(tmp_path / "runs/.store")
    for split in ("pool", "audit"):
        before, after = (
            pq.read_table(folder / split / "responses.parquet").to_pylist()
            for folder in (demo_run, run)
        )
        assert [row["text"] for row in after] == [row["text"] for row in before]
        pairs = zip(before, after, strict=True)
        passed = [(b["status"] == "pass", a["status"] == "pass") for b, a in pairs]
        assert (True, True) in passed
        assert (True, False) not in passed
