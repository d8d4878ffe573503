"""The allocation comparison in results.json, tables and report.md."""

import csv
import io
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.experiments.allocation import QUANTITIES, AllocationPart
from gapft_harness.report import write_report
from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.reading.inputs import PASS, read_inputs
from gapft_harness.report.results import build_results
from tests.report import planted
from tests.report.written_run import build_example, write_run, write_selection


def build_content(inputs):
    return build_results(inputs, compute_findings(inputs))


@pytest.fixture(scope="module")
def inputs():
    return planted.build_allocation_inputs(sizes=(40, 35, 25))


@pytest.fixture(scope="module")
def report_folder(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "report"
    write_report(inputs, folder)
    return folder


@pytest.fixture(scope="module")
def allocation(report_folder):
    return json.loads((report_folder / "results.json").read_text("utf-8"))["allocation"]


def read_csv(written, name):
    return list(csv.DictReader(io.StringIO((written / f"tables/{name}.csv").read_text("utf-8"))))


def test_rates_of_each_seed_match_planted_values(inputs, allocation):
    assert (allocation["diffuse"], allocation["concentrated"], allocation["R"]) == (
        "diffuse",
        "concentrated",
        8,
    )
    assert list(allocation["seeds"]) == ["13", "21", "42"]
    for exposed in inputs.find_part_data("allocation").seeds:
        seed = allocation["seeds"][str(exposed.seed)]
        assert seed["problems_a_half"] == 59
        assert seed["replay"] == 16
        for name, half, statuses in (
            ("a_A_1", "A", exposed.diffuse),
            ("a_A_2", "A", exposed.concentrated),
            ("a_B_0", "B", exposed.concentrated),
            ("a_B_1", "B", exposed.diffuse),
        ):
            assert seed[name] == int((statuses[exposed.halves == half] == PASS).sum()) / 59
        both = int((exposed.diffuse == PASS).sum()) - int((exposed.concentrated == PASS).sum())
        assert seed["contrast"] == float(Fraction(both, 2 * 59))


def test_means_over_seeds_are_inside_intervals(allocation):
    for name in QUANTITIES:
        mean = allocation[name]["mean"]
        assert mean == pytest.approx(
            np.mean([s[name] for s in allocation["seeds"].values()]), abs=1e-12
        )
        low, high = allocation[name]["ci95"]
        assert low < mean < high
    gain, loss = allocation["coverage_gain"]["mean"], allocation["repetition_loss"]["mean"]
    assert allocation["contrast"]["mean"] == pytest.approx(gain / 2 - loss / 2, abs=1e-12)


def test_supervised_tokens_match_budgets(inputs, allocation):
    for trained in inputs.arms:
        seed_tokens = allocation["seeds"][str(trained.arm.seed)]["L_supervised"]
        assert seed_tokens[trained.arm.condition] == trained.budget.supervised_tokens


def test_exposed_table_lists_every_compared_problem(inputs, report_folder):
    table = read_csv(report_folder, "exposed")
    assert len(table) == 3 * 2 * 59
    assert {
        (r["half"], r["selected_diffuse"], r["selected_concentrated"]) for r in table
    } == {("A", "1", "2"), ("B", "1", "0")}  # fmt: skip
    for exposed in inputs.find_part_data("allocation").seeds:
        in_table = {r["problem_id"]: r for r in table if r["seed"] == str(exposed.seed)}
        for i, diffuse, concentrated in zip(
            exposed.ids, exposed.diffuse, exposed.concentrated, strict=True
        ):
            row = in_table[str(i)]
            assert (row["verdict_diffuse"] == "pass") == (diffuse == PASS)
            assert (row["verdict_concentrated"] == "pass") == (concentrated == PASS)


def test_counts_verdicts_on_trained_problems(inputs, report_folder):
    markdown = (report_folder / "report.md").read_text("utf-8")
    passed = sum(
        int((exposed.concentrated == PASS).sum())
        for exposed in inputs.find_part_data("allocation").seeds
    )
    line = f"| problems trained on, concentrated | {passed} | {3 * 2 * 59 - passed} | 0 | 0 |"
    assert line in markdown


def test_gapft_comes_first_when_present():
    names = ("concentrated", "gapft", "diffuse")
    inputs = replace(
        planted.build_inputs(names, (13, 21, 42), (40, 35, 25)),
        parts=planted.build_allocation_parts(planted.build_exposures((13, 21, 42))),
    )
    results = build_content(inputs)
    pairs = [(c["a"], c["b"]) for c in results["contrasts"]]
    assert pairs[:3] == [
        ("gapft", "diffuse"),
        ("gapft", "concentrated"),
        ("diffuse", "concentrated"),
    ]
    assert list(results["conditions"]) == list(names)


def test_writes_nothing_without_allocation_comparison(tmp_path):
    write_report(planted.build_inputs(sizes=(12, 9, 8)), tmp_path / "report")
    assert "allocation" not in json.loads((tmp_path / "report/results.json").read_text("utf-8"))
    names = {path.name for path in (tmp_path / "report").rglob("*.*")}
    assert not names & {"allocation.csv", "exposed.csv", "allocation.svg", "allocation.png"}
    assert "Coverage against" not in (tmp_path / "report/report.md").read_text("utf-8")


def test_rejects_selections_that_do_not_form_halves(tmp_path):
    allocation_inputs = planted.build_allocation_inputs(sizes=(12, 9, 8))
    manifest = write_run(tmp_path, allocation_inputs)
    in_a = (
        allocation_inputs.find_part_data("allocation")
        .seeds[0]
        .ids[allocation_inputs.find_part_data("allocation").seeds[0].halves == "A"]
        .tolist()
    )
    others = [f"z{i}" for i in range(134 - len(in_a))]
    arm = next(
        trained for trained in allocation_inputs.arms if trained.arm.name == "concentrated-seed13"
    )
    write_selection(tmp_path, arm, [build_example(i, "S") for i in (*in_a, *others)])
    with pytest.raises(UserError, match="diffuse-seed13 and concentrated-seed13"):
        read_inputs(tmp_path, manifest, [AllocationPart()])
