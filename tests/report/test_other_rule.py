"""The verifier audit: the audit judged by a second rule, against counts by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.report import document
from gapft_harness.report.findings import computation
from gapft_harness.report.reading.columns import PASS, codes
from gapft_harness.report.rendering.markdown import render_markdown
from gapft_harness.report.results import build_results
from gapft_harness.stages.report import judge_by_other_rule
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


def build_results_with_rule(inputs, plugins=None):
    with_rule = replace(inputs, other_rule=judge_by_other_rule(inputs, plugins or load_plugins()))
    return with_rule, build_results(with_rule, computation.compute_findings(with_rule))


def test_separates_format_drift_from_accuracy(inputs):
    """Three of four answers are right before and after; only their format differs."""
    read, content = build_results_with_rule(inputs)
    assert content["verifier_audit"] == {
        "verifier": "option_letter",
        "params": {"rule": "permissive"},
        "permissive": True,
        "source": {
            "run_rule": 0.25, "other_rule": 0.75, "only_run_rule": 0, "only_other_rule": 2,
            "unjudged": 0, "drift": 0.0, "invalid": 2, "invalid_opening_right": 2,
        },
        "conditions": {
            "gapft": {
                "run_rule": 5 / 8, "other_rule": 6 / 8, "only_run_rule": 0, "only_other_rule": 1,
                "unjudged": 0, "drift": 1 / 8 - 2 / 4, "invalid": 2, "invalid_opening_right": 1,
            }
        },
        "contrasts": content["verifier_audit"]["contrasts"],
    }  # fmt: skip
    (contrast,) = content["verifier_audit"]["contrasts"]
    assert (contrast["a"], contrast["b"]) == ("gapft", "source")
    assert (contrast["run_rule"], contrast["other_rule"]) == (3 / 8, 0)
    low, high = contrast["other_rule_ci95"]
    assert low <= 0 <= high
    page = render_markdown(
        "", "", document.build_sections(read, computation.compute_findings(read))
    )
    assert "| source, greedy | 25.0% | 75.0% | 0 | 2 | 50.0% |" in page
    assert "| GapFT | 62.5% | 75.0% | 0 | 1 | 12.5% | −37.5 |" in page


def test_equal_verdicts_give_equal_contrasts(inputs):
    """A rule with equal verdicts gives the report's own intervals, from the same replicates."""
    read, _ = build_results_with_rule(inputs)
    arms = {arm.arm.name: arm.deployed.statuses for arm in read.arms}
    same = replace(read.other_rule, source=read.audit.deployed.statuses, arms=arms)
    content = build_results(replace(read, other_rule=same), computation.compute_findings(read))
    (own,), (other,) = content["contrasts"], content["verifier_audit"]["contrasts"]
    assert (other["other_rule"], other["other_rule_ci95"]) == (own["delta"], own["ci95"])


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B. two is meant", "B"), ("(C), since", "C"), ("A\nbecause", "A"), ("B two", "B"),
        ("B - two", "B"), ("C", "C"), ("A man walks in", None), ("The answer is B", None),
        ("", None),
    ],
)  # fmt: skip
def test_reads_opening_letter(text, letter):
    verifier = load_plugins().create_verifier("option_letter", {"rule": "whole_response"})
    assert verifier.opening(text, json.loads(GOLD)) == letter


def test_falls_back_to_stricter_rule(inputs):
    task = {**inputs.task, "verifier_params": {"rule": "first_explicit"}}
    audit = planted.replace_decodes(inputs.audit, statuses=build_status_codes((1, 1, 1, 0)))
    explicit = replace(inputs, task=task, audit=audit)
    _, content = build_results_with_rule(explicit)
    audit = content["verifier_audit"]
    assert (audit["permissive"], audit["params"]) == (False, {"rule": "whole_response"})
    assert (audit["source"]["run_rule"], audit["source"]["other_rule"]) == (0.75, 0.25)
    assert audit["source"]["only_run_rule"] == 2


@pytest.mark.parametrize(
    ("verifier", "plugins"),
    [("program_tests", None), ("contains", None), ("option_letter", Plugins([]))],
)
def test_reports_why_no_other_rule_exists(inputs, verifier, plugins):
    task = {**inputs.task, "verifier": verifier}
    read, content = build_results_with_rule(replace(inputs, task=task), plugins)
    assert verifier in content["verifier_audit"]["none"]
    assert content["verifier_audit"]["none"] in render_markdown(
        "", "", document.build_sections(read, computation.compute_findings(read))
    )


def test_math_agrees_with_boxed_math():
    inputs = planted.build_inputs(conditions=("gapft",), seeds=(13,), sizes=(3, 2, 2))
    rule = judge_by_other_rule(inputs, load_plugins())
    assert (rule.name, rule.permissive) == ("math", True)
    assert ((rule.source == PASS) == inputs.audit.deployed.passed).all()


def test_excludes_and_counts_unjudged_responses(inputs):
    """A timeout is not an answer format."""
    rule = judge_by_other_rule(inputs, load_plugins())
    late = {name: codes_of_arm.copy() for name, codes_of_arm in rule.arms.items()}
    for codes_of_arm in late.values():
        codes_of_arm[0] = codes(["timeout"])[0]
    read = replace(inputs, other_rule=replace(rule, arms=late))
    audit = build_results(read, computation.compute_findings(read))["verifier_audit"]
    gapft = audit["conditions"]["gapft"]
    assert (gapft["unjudged"], audit["source"]["unjudged"]) == (2, 0)
    assert (gapft["run_rule"], gapft["other_rule"]) == (3 / 6, 4 / 6)
    assert (gapft["only_run_rule"], gapft["only_other_rule"]) == (0, 1)
    lost = {name: codes(["error"] * 4) for name in rule.arms}
    read = replace(inputs, other_rule=replace(rule, arms=lost))
    audit = build_results(read, computation.compute_findings(read))["verifier_audit"]
    assert "none" in audit
