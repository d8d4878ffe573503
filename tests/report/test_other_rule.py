"""The audit judged by a second rule, against counts by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.report.document import build_page
from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.reading.columns import codes
from gapft_harness.stages.report import judge_by_other_verifier
from tests.kit.report_tables import build_results
from tests.report import planted

#: Responses to four problems with the answer B, and whether ``whole_response`` passes each.
SOURCE = ("B", "B. two", "(B) two", "C"), (1, 0, 0, 0)
ARMS = {
    13: (("B", "B", "(B)", "C"), (1, 1, 1, 0)),
    21: (("B", "B", "B. two", "C. three"), (1, 1, 0, 0)),
}
GOLD = '{"answer": "B", "options": ["one", "two", "three"]}'


def build_status_codes(passed):
    return codes(["pass" if is_pass else "fail" for is_pass in passed])


@pytest.fixture
def inputs():
    base = planted.build_inputs(conditions=("gapft",), seeds=(13, 21), sizes=(1, 2, 1))
    audit = replace(base.audit, golds=(GOLD,) * 4)
    audit = planted.replace_decodes(audit, texts=SOURCE[0], statuses=build_status_codes(SOURCE[1]))
    arms = tuple(
        planted.replace_decodes(arm, texts=texts, statuses=build_status_codes(passed))
        for arm in base.arms
        for texts, passed in [ARMS[arm.arm.seed]]
    )
    task = {**base.task, "verifier": "option_letter", "verifier_params": {}}
    return replace(base, audit=audit, arms=arms, task=task)


def judge_again(inputs, plugins=None):
    """Return the inputs with the verdicts of the other rule."""
    return replace(inputs, other_rule=judge_by_other_verifier(inputs, plugins or load_plugins()))


def test_separates_format_drift_from_accuracy(inputs):
    """Three of four answers are right before and after; only their format differs."""
    results = build_results(judge_again(inputs))
    source, gapft = results["other_rule"]
    expected = {
        "model": "source", "run_rule": 0.25, "other_rule": 0.75, "only_run_rule": 0,
        "only_other_rule": 2, "unjudged": 0, "disagreement": 0.5, "drift": 0.0, "invalid": 2,
        "invalid_share": 0.5, "invalid_opening_right": 2,
    }  # fmt: skip
    assert source == {"label": "source, greedy", **expected}
    assert gapft == {
        "label": "GapFT", "model": "gapft", "run_rule": 5 / 8, "other_rule": 6 / 8,
        "only_run_rule": 0, "only_other_rule": 1, "unjudged": 0, "disagreement": 1 / 8,
        "drift": 1 / 8 - 2 / 4, "invalid": 2, "invalid_share": 2 / 8, "invalid_opening_right": 1,
    }  # fmt: skip
    (contrast,) = results["other_rule_contrasts"]
    assert (contrast["a"], contrast["b"]) == ("gapft", "source")
    assert (contrast["run_rule"], contrast["other_rule"]) == (3 / 8, 0)
    assert contrast["other_rule_low"] <= 0 <= contrast["other_rule_high"]


def test_equal_verdicts_give_equal_contrasts(inputs):
    """A rule with equal verdicts gives the report's own intervals, from the same replicates."""
    read = judge_again(inputs)
    statuses = {arm.arm.name: arm.deployed.statuses for arm in read.arms}
    statuses["source"] = read.audit.deployed.statuses
    same = replace(read, other_rule=replace(read.other_rule, statuses=statuses))
    (contrast,) = build_results(same)["other_rule_contrasts"]
    for end in ("", "_low", "_high"):
        assert contrast[f"other_rule{end}"] == contrast[f"run_rule{end}"]


def test_falls_back_to_stricter_rule(inputs):
    task = {**inputs.task, "verifier_params": {"rule": "first_explicit"}}
    audit = planted.replace_decodes(inputs.audit, statuses=build_status_codes((1, 1, 1, 0)))
    explicit = judge_again(replace(inputs, task=task, audit=audit))
    rule = explicit.other_rule
    assert (rule.permissive, rule.params) == (False, {"rule": "whole_response"})
    source = build_results(explicit)["other_rule"][0]
    assert (source["run_rule"], source["other_rule"], source["only_run_rule"]) == (0.75, 0.25, 2)


@pytest.mark.parametrize("shown", [True, False])
def test_shows_openings_where_the_verifier_reads_them(inputs, shown):
    read = judge_again(inputs)
    read = replace(read, other_rule=replace(read.other_rule, reads_openings=shown))
    page = build_page(read, compute_findings(read))
    (table,) = (t for part in page.sections for t in part.tables if t.name == "other_rule")
    titles = [column.title for column in table.titled]
    assert ("invalid" in titles, "opens right" in titles) == (True, shown)
    assert ("Opens right" in table.note) == shown
    assert "invalid_opening_right" in page.list_results()["other_rule"][0]


@pytest.mark.parametrize(
    ("verifier", "plugins"),
    [("program_tests", None), ("contains", None), ("option_letter", Plugins([]))],
)
def test_reports_why_no_other_rule_exists(inputs, verifier, plugins):
    read = judge_again(replace(inputs, task={**inputs.task, "verifier": verifier}), plugins)
    page = build_page(read, compute_findings(read))
    assert "other_rule" not in page.list_results()
    (section,) = (section for section in page.sections if "another rule" in section.title)
    assert verifier in section.text[0]


def test_excludes_and_counts_unjudged_responses(inputs):
    """A timeout is not an answer format."""
    rule = judge_by_other_verifier(inputs, load_plugins())
    late = {name: statuses.copy() for name, statuses in rule.statuses.items()}
    for name in late.keys() - {"source"}:
        late[name][0] = codes(["timeout"])[0]
    source, gapft = build_results(replace(inputs, other_rule=replace(rule, statuses=late)))[
        "other_rule"
    ]
    assert (gapft["unjudged"], source["unjudged"]) == (2, 0)
    assert (gapft["run_rule"], gapft["other_rule"]) == (3 / 6, 4 / 6)
    assert (gapft["only_run_rule"], gapft["only_other_rule"]) == (0, 1)
    lost = {name: codes(["error"] * 4) for name in rule.statuses}
    results = build_results(replace(inputs, other_rule=replace(rule, statuses=lost)))
    assert "other_rule" not in results
