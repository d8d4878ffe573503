"""The example plugin package, installed by pip and found by its entry point."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from tests.kit.command import ROOT, succeed
from tests.kit.report_tables import read_results
from tests.kit.runs import RunAt
from tests.kit.tampering import read_rows

PACKAGE = Path(__file__).parent / "example_plugin"


@pytest.fixture(scope="module")
def installed_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package beside the environment, without changing it, and return the folder."""
    source = tmp_path_factory.mktemp("source")
    for file in PACKAGE.glob("*.*"):
        (source / file.name).write_text(file.read_text())
    target = tmp_path_factory.mktemp("site")
    subprocess.run(
        [
            sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
            "--no-build-isolation", "--target", str(target), str(source),
        ],
        check=True,
    )  # fmt: skip
    return target


def test_plugins_are_listed_with_package(installed_package: Path) -> None:
    listed = succeed("list", "plugins", env={"PYTHONPATH": str(installed_package)}).stdout
    for name in ("hardest_recovered", "ends_with"):
        line = next(line for line in listed.splitlines() if name in line)
        assert "example (package gapft-example-plugin)" in line
    line = next(line for line in listed.splitlines() if "answer_lengths" in line)
    assert "example_experiment (package gapft-example-plugin)" in line


def test_experiment_of_one_file_is_in_the_report(run_at: RunAt) -> None:
    """The letters run names the example's file with ``--plugin``."""
    run = run_at("audited")
    assert run.resume().returncode == 0
    assert "## Answer lengths" in (run.path / "report/index.md").read_text("utf-8")
    tables = {"learned": ("selections", "response_ids"), "given": ("decisions", "token_ids")}
    rows = [row for row in read_results(run.path)["answer_lengths"] if row["condition"] != "source"]
    assert len({row["condition"] for row in rows}) == 5
    for row in rows:
        table, column = tables[row["answers"]]
        table_rows = read_rows(run.path / table / f"{row['condition']}-seed{row['seed']}.parquet")
        lengths = [len(entry[column]) for entry in table_rows]
        assert row["median"] == median(lengths)
        assert row["long"] == sum(length >= 6 for length in lengths) / len(lengths)


def test_documents_quote_the_example_file() -> None:
    page = (ROOT / "docs/plugins.md").read_text("utf-8")
    quoted = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert len(quoted) >= 4
    source = (PACKAGE / "gapft_answer_lengths.py").read_text()
    assert [block for block in quoted if block not in source] == []
