"""The page of a report: its tables have the planted rates, and each says what it was built from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gapft_harness.core.errors import PluginError
from gapft_harness.core.streams import derive_key
from gapft_harness.presentation.content import Column, Table
from gapft_harness.report.document import build_page
from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.reading.inputs import LoadedExperiment, ReportInputs
from gapft_harness.stages.experiment.protocol import Experiment
from tests.kit.report_tables import build_results, find_row
from tests.report import planted

SMALL = (40, 35, 25)


@pytest.fixture(scope="module")
def inputs() -> ReportInputs:
    return planted.build_inputs()


@pytest.fixture(scope="module")
def results(inputs: ReportInputs) -> dict[str, Any]:
    return build_results(inputs)


def plant_flows(inputs: ReportInputs, flows: dict[str, tuple[float, float, float]]) -> ReportInputs:
    """Replace the shares of S and U that conditions correct, and of G that they lose."""
    arms = tuple(
        planted.build_arm(inputs.audit, arm.arm.condition, arm.arm.seed, flows[arm.arm.condition])
        for arm in inputs.arms
    )
    return replace(inputs, arms=arms)


@pytest.mark.parametrize("seeds", [(13,), (13, 21, 73)])
def test_p_value_and_interval_agree(seeds: tuple[int, ...]) -> None:
    """One condition's seeds scatter: its contrasts are significant over items only."""
    inputs = planted.build_inputs(seeds=seeds)
    scattered = tuple(
        planted.build_arm(inputs.audit, "uniform", arm.arm.seed, (0.9 if i else 0.1, 0.2, 0.02))
        if arm.arm.condition == "uniform"
        else arm
        for arm in inputs.arms
        for i in [inputs.seeds.index(arm.arm.seed)]
    )
    contrasts = build_results(replace(inputs, arms=scattered))["contrasts"]
    resolved = [not row["delta_low"] <= 0 <= row["delta_high"] for row in contrasts]
    assert [row["p"] < 0.05 for row in contrasts] == resolved
    if len(seeds) > 1:
        assert set(resolved) == {True, False}


def test_no_interval_of_finite_data_has_width_0() -> None:
    """Nothing passes before or after: resampling shows no variation, 12 problems leave some."""
    inputs = planted.build_inputs(("gapft",), sizes=(0, 0, 12))
    results = build_results(plant_flows(inputs, {"gapft": (0, 0, 0)}))
    source, gapft = results["conditions"]
    for row in (source, gapft, find_row(results["states"], split="audit", state="S")):
        value = row.get("pass_at_1", row.get("share"))
        low, high = (
            row[f"{'share' if 'share' in row else 'pass_at_1'}_{e}"] for e in ("low", "high")
        )
        assert (value, low) == (0, 0)
        assert high == pytest.approx(0.2425, abs=1e-4), "Wilson, 0 of 12"
    (contrast,) = results["contrasts"]
    assert contrast["delta_low"] < 0 == contrast["delta"] < contrast["delta_high"]


def test_flat_curve_of_the_source_gives_no_k_eq() -> None:
    """No sample passes: any number of samples is worth nothing."""
    inputs = planted.build_inputs(("gapft", "replay"), sizes=(0, 0, 12))
    flat = build_results(plant_flows(inputs, {"gapft": (0, 0, 0), "replay": (0, 0.5, 0)}))
    assert [row["K_eq"] for row in flat["conditions"]] == [None] * 3


def test_marks_states_and_audits_with_few_problems() -> None:
    for sizes, marked, warned in (((40, 12, 30), ["κ_S †"], 0), ((9, 11, 9), ["†"] * 3, 1)):
        inputs = planted.build_inputs(sizes=sizes, warnings=())
        opening, section, *_ = build_page(inputs, compute_findings(inputs)).sections
        titles = [column.title for column in section.tables[0].titled if "†" in str(column.title)]
        assert len(titles) == len(marked)
        assert all(mark in str(title) for mark, title in zip(marked, titles, strict=True))
        assert len(opening.warnings) == warned


def test_condition_that_reuses_models_is_not_shown_again() -> None:
    inputs = planted.build_inputs(sizes=SMALL)
    training = {f"uniform-seed{s}": {"trained_as": f"gapft-seed{s}"} for s in inputs.seeds}
    findings = compute_findings(replace(inputs, training=training))
    assert list(findings.distinct) == ["gapft", "replay", "all_verified"]
    gone = {f"uniform-seed{s}": {"trained_as": f"depth_8-seed{s}"} for s in inputs.seeds}
    assert "uniform" in compute_findings(replace(inputs, training=gone)).distinct


def test_counts_decisions_of_a_repeated_training_in_both_directions() -> None:
    inputs = planted.build_replicate_inputs()
    results = build_results(inputs)
    first, second = (
        np.array([arm.deployed.passed for arm in inputs.find_arms(name)])
        for name in ("gapft", "uniform")
    )
    for row, before, after in zip(results["replicates"], first, second, strict=True):
        assert (row["condition"], row["original"]) == ("uniform", "gapft")
        assert row["lost"] == int((before & ~after).sum()) > 0
        assert row["gained"] == int((after & ~before).sum()) > 0
        assert row["changed"] == row["lost"] + row["gained"]
        assert row["delta"] == pytest.approx(after.mean() - before.mean())
    pair = find_row(results["contrasts"], a="gapft", b="uniform")
    assert pair["gained"] == sum(row["lost"] for row in results["replicates"])
    assert find_row(results["contrasts"], a="gapft", b="replay")["gained"] is None
    assert "uniform" not in results["run"][0]["answer"], "a repeated training is no rival"
    assert "replicates" not in build_results(planted.build_inputs(sizes=SMALL))


def test_cases_are_chosen_by_seeds_then_by_hash(
    results: dict[str, Any], inputs: ReportInputs
) -> None:
    ids, before = inputs.audit.ids.tolist(), inputs.audit.deployed.passed
    for name in inputs.conditions:
        passed = np.array([arm.deployed.passed for arm in inputs.find_arms(name)])
        for change, changed in (("gained", passed & ~before), ("lost", ~passed & before)):
            counts = changed.sum(axis=0)
            order = sorted(
                np.flatnonzero(counts).tolist(),
                key=lambda p: (-counts[p], derive_key("case", ids[p])),
            )
            rows = [
                row
                for row in results["cases"]
                if (row["condition"], row["change"]) == (name, change)
            ]
            chosen = order[: 4 if name == "gapft" else 1]
            assert [row["problem_id"] for row in rows] == [ids[p] for p in chosen]
            for row, position in zip(rows, chosen, strict=True):
                assert row["state"] == inputs.audit.states[position]
                assert len(row["seeds"].split()) == counts[position]


def test_warnings_of_the_search_come_first_and_are_in_the_results(inputs: ReportInputs) -> None:
    page = build_page(inputs, compute_findings(inputs))
    assert page.sections[0].warnings == list(inputs.warnings)
    assert page.list_results()["warnings"][: len(inputs.warnings)] == list(inputs.warnings)
    assert "A remark of the recipe." in page.sections[0].text


def test_run_without_training_has_an_answer_and_the_search() -> None:
    inputs = planted.build_inputs((), sizes=(20, 0, 30), pool_states=(5, 0, 9))
    results = build_results(inputs)
    assert "nothing to train on" in results["run"][0]["answer"]
    assert [row["condition"] for row in results["conditions"]] == ["source"]
    assert "contrasts" not in results
    assert find_row(results["curve"], label="Pass@8")["rate"] >= 0


def test_training_facts_have_no_times_and_only_reported_arms() -> None:
    inputs = planted.build_inputs(("gapft", "replay"), seeds=(13,), sizes=SMALL)
    facts = {"loss": {"last": 0.25}, "seconds": 4.5, "tokens_per_second": 9.0}
    training = dict.fromkeys(("gapft-seed13", "replay-seed13", "uniform-seed13"), facts)
    files = build_page(replace(inputs, training=training), compute_findings(inputs)).build_files()
    assert files["tables/training.csv"].decode() == (
        "arm,fact,value\ngapft-seed13,loss.last,0.25\nreplay-seed13,loss.last,0.25\n"
    )


def test_items_have_every_change_in_full(inputs: ReportInputs, results: dict[str, Any]) -> None:
    page = build_page(inputs, compute_findings(inputs))
    (items,) = (table for table in page.tables if table.name == "items")
    for row in results["seeds"]:
        arm = [
            i for i in items.rows if (i["condition"], i["seed"]) == (row["condition"], row["seed"])
        ]
        changes = [item["change"] for item in arm]
        assert changes.count("gained") == row["corrected_s"] + row["corrected_u"]
        assert changes.count("lost") == row["regressed_g"]
    first = items.rows[0]
    position = inputs.audit.ids.tolist().index(first["problem_id"])
    assert first["before"] == inputs.audit.deployed.texts[position]
    assert first["after"] == inputs.find_arms("gapft")[0].deployed.texts[position]


class Namesake(Experiment):
    """An experiment whose table has the name of one of the report's."""

    name = "made"
    title = "Made"

    def tables(self, inputs: Any, findings: Any, read: Any) -> list[Table]:
        return [Table("contrasts", [Column("n", "n", "count")], [{"n": 7}])]


def test_experiments_table_cannot_have_the_name_of_another() -> None:
    inputs = planted.build_inputs(sizes=SMALL, experiments=(LoadedExperiment(Namesake(), 7),))
    with pytest.raises(PluginError, match="'contrasts'"):
        build_page(inputs, compute_findings(inputs))


@pytest.mark.parametrize(
    "changes",
    [{"seeds": (13,)}, {"k": 1}, {"k": 32}, {"sizes": (0, 3, 2)}, {"sizes": (9, 0, 0)}],
)
def test_builds_unusual_shapes(changes: dict[str, Any]) -> None:
    inputs = planted.build_inputs(**{"sizes": (12, 9, 8), **changes})
    files = build_page(inputs, compute_findings(inputs)).build_files()
    assert len(files["index.html"]) > 10_000
