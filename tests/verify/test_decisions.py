"""Verification of decisions: the audit's problems, the arm's adapter, the verifier's verdicts."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.rejudge.choice import Rule
from gapft_harness.rejudge.judge import open_judge
from gapft_harness.stages.verify.run import verify
from tests.kit.tampering import (
    ARM,
    change_manifest,
    change_rows,
    find_differences,
    read_rows,
    seal_again,
    write_rows,
)

pytestmark = pytest.mark.xdist_group("verify")


def relabel_failed_decision(run: Path, status: str = "pass") -> str:
    """Change a failed decision's status; update the counts of the table and the manifest.

    Returns:
        The problem's id.
    """
    relative = f"decisions/{ARM}.parquet"
    rows = read_rows(run / relative)
    row = next(row for row in rows if row["status"] == "fail")
    row["status"] = status
    counts = dict(sorted(Counter(row["status"] for row in rows).items()))
    write_rows(run / relative, rows, verdicts=counts)
    change_manifest(run, lambda m: m["verdict_counts"].update({ARM: counts}))
    seal_again(run, relative)
    return str(row["problem_id"])


def test_detects_changed_verdict(workspace: Path, run: Path) -> None:
    changed = relabel_failed_decision(run)
    assert find_differences(workspace, run) == [
        f"decisions/{ARM}.parquet: problem {changed}, index -1 has the verdict pass, judged again "
        "it is fail"
    ]


def test_reports_timeout_without_difference(workspace: Path, run: Path) -> None:
    """Timeouts depend on the speed of the machine."""
    late = relabel_failed_decision(run, "timeout")
    report = verify(run, [str(workspace / "plugin.py")])
    assert report.differences == []
    [remark] = [line for line in report.checked if "differ by a timeout" in line]
    assert remark.startswith("of these, 1 differ by a timeout")
    assert f"problem {late}, index -1 has the verdict timeout, judged again it is fail" in remark


def test_skips_verdicts_without_rejudging(workspace: Path, run: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    registered = 'register("contains", Contains'
    text = (workspace / "plugin.py").read_text()
    plugin.write_text(text.replace(registered, f"{registered}, rejudge=False"))
    # the plugin was edited
    change_manifest(run, lambda manifest: manifest["rests_on"]["plugins"].clear())
    relabel_failed_decision(run)
    report = verify(run, [str(plugin)])
    assert report.differences == []
    assert "the verdicts of contains were not judged again (rejudge=False)" in report.checked
    (rules_line,) = [line for line in report.checked if line.startswith("rules of these verdicts ")]
    assert rules_line.endswith(": none recorded")
    assert not any(line.endswith("were judged again") for line in report.checked)


def test_summarizes_many_differing_verdicts(workspace: Path, run: Path) -> None:
    def invert_verdicts(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            row["status"] = "pass" if row["status"] == "fail" else "fail"

    change_rows(run, f"decisions/{ARM}.parquet", invert_verdicts)
    differences = find_differences(workspace, run)
    assert sum("judged again it is" in line for line in differences) == 20
    assert (
        f"decisions/{ARM}.parquet: 20 further verdicts or answers differ when judged again"
        in differences
    )
    assert any(line.startswith(f"manifest.json, {ARM}, verdicts: ") for line in differences)


def test_detects_changed_verdict_counts(workspace: Path, run: Path) -> None:
    change_manifest(run, lambda manifest: manifest["verdict_counts"]["audit"].update({"pass": 1}))
    (difference,) = find_differences(workspace, run)
    assert difference.startswith("manifest.json, audit, verdicts: pass is 1, recomputed: ")


@pytest.mark.parametrize("change", ["dropped", "doubled", "of the pool"])
def test_detects_decisions_of_different_problems(workspace: Path, run: Path, change: str) -> None:
    relative = f"decisions/{ARM}.parquet"

    def change_problems(rows: list[dict[str, Any]]) -> None:
        if change == "dropped":
            rows.pop()
        elif change == "doubled":
            rows.append(rows[-1])
        else:
            rows[-1]["problem_id"] = "pool1-000000000000"

    change_rows(run, relative, change_problems)
    text = "\n".join(find_differences(workspace, run))
    expected = (
        f"{relative}: problem "
        if change == "doubled"
        else f"{relative}: has other problems than audit/problems.parquet"
    )
    assert expected in text


def test_detects_decisions_of_different_arm(workspace: Path, run: Path) -> None:
    relative = f"decisions/{ARM}.parquet"
    shutil.copy(run / "decisions/uniform-seed13.parquet", run / relative)
    seal_again(run, relative)
    text = "\n".join(find_differences(workspace, run))
    assert f"{relative}: was decoded with the adapter of uniform-seed13" in text


def test_detects_decisions_without_recorded_adapter(workspace: Path, run: Path) -> None:
    relative = f"decisions/{ARM}.parquet"
    write_rows(run / relative, read_rows(run / relative), adapter=None)
    seal_again(run, relative)
    (difference,) = find_differences(workspace, run)
    assert difference == f"{relative}: does not record its adapter, but other tables do"


def test_detects_decisions_without_adapter_folder(workspace: Path, run: Path) -> None:
    shutil.rmtree(run / f"adapters/{ARM}")
    change_manifest(run, lambda manifest: manifest["files"].pop(f"adapters/{ARM}"))
    assert find_differences(workspace, run) == [
        f"decisions/{ARM}.parquet: exists, but adapters/{ARM} does not"
    ]


def test_reports_progress_of_judging(workspace: Path, run: Path) -> None:
    counts: list[tuple[str, int, int]] = []
    report = verify(run, [str(workspace / "plugin.py")], lambda *count: counts.append(count))
    (summary,) = [line for line in report.checked if line.endswith("were judged again")]
    assert [count for _, count, _ in counts] == sorted(count for _, count, _ in counts)
    assert counts[-1] == ("verdicts", int(summary.split()[0]), 0)
    rejudge_counts: list[int] = []
    rule = Rule("contains", {})
    with open_judge(rule, [str(workspace / "plugin.py")]) as judge:
        judge.progress = lambda _, count, __: rejudge_counts.append(count)
        for texts in (["a"] * 3, ["b"]):
            judge.judge(texts, ["a"] * len(texts))
    assert rejudge_counts == [3, 4]
