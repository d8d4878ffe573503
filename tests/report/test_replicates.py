"""The report's section on repeated trainings, with planted differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gapft_harness.report.document import build_sections
from gapft_harness.report.findings.computation import Findings, compute_findings
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Text
from gapft_harness.report.results import build_results
from gapft_harness.report.tables import build_tables
from tests.report import planted

SEEDS = (13, 21, 73)


def build_inputs(same_weights: Sequence[bool] = (False,) * 3) -> ReportInputs:
    """Build a run whose condition ``uniform`` repeats the training of ``gapft``.

    Args:
        same_weights: for each seed, whether the adapters' hashes are equal.
    """
    base = planted.build_inputs(("gapft", "uniform", "replay"), SEEDS)
    conditions = {"gapft": {}, "uniform": {"selector": "gapft", "replicate": 1}, "replay": {}}
    training = {}
    for arm in (trained.arm for trained in base.arms):
        same = arm.condition == "uniform" and same_weights[SEEDS.index(arm.seed)]
        training[arm.name] = {"adapter_sha256": f"{'gapft' if same else arm.condition}{arm.seed}"}
    return replace(base, recipe={**base.recipe, "conditions": conditions}, training=training)


def copy_original_answers(inputs: ReportInputs) -> ReportInputs:
    """Return the run with the original's answers for the replicate."""
    by_seed = {trained.arm.seed: trained for trained in inputs.find_arms("gapft")}
    arms = tuple(
        replace(by_seed[trained.arm.seed], arm=trained.arm)
        if trained.arm.condition == "uniform"
        else trained
        for trained in inputs.arms
    )
    return replace(inputs, arms=arms)


def change_one_text(inputs: ReportInputs) -> ReportInputs:
    """Return the run with a different text for one response of the replicate."""
    arms = [*inputs.arms]
    place = next(i for i, trained in enumerate(arms) if trained.arm.condition == "uniform")
    texts = ("another text", *arms[place].deployed.texts[1:])
    arms[place] = planted.replace_decodes(arms[place], texts=texts)
    return replace(inputs, arms=tuple(arms))


def read_section_text(inputs: ReportInputs, findings: Findings) -> str:
    """Read the first paragraph of the section."""
    (section,) = [
        candidate
        for candidate in build_sections(inputs, findings)
        if candidate.title == "Retraining noise"
    ]
    assert isinstance(section.blocks[0], Text)
    return section.blocks[0].text


def test_counts_decisions_in_both_directions() -> None:
    inputs = build_inputs()
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
        assert seed_results["seed"] == SEEDS[row]
        assert seed_results["changed"] == int((first_seed != second_seed).sum())
    assert f"{replicate['changed']:,} of {replicate['n']:,} decisions" in read_section_text(
        inputs, findings
    )


def test_difference_has_interval_of_contrast() -> None:
    inputs = build_inputs()
    results = build_results(inputs, compute_findings(inputs))
    (replicate,) = results["replicates"]
    (contrast,) = [
        entry for entry in results["contrasts"] if (entry["a"], entry["b"]) == ("gapft", "uniform")
    ]
    low, high = contrast["ci95"]
    assert replicate["ci95"] == [-high, -low]
    assert replicate["delta"] == -contrast["delta"]
    assert low < high


@pytest.mark.parametrize(
    ("inputs", "expected", "unexpected"),
    [
        (build_inputs(), "0 of 3", "expected"),
        (build_inputs((True, False, False)), "1 of 3", "expected"),
        (copy_original_answers(build_inputs((True,) * 3)), "expected", " of 3 "),
        (change_one_text(copy_original_answers(build_inputs((True,) * 3))), "decoding", "expected"),
        (replace(build_inputs(), training={}), "not known", "expected"),
    ],
)
def test_reports_whether_training_and_decoding_repeat(
    inputs: ReportInputs, expected: str, unexpected: str
) -> None:
    text = read_section_text(inputs, compute_findings(inputs))
    assert expected in text
    assert unexpected not in text


def test_replicate_is_not_compared_with_its_original() -> None:
    inputs = build_inputs()
    findings = compute_findings(inputs)
    opening = build_sections(inputs, findings)[0].blocks[0]
    assert isinstance(opening, Text)
    assert "Against replay" in opening.text
    assert "Against uniform" not in opening.text


def test_run_without_replicates_has_no_section_or_table() -> None:
    inputs = planted.build_inputs()
    findings = compute_findings(inputs)
    assert "replicates" not in build_results(inputs, findings)
    assert "Retraining noise" not in [section.title for section in build_sections(inputs, findings)]
    assert "replicates.csv" not in [name for name, _ in build_tables(inputs, findings)]


def test_replicate_alone_has_no_comparison() -> None:
    inputs = build_inputs()
    recipe = {**inputs.recipe, "conditions": {"uniform": {"selector": "gapft", "replicate": 1}}}
    alone = replace(
        inputs, recipe=recipe, conditions=("uniform",), arms=inputs.find_arms("uniform")
    )
    assert compute_findings(alone).replicates == ()
