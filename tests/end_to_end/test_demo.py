"""README's commands work as written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gapft_harness.cli.main import app
from gapft_harness.core.errors import GapftError
from tests.end_to_end.readme import read_blocks
from tests.kit.report_tables import find_row, read_results
from tests.kit.tampering import read_rows
from tests.presentation.exploring import unpack_page

ROOT = Path(__file__).parents[2]


def test_readme_runs_as_written(readme_run: Path) -> None:
    log = (readme_run / "log.txt").read_text()
    assert "pass@1" in log
    assert "most_reachable" in log
    assert (readme_run / "runs/demo/report/index.html").exists()


def read_console_commands(page: str) -> str:
    """Return a page's console commands without line breaks."""
    text = "".join(b.text for b in read_blocks(ROOT / page) if b.language == "console")
    return text.replace("\\\n", " ")


def test_readme_shows_what_compare_prints(readme_run: Path) -> None:
    """README's table equals the printed columns and row, up to rounding."""
    printed_text = next(
        b.text for b in read_blocks(ROOT / "README.md") if b.text.startswith("Before and after")
    )
    printed = (readme_run / "log.txt").read_text().rpartition("Before and after\n")[2]
    tables = []
    for text in (printed_text.partition("\n")[2], printed):
        head, _, row = [line.split() for line in text.splitlines() if line.strip()][:3]
        tables.append(
            (head, row[0], [float(cell.strip("[],%<").replace("−", "-")) for cell in row[1:]])
        )
    assert tables[0][:2] == tables[1][:2]
    # before, after, difference, interval, p, gained, lost: other rounding trains another adapter
    assert tables[0][2] == pytest.approx(tables[1][2], abs=5)


def test_commands_for_other_machines_resolve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pages = ("README.md", "docs/machines.md", "docs/run.md")
    text = "".join(read_console_commands(page) for page in pages)
    commands = re.findall(r"^gapft (run .*)$", text, re.M)
    assert {command.split()[1] for command in commands} >= {"paper/llama-logiqa"}
    for command in commands:
        done = CliRunner().invoke(app, [*command.split(), "--dry-run"])
        assert not isinstance(done.exception, GapftError), done.exception
        assert done.exit_code == ("nothing: this recipe can run" not in done.stdout), done.output
        assert "# resolved recipe" in done.stdout
        assert "# missing here" in done.stdout
    targets = re.findall(r"^make (\w+)", read_console_commands("README.md"), re.M)
    assert {"demo", "test", "lint", "bench"} <= set(targets)
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)


def test_adapters_load_in_stock_lm_eval(readme_run: Path) -> None:
    """README's log after has the run's decisions: lm_eval's own ``peft=`` loaded the adapter."""
    run = readme_run / "runs" / "demo"
    (log,) = (readme_run / "runs" / "after").rglob("samples_gapft_demo_*.jsonl")
    records = map(json.loads, log.read_text().splitlines())
    logged = {record["doc"]["question"]: record["filtered_resps"][0] for record in records}
    problems = read_rows(run / "audit/problems.parquet")
    prompts = {row["problem_id"]: row["prompt"] for row in problems}
    decisions = read_rows(run / "decisions/gapft-seed13.parquet")
    ours = {prompts[row["problem_id"]]: row["text"] for row in decisions}
    assert len(logged) == 200
    agreeing = sum(ours[prompt] == text for prompt, text in logged.items())
    assert agreeing >= 195, "merged and unmerged adapters may differ by rounding on a rare item"


def test_code_demo_runs_programs_in_a_sandbox(readme_run: Path) -> None:
    """Its problems' records lack the tests; the page shows the public ones."""
    run = readme_run / "runs" / "demo-code"
    problems = read_rows(run / "pool/problems.parquet")
    assert not [row for row in problems if "tests" in json.loads(row["document"])]
    _, texts = unpack_page(run / "report/explorer.html")
    assert all("4 hidden ones" in item["gold"] for item in texts)
    results = read_results(run)
    source = results["episodes"][0]
    assert source["ended_at_attempt_2"] > 0
    assert source["passed_public_tests_alone"] > 0
    (executions,) = results["executions"]
    assert (executions["times"], executions["verdicts_differ"]) == (3, 0)
    tier = find_row(results["facts"], setting="judged_by.audit.sandbox_tier")["value"]
    assert tier in ("namespaces", "landlock")
