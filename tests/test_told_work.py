"""The work that a command reports as reused or new, and why, before and after a run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.kit.command import succeed

SMALL = (
    "--condition", "gapft", "--condition", "uniform", "--limit", "60",
    "--set", "statistics.replicates=20", "--set", "training.repetitions=1",
    "--set", "executor.workers=1", "--seed", "13",
)  # fmt: skip

#: A plugin that makes keys describe another installed torch.
VERSIONS = """
from gapft_harness.api import hookimpl
from gapft_harness.stages.generation import made_from

_find_version = made_from.find_version
made_from.find_version = lambda name: "1.99.0" if name == "torch" else _find_version(name)


@hookimpl
def register_selectors(register):
    pass
"""


def find_work_lines(text: str) -> dict[str, str]:
    """Return the lines on work by their subject."""
    matches = re.findall(r"^ *((?:search|train|audit)[a-z ]*): (.*)$", text, flags=re.M)
    return dict(matches)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run."""
    demo_folder = tmp_path_factory.mktemp("told")
    run_demo(demo_folder, "first")
    return demo_folder


def run_demo(folder: Path, name: str, *options: str) -> dict[str, str]:
    """Run the demo; return the lines on its work."""
    done = succeed("run", "demo", "--run-dir", f"runs/{name}", *SMALL, *options, cwd=folder)
    return find_work_lines(done.stdout + done.stderr)


def dry_run_demo(folder: Path, name: str, *options: str) -> dict[str, str]:
    arguments = (*SMALL, *options, "--dry-run")
    done = succeed("run", "demo", "--run-dir", f"runs/{name}", *arguments, cwd=folder)
    return find_work_lines(done.stdout.partition("# what is new")[2])


def test_reports_key_and_values_of_new_samples(folder: Path) -> None:
    dry_run_lines = dry_run_demo(folder, "more", "--set", "search.k=16")
    assert dry_run_lines["search pool"].startswith("540 responses reused from first, 480 new")
    assert "search.k 8 → 16" in dry_run_lines["search pool"]
    assert "search" in dry_run_lines["train"], "known after it"
    after = run_demo(folder, "more", "--set", "search.k=16")
    assert after["search pool"] == dry_run_lines["search pool"]
    assert after["search audit"] == dry_run_lines["search audit"]


def test_reports_why_training_is_new(folder: Path) -> None:
    rank = ("--set", "training.rank=16")
    assert run_demo(folder, "ranked")["search pool"] == "reused from first"
    dry_run_lines = dry_run_demo(folder, "ranked", *rank)
    assert dry_run_lines["search pool"] == "in the run"
    assert "training.rank 8 → 16" in dry_run_lines["train"]
    new = re.findall(r"\d+ new", dry_run_lines["train"])
    assert new
    after = run_demo(folder, "ranked", *rank)
    assert re.findall(r"\d+ new", after["train"]) == new
    assert "training.rank 8 → 16" in after["train"]
    page = (folder / "runs/ranked/report/report.md").read_text().replace("\\", "")
    assert page.index("training.rank 8 → 16") < page.index("## Conditions")
    results = json.loads((folder / "runs/ranked/report/results.json").read_text())
    assert results["chosen_after_results"] == ["training.rank 8 → 16"]


def test_work_of_other_versions_is_new(folder: Path) -> None:
    (folder / "versions.py").write_text(VERSIONS)
    dry_run_lines = dry_run_demo(folder, "versions", "--plugin", "versions.py")
    assert re.search(r"new: libraries: torch [\d.]+(\+\w+)? → 1\.99", dry_run_lines["search pool"])
