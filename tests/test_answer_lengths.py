"""A third-party experiment, one file of the example package, run with the real command."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pytest

from gapft_harness.stages.verify.run import verify
from tests.kit.command import ROOT, call, gapft, succeed
from tests.kit.planted_run import read_json, read_rows
from tests.kit.runs import BaseRun, copy_snapshot, make_base_run

FILE = ROOT / "tests/example_plugin/gapft_answer_lengths.py"
NAME = "answer_lengths"
CONDITIONS = ("gapft", "uniform", "drawn", "shared", "repeated")


@pytest.fixture(scope="module")
def run(base_root: Path, tmp_path_factory: pytest.TempPathFactory) -> BaseRun:
    """A finished run of the letters task with the experiment; tests only read it."""
    folder = make_base_run(base_root, "letters")
    run = copy_snapshot(folder, "audited", tmp_path_factory.mktemp("experiment") / "copy")
    assert run.resume().returncode == 0
    return run


def test_experiment_appears_in_all_outputs(run: BaseRun) -> None:
    report = run.path / "report"
    rows = read_json(report / "results.json")[NAME]
    assert {row["condition"] for row in rows} == {"source", *CONDITIONS}
    assert "## Answer lengths" in (report / "index.md").read_text("utf-8")
    assert (report / f"tables/{NAME}.csv").read_text("utf-8").count("\n") == len(rows) + 1
    listed = succeed("list", "plugins", "--plugin", FILE).stdout
    assert re.search(rf"^experiment +{NAME} +.*lengths of the answers", listed, re.MULTILINE)


def test_dry_run_counts_the_steps(run: BaseRun) -> None:
    done = run.resume("--dry-run")
    assert done.returncode == 0, done.stderr
    assert f"{NAME}: 5 in the run" in done.stdout


def test_results_match_tables(run: BaseRun) -> None:
    tables = {"learned": ("selections", "response_ids"), "given": ("decisions", "token_ids")}
    results = read_json(run.path / "report/results.json")[NAME]
    for row in (row for row in results if row["condition"] != "source"):
        table, column = tables[row["answers"]]
        rows = read_rows(run.path / table / f"{row['condition']}-seed{row['seed']}.parquet")
        lengths = [len(entry[column]) for entry in rows]
        assert row["median"] == median(lengths)
        assert row["long"] == sum(length >= 6 for length in lengths) / len(lengths)


def test_verify_and_report_need_the_plugin(run: BaseRun) -> None:
    for command in (("verify", run.path), ("run", run.path, "--only", "report")):
        done = gapft(*command, "--plugin", run.plugins[0])
        assert done.returncode == 2
        assert NAME in done.stderr
        assert run.plugins[1] in done.stderr


def test_changed_settings_or_code_recompute_results(
    run_at: Callable[..., BaseRun], tmp_path: Path
) -> None:
    run = run_at("audited")
    path = run.path / f"{NAME}/gapft-seed13.json"
    original, written = path.read_bytes(), path.stat().st_mtime_ns
    edited = tmp_path / "edited.py"
    edited.write_text(FILE.read_text().replace("Answer lengths", "How long answers are"))
    plugins = [run.plugins[0], str(edited)]
    lines = verify(run.path, plugins).differences
    assert any(f"{NAME}/gapft-seed13.json" in line for line in lines)
    options = [part for plugin in plugins for part in ("--plugin", plugin)]
    succeed("run", run.path, "--only", "experiments", *options, cwd=run.folder)
    assert path.read_bytes() == original
    assert path.stat().st_mtime_ns != written
    assert verify(run.path, plugins).differences == []
    setting = ("--set", f"experiments.{NAME}.long=13")
    planned = succeed("run", run.path, "--dry-run", *setting, *options, cwd=run.folder)
    assert f"{NAME}: 5 new" in planned.stdout
    stages = ("--only", "select", "--only", "experiments")
    succeed("run", run.path, *stages, *setting, *options, cwd=run.folder)
    assert read_json(path)["long"] == 0 < json.loads(original)["long"]
    assert verify(run.path, plugins).differences == []


MISTAKES = {
    f"experiments.{NAME}.long=0": f"'experiments.{NAME}.long'",
    f"experiments.{NAME}.lng=6": f"'experiments.{NAME}.lng'",
    f"experiments.{NAME}=6": f"'experiments.{NAME}'",
    "experiments.answer_length={}": "'answer_length'",
}


@pytest.mark.parametrize("setting", MISTAKES)
def test_rejects_wrong_settings(run: BaseRun, setting: str) -> None:
    recipe = (run.path / "recipe.yaml").read_bytes()
    plugins = [part for plugin in run.plugins for part in ("--plugin", plugin)]
    done = call("run", run.path, "--set", setting, *plugins)
    assert done.returncode == 2
    assert MISTAKES[setting] in done.stderr
    assert done.stderr.count("\n") == 1
    assert (run.path / "recipe.yaml").read_bytes() == recipe


def test_docs_quote_the_example_file() -> None:
    page = (ROOT / "docs/plugins.md").read_text()
    quoted = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert len(quoted) >= 4
    assert [block for block in quoted if block not in FILE.read_text()] == []
