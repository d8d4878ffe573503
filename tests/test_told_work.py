"""What a command tells of its work: reused or new and why, before and after, on the demo policy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.command import succeed

SMALL = (
    "--condition", "gapft", "--condition", "uniform", "--limit", "60",
    "--set", "statistics.replicates=20", "--set", "training.repetitions=1",
    "--set", "executor.workers=1",
)  # fmt: skip

#: A plugin that makes the keys' descriptions say that another torch is installed.
VERSIONS = """
from gapft_harness import hookimpl
from gapft_harness.stages.generation import made_from

_installed = made_from.installed
made_from.installed = lambda name: "1.99.0" if name == "torch" else _installed(name)


@hookimpl
def register_selectors(register):
    pass
"""


def lines(text: str) -> dict[str, str]:
    """The lines on work by what they are of."""
    found = re.findall(r"^ *((?:search|train|audit)[a-z ]*): (.*)$", text, flags=re.M)
    return dict(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run."""
    made = tmp_path_factory.mktemp("told")
    run(made, "first")
    return made


def run(folder: Path, name: str, *options: str, seed: int = 13) -> dict[str, str]:
    """Runs the demo, and gives the lines on its work."""
    given = (*SMALL, "--seed", str(seed), *options)
    done = succeed("run", "demo", "--run-dir", f"runs/{name}", *given, cwd=folder)
    return lines(done.stdout + done.stderr)


def dry(folder: Path, name: str, *options: str, seed: int = 13) -> dict[str, str]:
    given = (*SMALL, "--seed", str(seed), *options, "--dry-run")
    done = succeed("run", "demo", "--run-dir", f"runs/{name}", *given, cwd=folder)
    return lines(done.stdout.partition("# what is new")[2])


def manifest(folder: Path, name: str) -> dict[str, Any]:
    return dict(json.loads((folder / "runs" / name / "manifest.json").read_text()))


def test_more_samples_are_new_with_the_key_and_both_values(folder: Path) -> None:
    before = dry(folder, "more", "--set", "search.k=16")
    assert before["search pool"].startswith("540 responses reused from first, 480 new")
    assert "search.k 8 → 16" in before["search pool"]
    assert "search" in before["train"], "known after it"
    after = run(folder, "more", "--set", "search.k=16")
    assert after["search pool"] == before["search pool"]
    assert after["search audit"] == before["search audit"]


def test_another_training_reuses_the_search_and_says_what_is_trained_why(folder: Path) -> None:
    rank = ("--set", "training.rank=16")
    assert run(folder, "ranked")["search pool"] == "reused from first"
    before = dry(folder, "ranked", *rank)
    assert before["search pool"] == "in the run"
    assert "training.rank 8 → 16" in before["train"]
    new = re.findall(r"\d+ new", before["train"])
    assert new
    after = run(folder, "ranked", *rank)
    assert re.findall(r"\d+ new", after["train"]) == new
    assert "training.rank 8 → 16" in after["train"]
    page = (folder / "runs/ranked/report/report.md").read_text().replace("\\", "")
    assert page.index("training.rank 8 → 16") < page.index("## Conditions")
    results = json.loads((folder / "runs/ranked/report/results.json").read_text())
    assert results["chosen_after_results"] == ["training.rank 8 → 16"]


def test_stored_seeds_and_searches_that_a_report_does_not_show_are_listed(folder: Path) -> None:
    said = run(folder, "seeded", seed=14)
    assert "14" in said["train"]
    page = (folder / "runs/seeded/report/report.md").read_text()
    assert re.search(r"not in this report: .*gapft \(seeds 13\)", page.replace("\\", ""))
    run(folder, "searched", "--set", "search.seed=5", "--set", "search.temperature=0.9")
    page = (folder / "runs/searched/report/report.md").read_text()
    assert "search.seed 5 → 0" in page.replace("\\", "")


def test_work_of_other_versions_is_taken_where_it_is_asked_for_and_marked(folder: Path) -> None:
    (folder / "versions.py").write_text(VERSIONS)
    other = ("--plugin", "versions.py")
    before = dry(folder, "versions", *other)
    assert re.search(r"new: libraries: torch [\d.]+(\+\w+)? → 1\.99", before["search pool"])
    accepted = ("--reuse-versions", *other, "--condition", "replay")
    after = run(folder, "versions", *accepted)
    assert after["search pool"] == "reused from first"
    made = manifest(folder, "versions")
    assert made["reuse_versions"] is True
    assert "1.99" not in json.dumps(made["made_with"]["audit"])
    assert "torch 1.99" in made["training"]["replay-seed13"]["made_with"]
    found = json.loads((folder / "runs/versions/report/results.json").read_text())
    contrasts = {(of["a"], of["b"]): of for of in found["contrasts"]}
    assert "torch" in json.dumps(found["conditions"]["replay"]["own"])
    assert contrasts["gapft", "replay"]["differs"] == ["versions"]
    assert "differs" not in contrasts["gapft", "uniform"]
    said = succeed("verify", "runs/versions", *other, cwd=folder)
    assert "torch 1.99" in " ".join((said.stdout + said.stderr).split())
