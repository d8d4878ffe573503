"""results.json: planted rates, exact decomposition, independence of order."""

from dataclasses import replace

import numpy as np
import pytest

from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.reading.inputs import PASS, ReportInputs
from gapft_harness.report.results import build_results
from gapft_harness.report.sections.search import build_reached
from tests.report import planted


def build_content(inputs: ReportInputs):
    return build_results(inputs, compute_findings(inputs))


@pytest.fixture(scope="module")
def inputs():
    return planted.build_inputs()


@pytest.fixture(scope="module")
def results(inputs):
    return build_content(inputs)


def test_majority_is_reported_where_samples_have_answers(results, inputs):
    assert results["source"]["maj_at_k"] is None, "the planted audit has no answers"
    passed = inputs.audit.samples == PASS
    voted = replace(inputs, audit=replace(inputs.audit, answers=np.where(passed, 0, 1)))
    source = build_content(voted)["source"]
    assert list(source["maj_at_k"]) == ["8"]
    passing = passed.sum(axis=1)
    assert source["maj_at_k"]["8"] == pytest.approx(
        ((passing > 4) + 0.5 * (passing == 4)).mean()
    ), "ties are shared"
    (_, table) = build_reached(voted, compute_findings(voted))
    assert table.columns[-1] == "maj@8"
    (_, table) = build_reached(inputs, compute_findings(inputs))
    assert table.columns[-1] == "Pass@8"
    assert "maj@K is not shown, since no answer was extracted" in table.note


@pytest.mark.parametrize("seeds", [(13,), (13, 21, 73)])
def test_p_value_and_interval_agree(seeds):
    """One condition's seeds scatter: its contrasts are significant over items only."""
    inputs = planted.build_inputs(seeds=seeds)
    scattered = tuple(
        planted.build_arm(
            inputs.audit, "uniform", arm.arm.seed, flows=(0.9 if i else 0.1, 0.2, 0.02)
        )
        if arm.arm.condition == "uniform"
        else arm
        for arm in inputs.arms
        for i in [inputs.seeds.index(arm.arm.seed)]
    )
    contrasts = build_content(replace(inputs, arms=scattered))["contrasts"]
    resolved = [not c["ci95"][0] <= 0 <= c["ci95"][1] for c in contrasts]
    assert [c["test"]["p"] < 0.05 for c in contrasts] == resolved
    if len(seeds) > 1:
        assert set(resolved) == {True, False}


def test_too_few_replicates_give_no_p_value():
    inputs = planted.build_inputs(sizes=(30, 20, 10))
    few = replace(inputs, recipe={**inputs.recipe, "statistics": {"replicates": 20, "seed": 0}})
    assert {c["test"]["p"] for c in build_content(few)["contrasts"]} == {None}


def test_empty_state_has_null_rates_and_zero_terms():
    results = build_content(planted.build_inputs(sizes=(40, 0, 60)))
    for condition in results["conditions"].values():
        for seed in condition["seeds"].values():
            assert seed["kappa_S"] is None
            assert seed["terms"]["S"] == 0
    assert results["source"]["unstable"] == ["S"]


def test_first_condition_leads_without_gapft():
    results = build_content(
        planted.build_inputs(conditions=("uniform", "replay"), sizes=(30, 20, 10))
    )
    assert (results["contrasts"][0]["a"], results["contrasts"][0]["b"]) == ("uniform", "replay")


def test_condition_order_does_not_change_results():
    forward = build_content(planted.build_inputs(sizes=(30, 25, 20)))
    backward = build_content(
        planted.build_inputs(sizes=(30, 25, 20), conditions=planted.CONDITIONS[::-1])
    )
    assert backward["conditions"] == forward["conditions"]
    backward_contrasts = {(c["a"], c["b"]): c for c in backward["contrasts"]}
    for contrast in forward["contrasts"]:
        pair = (contrast["a"], contrast["b"])
        if pair in backward_contrasts:  # the lead's and the source's; others may come as b minus a
            assert backward_contrasts[pair] == contrast
    assert ("gapft", "uniform") in backward_contrasts
