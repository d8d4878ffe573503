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
from tests.kit.command import lm_eval, succeed

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
