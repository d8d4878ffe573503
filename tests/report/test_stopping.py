"""The report on a search that stopped early."""

from pathlib import Path

from gapft_harness.report import write_report
from tests.report import planted

DRAWN = {"pool": {"samples": 1130, "tokens": 22_600}, "audit": {"samples": 232, "tokens": 4640}}


def write_stopped_report(tmp_path: Path):
    search = {"k": 8, "seed": 0, "stop": "first_pass", "round": 1}
    inputs = planted.build_inputs(
        conditions=("gapft",),
        sizes=(12, 9, 8),
        recipe=planted.build_recipe(conditions=["gapft"], search=search),
        drawn=DRAWN,
    )
    return write_report(inputs, tmp_path / "report")


def test_reports_drawn_samples_beside_full_search(tmp_path):
    content = write_stopped_report(tmp_path)
    assert content["pool"]["drawn"] == {"samples": 1130, "tokens": 22_600, "full_search": 3200}
    text = (tmp_path / "report" / "report.md").read_text("utf-8")
    assert "| pool | 1,130 | 3,200 | 35.3% | 22,600 | 56.5 |" in text
    assert "| audit | 232 | 232 | 100.0% | 4,640 | 160.0 |" in text


def test_audit_pass_at_k_equals_full_search(tmp_path):
    full = write_report(
        planted.build_inputs(conditions=("gapft",), sizes=(12, 9, 8)), tmp_path / "full" / "report"
    )
    assert write_stopped_report(tmp_path)["source"] == full["source"]
    assert "drawn" not in full["pool"]
    assert "stopped early" not in (tmp_path / "full/report/report.md").read_text("utf-8")


def test_uncounted_tokens_are_shown_as_dash(tmp_path):
    inputs = planted.build_inputs(
        conditions=("gapft",),
        sizes=(12, 9, 8),
        recipe=planted.build_recipe(
            conditions=["gapft"], search={"k": 8, "seed": 0, "stop": "first_pass"}
        ),
        drawn={split: {**drawn, "tokens": 0} for split, drawn in DRAWN.items()},
    )
    write_report(inputs, tmp_path / "report")
    assert "| pool | 1,130 | 3,200 | 35.3% | – | – |" in (
        tmp_path / "report" / "report.md"
    ).read_text("utf-8")
