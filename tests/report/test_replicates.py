"""The report's section on repeated trainings, with planted differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.results import build_results
from gapft_harness.report.tables import build_tables
from tests.report.planted import build_inputs, build_replicate_inputs


def test_counts_decisions_in_both_directions() -> None:
    inputs = build_replicate_inputs()
    findings = compute_findings(inputs)
    (replicate,) = build_results(inputs, findings)["replicates"]
    assert (replicate["condition"], replicate["original"]) == ("uniform", "gapft")
    first, second = (
        np.array([trained.deployed.passed for trained in inputs.find_arms(name)])
        for name in ("gapft", "uniform")
    )
    assert replicate["n"] == first.size
    assert replicate["lost"] == int((first & ~second).sum()) > 0
    assert replicate["gained"] == int((second & ~first).sum()) > 0
    assert replicate["changed"] == replicate["lost"] + replicate["gained"]
    assert replicate["delta"] == pytest.approx(second.mean() - first.mean())
    for row, (first_seed, second_seed) in enumerate(zip(first, second, strict=True)):
        seed_results = replicate["seeds"][row]
        assert seed_results["seed"] == inputs.seeds[row]
        assert seed_results["changed"] == int((first_seed != second_seed).sum())


def test_difference_has_interval_of_contrast() -> None:
    inputs = build_replicate_inputs()
    results = build_results(inputs, compute_findings(inputs))
    (replicate,) = results["replicates"]
    (contrast,) = [
        entry for entry in results["contrasts"] if (entry["a"], entry["b"]) == ("gapft", "uniform")
    ]
    low, high = contrast["ci95"]
    assert replicate["ci95"] == [-high, -low]
    assert replicate["delta"] == -contrast["delta"]
    assert low < high


def test_run_without_replicates_has_no_section_or_table() -> None:
    inputs = build_inputs()
    findings = compute_findings(inputs)
    assert "replicates" not in build_results(inputs, findings)
    assert "replicates.csv" not in [name for name, _ in build_tables(inputs, findings)]


def test_replicate_alone_has_no_comparison() -> None:
    inputs = build_replicate_inputs()
    recipe = {**inputs.recipe, "conditions": {"uniform": {"selector": "gapft", "replicate": 1}}}
    alone = replace(
        inputs, recipe=recipe, conditions=("uniform",), arms=inputs.find_arms("uniform")
    )
    assert compute_findings(alone).replicates == ()
