"""README's commands work as written, and the demo's report has every arm."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gapft_harness.cli.main import app
from gapft_harness.core.errors import GapftError
from tests.end_to_end.readme import read_blocks
from tests.kit.command import gapft, lm_eval, succeed
from tests.kit.report_tables import read_results

ROOT = Path(__file__).parents[2]
CONDITIONS = ["gapft", "uniform", "replay", "all_verified"]
#: The run of the plugin page adds a plugin's condition.
ALL, PLUGIN = [*CONDITIONS, "most_reachable"], "most_reachable.py"


@pytest.fixture(scope="module")
def whole_run(demo_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of README's run after the command with four conditions; a fifth is trained.

    The fifth needs its plugin in each command that might make it again.
    """
    runs = tmp_path_factory.mktemp("demo") / "runs"
    shutil.copytree(demo_run.parent, runs)
    command, plugin = ("run", "demo", "--run-dir", runs / "demo"), demo_run.parents[1] / PLUGIN
    assert f"give --plugin {plugin}" in gapft(*command).stderr.replace("\n", "")
    succeed(*command, "--plugin", plugin)
    return runs / "demo"


@pytest.fixture(scope="module")
def all_conditions(whole_run: Path) -> dict[str, Any]:
    """The report of the four conditions."""
    return read_results(whole_run)


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


def test_report_has_every_arm(all_conditions: dict[str, Any]) -> None:
    seeds = [(row["condition"], row["seed"]) for row in all_conditions["seeds"]]
    assert seeds == [(name, seed) for name in ALL for seed in (13, 21, 73)]
    assert all_conditions["run"][0]["problems"] == 1000
    assert sum(r["problems"] for r in all_conditions["states"] if r["split"] == "pool") == 400


def test_partial_report_does_not_shrink_the_next(whole_run: Path) -> None:
    for options, expected in ((("--condition", "gapft", "--seed", "13"), ["gapft"]), ((), ALL)):
        succeed("run", whole_run, "--only", "report", *options)
        rows = read_results(whole_run)["conditions"]
        assert [row["condition"] for row in rows] == ["source", *expected]


def test_adapters_load_in_stock_lm_eval(demo_run: Path, tmp_path: Path) -> None:
    """An adapter of the run gives the audit's decisions through lm_eval's own ``peft=``."""
    import pyarrow.parquet as pq

    policy = succeed("list", "demo", "--path").stdout.strip()
    adapter = demo_run / "adapters" / "gapft-seed13"
    done = lm_eval(
        "--model", "hf", "--tasks", "gapft_demo", "--limit", 40, "--batch_size", 40,
        "--model_args", f"pretrained={policy},peft={adapter},dtype=float32", "--device", "cpu",
        "--output_path", tmp_path, "--log_samples",
    )  # fmt: skip
    assert "pass@1" in done.stdout
    samples = next(tmp_path.rglob("samples_gapft_demo_*.jsonl"))
    logged = {}
    for line in samples.read_text().splitlines():
        record = json.loads(line)
        logged[record["doc"]["question"]] = record["filtered_resps"][0]
    problems = pq.read_table(demo_run / "audit/problems.parquet").to_pylist()
    prompts = {p["problem_id"]: p["prompt"] for p in problems}
    decisions = pq.read_table(demo_run / "decisions/gapft-seed13.parquet").to_pylist()
    ours = {prompts[d["problem_id"]]: d["text"] for d in decisions}
    assert len(logged) == 40
    agreeing = sum(ours[prompt] == text for prompt, text in logged.items())
    assert agreeing >= 39, "merged and unmerged adapters may differ by rounding on a rare item"
