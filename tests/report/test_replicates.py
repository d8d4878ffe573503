"""The report's section on trainings that were repeated, with planted differences."""

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


def inputs(same_weights: Sequence[bool] = (False,) * 3) -> ReportInputs:
    """A run whose condition ``uniform`` repeats the training of ``gapft``, and changes decisions.

    Args:
        same_weights: by seed, whether the adapters' hashes are the same.
    """
    made = planted.inputs(("gapft", "uniform", "replay"), SEEDS)
    conditions = {"gapft": {}, "uniform": {"selector": "gapft", "replicate": 1}, "replay": {}}
    training = {}
    for arm in (trained.arm for trained in made.arms):
        same = arm.condition == "uniform" and same_weights[SEEDS.index(arm.seed)]
        training[arm.name] = {"adapter_sha256": f"{'gapft' if same else arm.condition}{arm.seed}"}
    return replace(made, recipe={**made.recipe, "conditions": conditions}, training=training)


def repeated(made: ReportInputs) -> ReportInputs:
    """The same run, where the replicate answers what the training that it repeats answers."""
    by_seed = {trained.arm.seed: trained for trained in made.find_arms("gapft")}
    arms = tuple(
        replace(by_seed[trained.arm.seed], arm=trained.arm)
        if trained.arm.condition == "uniform"
        else trained
        for trained in made.arms
    )
    return replace(made, arms=arms)


def reworded(made: ReportInputs) -> ReportInputs:
    """The same run, where one response of the replicate has another text."""
    arms = [*made.arms]
    place = next(i for i, of in enumerate(arms) if of.arm.condition == "uniform")
    arms[place] = replace(arms[place], texts=("another text", *arms[place].texts[1:]))
    return replace(made, arms=tuple(arms))


def text_of(made: ReportInputs, findings: Findings) -> str:
    """The first paragraph of the section."""
    (section,) = [of for of in build_sections(made, findings) if of.title == "Retraining noise"]
    assert isinstance(section.blocks[0], Text)
    return section.blocks[0].text


def test_decisions_are_counted_in_both_directions() -> None:
    made = inputs()
    findings = compute_findings(made)
    (found,) = build_results(made, findings)["replicates"]
    assert (found["condition"], found["original"]) == ("uniform", "gapft")
    first, second = (
        np.array([trained.passed for trained in made.find_arms(name)])
        for name in ("gapft", "uniform")
    )
    assert found["n"] == first.size
    assert found["lost"] == int((first & ~second).sum()) > 0
    assert found["gained"] == int((second & ~first).sum()) > 0
    assert found["changed"] == found["lost"] + found["gained"]
    assert found["delta"] == pytest.approx(second.mean() - first.mean())
    for row, (one, other) in enumerate(zip(first, second, strict=True)):
        of_seed = found["seeds"][row]
        assert of_seed["seed"] == SEEDS[row]
        assert of_seed["changed"] == int((one != other).sum())
    assert f"{found['changed']:,} of {found['n']:,} decisions" in text_of(made, findings)


def test_the_difference_has_the_interval_of_the_contrast() -> None:
    made = inputs()
    found = build_results(made, compute_findings(made))
    (replicate,) = found["replicates"]
    (contrast,) = [of for of in found["contrasts"] if (of["a"], of["b"]) == ("gapft", "uniform")]
    low, high = contrast["ci95"]
    assert replicate["ci95"] == [-high, -low]
    assert replicate["delta"] == -contrast["delta"]
    assert low < high


@pytest.mark.parametrize(
    ("made", "said", "not_said"),
    [
        (inputs(), "0 of 3", "expected"),
        (inputs((True, False, False)), "1 of 3", "expected"),
        (repeated(inputs((True,) * 3)), "expected", " of 3 "),
        (reworded(repeated(inputs((True,) * 3))), "decoding", "expected"),
        (replace(inputs(), training={}), "not known", "expected"),
    ],
)
def test_the_report_says_whether_training_and_decoding_repeat(
    made: ReportInputs, said: str, not_said: str
) -> None:
    text = text_of(made, compute_findings(made))
    assert said in text
    assert not_said not in text


def test_a_replicate_is_no_rival_of_what_it_repeats() -> None:
    made = inputs()
    findings = compute_findings(made)
    opening = build_sections(made, findings)[0].blocks[0]
    assert isinstance(opening, Text)
    assert "Against replay" in opening.text
    assert "Against uniform" not in opening.text


def test_a_run_without_replicates_has_no_section_and_no_table() -> None:
    made = planted.inputs()
    findings = compute_findings(made)
    assert "replicates" not in build_results(made, findings)
    assert "Retraining noise" not in [section.title for section in build_sections(made, findings)]
    assert "replicates.csv" not in [name for name, _ in build_tables(made, findings)]


def test_a_report_of_the_replicate_alone_compares_nothing() -> None:
    made = inputs()
    recipe = {**made.recipe, "conditions": {"uniform": {"selector": "gapft", "replicate": 1}}}
    alone = replace(made, recipe=recipe, conditions=("uniform",), arms=made.find_arms("uniform"))
    assert compute_findings(alone).replicates == ()
