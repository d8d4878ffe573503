"""``gapft gap`` on the command line: the page's task, limits, a real model."""

from __future__ import annotations

import json
import re
from pathlib import Path

from gapft_harness.lm_eval_bridge.task_file.code_files import tasks_path
from tests.canned_model import evaluate
from tests.gap.stock import CHOICE, run_gap, write_stock
from tests.kit.command import ROOT, call, succeed
from tests.kit.planted_run import read_json
from tests.kit.report_tables import find_row


def test_measures_the_pages_copy_of_a_multiple_choice_task(tmp_path: Path) -> None:
    tasks, page = write_stock(tmp_path), (ROOT / "docs/gap.md").read_text()
    (copy,) = re.findall(r"```yaml\n(include: my_choices\.yaml\n.*?)```", page, re.DOTALL)
    (tasks / "my_choices.yaml").write_text(CHOICE)
    (tasks / "copy.yaml").write_text(copy)
    texts = (tmp_path / "gsm8k.json").read_text()
    (tmp_path / "my_choices_generated.json").write_text(texts)
    done = run_gap(tmp_path, "my_choices_generated", "--limit", "3")
    assert done.exit_code == 0, (done.output, done.exception)
    (search,) = read_json(tmp_path / "my_choices_generated/gap/results.json")["search"]
    assert (search["problems"], search["filter"]) == (3, "letter")


def test_limit_selects_same_documents_as_lm_eval(tmp_path: Path) -> None:
    """lm_eval's dummy model needs no ``pretrained``."""
    dummy = ("--tasks", "gapft_demo", "--model", "dummy")
    done = call("gap", *dummy, "--limit", 7, "--k", 2, "--out", tmp_path / "gap")
    assert done.returncode == 0, done.stderr
    results = evaluate("dummy", ["gapft_demo"], tasks_path(), limit=7)
    expected = results["samples"]["gapft_demo"]
    (log,) = (tmp_path / "gap" / "gap" / "greedy").glob("samples_*.jsonl")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    assert sorted(row["doc_id"] for row in rows) == [row["doc_id"] for row in expected]
    by_id = {row["doc_id"]: row["doc"] for row in rows}
    assert all(by_id[row["doc_id"]] == row["doc"] for row in expected)
    done = call("gap", *dummy, "--limit", 3, "--k", 2, "--out", tmp_path / "gap")
    assert done.returncode == 0, done.stderr
    (log,) = (tmp_path / "gap" / "gap" / "greedy").glob("samples_*.jsonl")
    assert len(log.read_text().splitlines()) == 3, "settings of the first command do not stay"


def test_measures_demo_policy(tmp_path: Path) -> None:
    """Measure the demo policy in separate processes and read the terminal's table."""
    model = ("--model", "hf", "--model_args", "pretrained=bundled:demo,dtype=float32,device=cpu")
    done = succeed(
        "gap", "--tasks", "gapft_demo", *model, "--k", 4, "--limit", 24, "--set",
        "search.temperature=0.9", cwd=tmp_path,
    )  # fmt: skip
    folder = tmp_path / "gaps/gapft_demo/gap"
    results = read_json(folder / "results.json")
    (search,) = results["search"]
    settings = {row["setting"]: row["value"] for row in results["settings"]}
    assert (search["problems"], search["metric"], settings["temperature"]) == (24, "pass@1", 0.9)
    counts = {row["state"]: row["problems"] for row in results["states"]}
    assert sum(counts.values()) == 24
    greedy = find_row(results["curve"], label="greedy")["rate"]
    assert 0 < greedy < 1
    for text in (done.stdout, *((folder / page).read_text() for page in ("gap.html", "gap.md"))):
        assert f"{100 * greedy:.1f}%" in text
        assert "Pass@4" in text
    assert (folder / "figures/pass_at_k.svg").exists()
    logs = (folder / "greedy", folder / "greedy", "--source-samples", folder / "samples")
    compared = call("compare", *logs, "--out", tmp_path / "compared")
    assert compared.returncode == 0, compared.stderr
    results = json.loads((tmp_path / "compared/results.json").read_text())
    before, after = results["cut"]
    assert before["cut"] == after["cut"]
    assert {state: results["states"][0][state] for state in "GSU"} == counts
