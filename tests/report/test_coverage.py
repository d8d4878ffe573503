"""Coverage against repetition in results.json, tables, report.md and the page's opening."""

import csv
import io
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from gapft_harness.experiments.allocation import QUANTITIES, RATES
from gapft_harness.report import write_report
from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.reading.inputs import PASS
from gapft_harness.report.results import build_results
from tests.report import planted


def content(inputs):
    inputs = inputs
    return build_results(inputs, compute_findings(inputs))


@pytest.fixture(scope="module")
def inputs():
    return planted.allocation_inputs(sizes=(40, 35, 25))


@pytest.fixture(scope="module")
def written(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "report"
    write_report(inputs, folder)
    return folder


@pytest.fixture(scope="module")
def found(written):
    return json.loads((written / "results.json").read_text("utf-8"))["allocation"]


def rows(written, name):
    return list(csv.DictReader(io.StringIO((written / f"tables/{name}.csv").read_text("utf-8"))))


def test_every_rate_of_every_seed_is_as_planted(inputs, found):
    assert (found["diffuse"], found["concentrated"], found["R"]) == ("diffuse", "concentrated", 8)
    assert list(found["seeds"]) == ["13", "21", "42"]
    for of in inputs.find_part_data("allocation").seeds:
        seed = found["seeds"][str(of.seed)]
        assert seed["problems_a_half"] == 59
        assert seed["replay"] == 16
        for name, half, statuses in (
            ("a_A_1", "A", of.diffuse),
            ("a_A_2", "A", of.concentrated),
            ("a_B_0", "B", of.concentrated),
            ("a_B_1", "B", of.diffuse),
        ):
            assert seed[name] == int((statuses[of.halves == half] == PASS).sum()) / 59
        both = int((of.diffuse == PASS).sum()) - int((of.concentrated == PASS).sum())
        assert seed["contrast"] == float(Fraction(both, 2 * 59))


def test_means_are_over_seeds_and_intervals_hold_them(found):
    for name in QUANTITIES:
        mean = found[name]["mean"]
        assert mean == pytest.approx(np.mean([s[name] for s in found["seeds"].values()]), abs=1e-12)
        low, high = found[name]["ci95"]
        assert low < mean < high
    gain, loss = found["coverage_gain"]["mean"], found["repetition_loss"]["mean"]
    assert found["contrast"]["mean"] == pytest.approx(gain / 2 - loss / 2, abs=1e-12)


def test_supervised_tokens_are_those_of_the_budgets(inputs, found):
    for trained in inputs.arms:
        of_seed = found["seeds"][str(trained.arm.seed)]["L_supervised"]
        assert of_seed[trained.arm.condition] == trained.budget.supervised_tokens


def test_tables_hold_the_numbers_of_results(inputs, written, found):
    table = rows(written, "allocation")
    assert [row["quantity"] for row in table[::4]] == list(QUANTITIES)
    for row in table:
        of = found if row["seed"] == "mean" else found["seeds"][row["seed"]]
        expected = of[row["quantity"]]
        if row["seed"] == "mean":
            assert [float(row["ci95_low"]), float(row["ci95_high"])] == expected["ci95"]
            expected = expected["mean"]
        assert float(row["value"]) == expected


def test_every_compared_problem_is_in_a_table_with_its_exposures(inputs, written):
    table = rows(written, "exposed")
    assert len(table) == 3 * 2 * 59
    assert {
        (r["half"], r["selected_diffuse"], r["selected_concentrated"]) for r in table
    } == {("A", "1", "2"), ("B", "1", "0")}  # fmt: skip
    for of in inputs.find_part_data("allocation").seeds:
        in_table = {r["problem_id"]: r for r in table if r["seed"] == str(of.seed)}
        for i, diffuse, concentrated in zip(of.ids, of.diffuse, of.concentrated, strict=True):
            row = in_table[str(i)]
            assert (row["verdict_diffuse"] == "pass") == (diffuse == PASS)
            assert (row["verdict_concentrated"] == "pass") == (concentrated == PASS)


def section(written):
    markdown = (written / "report.md").read_text("utf-8")
    return markdown.split("## Coverage against repetition\n")[1].split("\n## ")[0]


def test_the_section_shows_every_quantity(written, found):
    text = section(written)
    for name, label in zip(QUANTITIES, (
        "a_A(1)", "a_A(2)", "a_B(0)", "a_B(1)", "coverage gain", "repetition loss", "contrast",
    ), strict=True):  # fmt: skip
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {label}")]
        mean = 100 * found[name]["mean"]
        shown = f"{mean:.1f}%" if name in RATES else f"{mean:+.1f}"
        assert f"| {shown} | [" in line
        assert line.count("|") == 7
    assert "| 13 | 59 | 59 | 16 | 21,447 | 21,452 | −5 (0.02%) |" in text


def test_verdicts_on_the_trained_problems_are_counted(inputs, written):
    markdown = (written / "report.md").read_text("utf-8")
    passed = sum(
        int((of.concentrated == PASS).sum()) for of in inputs.find_part_data("allocation").seeds
    )
    line = f"| problems trained on, concentrated | {passed} | {3 * 2 * 59 - passed} | 0 | 0 |"
    assert line in markdown


def test_gapft_leads_where_it_is_a_condition_too():
    names = ("concentrated", "gapft", "diffuse")
    inputs = replace(
        planted.inputs(names, (13, 21, 42), (40, 35, 25)),
        parts=planted.compared(planted.exposures((13, 21, 42))),
    )
    found = content(inputs)
    pairs = [(c["a"], c["b"]) for c in found["contrasts"]]
    assert pairs[:3] == [
        ("gapft", "diffuse"),
        ("gapft", "concentrated"),
        ("diffuse", "concentrated"),
    ]
    assert list(found["conditions"]) == list(names)


def test_without_the_comparison_nothing_of_it_is_written(tmp_path):
    write_report(planted.inputs(sizes=(12, 9, 8)), tmp_path / "report")
    assert "allocation" not in json.loads((tmp_path / "report/results.json").read_text("utf-8"))
    names = {path.name for path in (tmp_path / "report").rglob("*.*")}
    assert not names & {"allocation.csv", "exposed.csv", "allocation.svg", "allocation.png"}
    assert "Coverage against" not in (tmp_path / "report/report.md").read_text("utf-8")


def test_slots_and_distinct_problems_are_counted_apart(inputs):
    """``concentrated`` fills each two of its n slots with one problem."""
    for name, share in (("diffuse", 1), ("concentrated", 2)):
        for seed in content(inputs)["conditions"][name]["seeds"].values():
            assert seed["budget"]["n"] == share * seed["budget"]["problems"]
