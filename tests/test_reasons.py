"""Reasons why responses fail, shown in the terminal and in the report when nothing passes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kit.command import succeed
from tests.kit.plugins import write_plugin

HOSTILE = '''

class Never:
    """Passes nothing; every fourth response it does not judge."""

    def verify(self, responses, golds):
        return [
            Verdict("timeout", "no result within 5 s") if i % 4 == 0
            else Verdict("fail", "\\x1b[2J[bold]no box[/] <script>alert(1)</script> in 7 lines")
            for i, _ in enumerate(responses)
        ]
'''


def test_run_reports_why_nothing_is_solved(tmp_path: Path) -> None:
    """The report shows reasons, counts and a few responses, all escaped."""
    write_plugin(tmp_path / "never.py", HOSTILE, verifiers=['"never", Never'])
    done = succeed(
        "run", "--task", "gapft_demo", "--model", "dummy", "--model-args",
        "pretrained=bundled:demo", "--limit", 6, "--set", "search.k=3", "--set",
        "verifier={name: never}", "--plugin", "never.py", "--run-dir", "r", cwd=tmp_path,
    )  # fmt: skip
    results = json.loads((tmp_path / "r/report/results.json").read_text())
    for where in ("pool", "audit"):
        reasons = [row for row in results["failures"] if row["where"] == where]
        assert {row["status"] for row in reasons} == {"fail", "timeout"}
        assert sum(row["responses"] for row in reasons) == 6 * 4
        assert [row["where"] for row in results["failed_responses"]].count(where) == 3
    assert "pool: none of 24 responses passed" in done.stdout
    assert "no box[/] <script>alert(…)</script> in … lines" in done.stdout
    assert "warning: pool: none of 24 responses passed" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    page = (tmp_path / "r/report/index.html").read_text("utf-8")
    markdown = (tmp_path / "r/report/index.md").read_text("utf-8")
    assert "Why so little passes" in page
    assert "## Why so little passes" in markdown
    assert "<script" not in page
    assert "\x1b" not in page + markdown
