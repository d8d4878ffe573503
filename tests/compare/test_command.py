"""The command ``gapft compare``: real logs of lm_eval, and the exit status."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from rich.console import Console
from scipy import stats

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.compare.document import build_sections
from gapft_harness.report.rendering.terminal import print_sections
from tests.compare.command import read_refusal, run_compare
from tests.compare.logs import row, write_log
from tests.presentation.exploring import unpack_page


def read_rows(folder: Path, task: str) -> dict[str, dict[str, object]]:
    (log,) = folder.rglob(f"samples_{task}_2*.jsonl")
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    return {json.dumps(row["doc"]): row for row in rows}


def test_compares_real_lm_eval_logs(logs: Path, tmp_path: Path) -> None:
    (samples,) = (logs / "before").rglob("samples_gapft_demo_passk_2*.jsonl")
    done = run_compare(
        logs / "before", f"hot={logs / 'after'}", "--task", "gapft_demo", "--source-samples",
        samples, "--out", tmp_path / "out",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    before, after = (read_rows(logs / side, "gapft_demo") for side in ("before", "after"))
    drawn = read_rows(logs / "before", "gapft_demo_passk")
    assert (results["n"], results["metric"], [*results["tasks"]]) == (16, "pass@1", ["gapft_demo"])
    hot = results["models"]["hot"]
    gained = [d for d in before if before[d]["pass@1"] < after[d]["pass@1"]]  # type: ignore[operator]
    lost = [d for d in before if before[d]["pass@1"] > after[d]["pass@1"]]  # type: ignore[operator]
    assert lost, "nothing changed, so the test would be empty"
    assert (hot["gained"], hot["lost"]) == (len(gained), len(lost))
    changed = len(gained) + len(lost)
    assert hot["p"] == pytest.approx(stats.binomtest(len(gained), changed).pvalue)
    right = {d for d in before if before[d]["pass@1"] == 1}
    reached = {d for d in drawn if any(v["status"] == "pass" for v in drawn[d]["verdicts"])}  # type: ignore[attr-defined]
    assert results["source_samples"]["k"] == 8
    assert results["source_samples"]["states"] == {
        "G": len(right), "S": len(reached - right), "U": 16 - len(right | reached),
    }  # fmt: skip
    assert sum(hot["decomposition"]["terms"].values()) == pytest.approx(hot["difference"])
    assert hot["decomposition"]["rho_G"] == pytest.approx(
        sum(after[d]["pass@1"] == 0 for d in right) / len(right)
    )
    assert not any("versions" in note for note in results["notes"])  # the results files exist

    items = list(csv.DictReader((tmp_path / "out" / "items.csv").open()))
    assert len(items) == changed
    for item in items:
        (document,) = [d for d in before if str(before[d]["doc_id"]) == item["doc_id"]]
        assert document in (gained if item["change"] == "gained" else lost)
        assert item["before"] == before[document]["resps"][0][0]  # type: ignore[index]
        assert item["after"] == after[document]["resps"][0][0]  # type: ignore[index]
        assert item["gold"] == before[document]["target"]
    (line,) = csv.DictReader((tmp_path / "out" / "comparison.csv").open())
    assert float(line["difference"]) == hot["difference"]
    page = (tmp_path / "out" / "comparison.md").read_text()
    assert "| hot |" in page
    assert "κ_S" in page
    index, texts = unpack_page(tmp_path / "out" / "explorer.html")
    assert len(texts) == 16
    for problem, item in zip(index["problems"], texts, strict=True):
        (document,) = [d for d in before if str(before[d]["doc_id"]) == problem["id"]]
        passed = [rows[document]["pass@1"] for rows in (before, after)]
        assert problem["verdicts"] == ["right" if value else "wrong" for value in passed]
        assert problem["changes"] == [0, passed[1] - passed[0]]  # type: ignore[operator]
        assert problem["facts"]["samples"].endswith("/8")
        assert [item["gold"], *(response["text"] for response in item["responses"])] == [
            before[document]["target"], *(rows[document]["resps"][0][0] for rows in (before, after))  # type: ignore[index]
        ]  # fmt: skip
    assert "K_eq" in done.output


def test_multiple_choice_logs_are_equal(logs: Path) -> None:
    """Both runs agree in each document, because scoring options involves no sampling."""
    done = run_compare(
        logs / "before", logs / "after", "--task", "two_options", "--fail-if-worse", 0.2
    )
    assert done.exit_code == 0, done.output
    words = " ".join(done.output.split())
    assert "two_options: 12 documents, acc;" in words
    assert "using metric acc, the first in the log; others: acc_norm (--metric)" in words
    assert "0.0 [−18.7, +18.7]† 1.000 0 0" in words


def test_gate_fails_below_margin(tmp_path: Path) -> None:
    before = write_log(tmp_path / "before", [1] * 200)
    after = write_log(tmp_path / "after", [0] * 20 + [1] * 180)
    comparison = compare(str(before), [str(after)], CompareChoice())
    (model,) = comparison.findings.models.values()
    high = model.estimate.high
    assert -0.1 < high < -0.04
    for margin, status in ((0.0, 1), (0.01, 1), (-high - 1e-9, 1), (-high + 1e-9, 3), (0.2, 0)):
        done = run_compare(before, after, "--fail-if-worse", margin)
        assert done.exit_code == status, (margin, done.output)
    assert run_compare(after, before, "--fail-if-worse", 0.01).exit_code == 0  # better
    assert (
        run_compare(before, after, after.parent, "--fail-if-worse", 0.01).exit_code == 1
    )  # one worse model suffices


HOSTILE = "\x1b[2J\x1b]0;owned\x07 [red]x[/] <script>alert(1)</script> \u202eevil | `a` \ud800"


def test_escapes_hostile_responses(tmp_path: Path) -> None:
    bad = {"resps": [[HOSTILE]], "target": HOSTILE, "doc": {"question": HOSTILE, "subject": "[b]|"}}
    before = write_log(tmp_path / "before", rows=[row(0, 0, **bad)])
    after = write_log(tmp_path / "after", rows=[row(0, 1, **bad)])
    done = run_compare(before, after, "--by", "subject", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "out" / "comparison.md").read_text()
    for text in (done.output, page):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "[red]x[/]" in done.output
    assert "[b]|" in done.output
    assert "| [b]\\| |" in page
    (item,) = csv.DictReader((tmp_path / "out" / "items.csv").open(newline=""))
    assert item["before"] == HOSTILE.replace("\ud800", "\ufffd")


def test_narrow_terminal_keeps_numbers(tmp_path: Path) -> None:
    before, after = write_log(tmp_path / "a", [0] * 50), write_log(tmp_path / "b", [1] * 50)
    comparison = compare(str(before), [f"{'long' * 20}={after}"], CompareChoice())
    console = Console(width=30, record=True)
    print_sections(build_sections(comparison), console)
    assert "[+89.9, +100.0]" in console.export_text()
    assert console.width == 30


def test_table_fits_terminal_width(
    tmp_path: Path,
) -> None:
    before = write_log(tmp_path / "before", [0, 1] * 500)
    models = [f"{name}={write_log(tmp_path / name, [1] * 1000)}" for name in ("gapft", "uniform")]
    comparison = compare(str(before), models, CompareChoice())
    for width in (80, 120):
        console = Console(width=width, record=True)
        print_sections(build_sections(comparison), console)
        text = console.export_text()
        assert max(map(len, text.splitlines())) <= width
        assert "[+46.9, +53.0]" in text
        assert ("difference (points)" in text) == (width == 120)


def test_writes_nothing_without_out(tmp_path: Path) -> None:
    before, after = write_log(tmp_path / "a", [0, 1]), write_log(tmp_path / "b", [1])
    files = sorted(tmp_path.rglob("*"))
    assert run_compare(before, before).exit_code == 0
    read_refusal(before, after, "--out", tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == files
