"""A report on several sampled deployment decodes, against an independent computation."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from math import ceil

import pyarrow.parquet as pq
import pytest

from gapft_harness.core.errors import GapftError
from gapft_harness.experiments.controls.control import ControlStep
from gapft_harness.experiments.controls.search import SearchDepth
from gapft_harness.report import write_report
from gapft_harness.report.explorer.run_content import collect_audit
from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.reading.inputs import LoadedPart, read_inputs
from tests.report import planted
from tests.report.test_read_inputs import write_run

REPEATS, SOLVED = 3, 0.5


@pytest.fixture(scope="module")
def inputs():
    return planted.sample_decodes(planted.build_inputs(sizes=(40, 30, 30)), REPEATS, SOLVED)


@pytest.fixture(scope="module")
def run_folder(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("repeats")
    (folder / "manifest.json").write_text(json.dumps(write_run(folder, inputs)))
    return folder


@pytest.fixture(scope="module")
def read(run_folder):
    return read_inputs(run_folder, json.loads((run_folder / "manifest.json").read_text()))


@pytest.fixture(scope="module")
def report(read, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written") / "report"
    write_report(read, folder)
    return folder


@pytest.fixture(scope="module")
def results(report):
    return json.loads((report / "results.json").read_text("utf-8"))


def count_passes(path):
    """Count a table's passing deployment decodes and samples by problem."""
    decodes, samples = defaultdict(int), defaultdict(int)
    for row in pq.read_table(path).to_pylist():
        counts = decodes if row["index"] < 0 else samples
        counts[row["problem_id"]] += row["status"] == "pass"
    return decodes, samples


def test_rates_follow_from_the_tables(run_folder, inputs, results):
    before, samples = count_passes(run_folder / "audit/responses.parquet")
    states = {
        name: "G" if count >= ceil(SOLVED * REPEATS) else "S" if samples[name] else "U"
        for name, count in before.items()
    }
    sizes = {state: [*states.values()].count(state) for state in "GSU"}
    source = Fraction(sum(before.values()), REPEATS * len(states))
    assert results["source"]["states"] == sizes
    assert results["source"]["pass_at_1"] == float(source)
    for name, condition in results["conditions"].items():
        changes, accuracies = [], []
        for seed, entry in condition["seeds"].items():
            after, _ = count_passes(run_folder / f"decisions/{name}-seed{seed}.parquet")
            change = {
                state: sum(after[i] - before[i] for i, own in states.items() if own == state)
                for state in "GSU"
            }
            counts = {
                "correct": sum(after.values()), "S_corrected": change["S"],
                "U_corrected": change["U"], "G_regressed": -change["G"],
            }  # fmt: skip
            assert entry["counts"] == counts
            accuracy = Fraction(counts["correct"], REPEATS * len(states))
            assert entry["pass_at_1"] == float(accuracy)
            assert accuracy - source == Fraction(sum(change.values()), REPEATS * len(states))
            for key, state, sign in (("kappa_S", "S", 1), ("kappa_U", "U", 1), ("rho_G", "G", -1)):
                assert entry[key] == sign * change[state] / (REPEATS * sizes[state])
            changes.append(change)
            accuracies.append(accuracy)
        mean = {state: sum(change[state] for change in changes) for state in "GSU"}
        divisor = REPEATS * len(states) * len(changes)
        assert {s: condition["terms"][s] for s in "GSU"} == {s: mean[s] / divisor for s in "GSU"}
        low, high = condition["ci95"]
        assert low <= condition["pass_at_1"] == float(sum(accuracies) / len(changes)) <= high


def test_states_the_deployment_decode_once(report, results):
    assert results["deployment"] == {
        "temperature": 0.6, "top_p": 0.95, "top_k": 0, "repeats": 3, "solved": 0.5,
        "required_passes": 2,
    }  # fmt: skip
    page = (report / "report.md").read_text("utf-8")
    assert page.count("temperature 0.6, top_p 0.95, 3 repeats") == 1
    assert page.count("at least 2 of 3 pass") == 1
    assert "greedy" not in page.lower()
    assert "greedy" not in (report / "index.html").read_text("utf-8").lower()


def test_tables_count_decodes(report, read, results):
    def read_table(name):
        return [*csv.DictReader((report / "tables" / name).open(encoding="utf-8", newline=""))]

    problems = {row["problem_id"]: row for row in read_table("problems.csv")}
    deployed = read.audit.deployed
    for name, count, is_solved in zip(
        read.audit.ids.tolist(), deployed.passing, deployed.solved, strict=True
    ):
        assert problems[name]["passing_decodes"] == str(count)
        assert (problems[name]["source_verdict"] == "pass") == is_solved
    rows = read_table("items.csv")
    assert rows
    for row in rows:
        before, after = int(row["passing_before"]), int(row["passing_after"])
        assert (before < 2 <= after) == (row["change"] == "gained")
        assert row["before"].endswith("wrong" if row["change"] == "gained" else "right")
        assert row["after"].endswith("right" if row["change"] == "gained" else "wrong")
    seeds = {(row["condition"], row["seed"]): row for row in read_table("seeds.csv")}
    for (name, seed), row in seeds.items():
        counts = results["conditions"][name]["seeds"][seed]["counts"]
        assert {key: int(row[key]) for key in counts} == counts
        assert sum(int(row[status]) for status in ("pass", "fail")) == REPEATS * int(row["n"])


def test_explorer_shows_the_first_decode_with_the_outcome(read):
    content = collect_audit(read, "repeats")
    models = [read.audit.deployed, *(arm.deployed for arm in read.arms)]
    verdicts = [content.verdicts, *(model.verdicts for model in content.models)]
    for place, entry in enumerate(content.entries()):
        for number, deployed in enumerate(models):
            outcome = bool(deployed.solved[place])
            own_texts = deployed.texts[place * REPEATS : (place + 1) * REPEATS]
            passed = deployed.passed[place].tolist()
            assert entry.responses[number] == own_texts[passed.index(outcome)]
            assert verdicts[number][place] == ("right" if outcome else "wrong")
        samples = entry.responses[len(models) :]
        assert len(samples) == read.k


def test_refuses_tables_with_another_number_of_repeats(inputs, run_folder):
    manifest = json.loads((run_folder / "manifest.json").read_text())
    manifest["recipe"]["search"]["deployment"]["repeats"] = 4
    with pytest.raises(GapftError, match=r"responses\.parquet|audit"):
        read_inputs(run_folder, manifest)


def test_controls_have_no_permutation_test(inputs):
    """It exchanges decisions; the bootstrap's interval and p are those of the contrast."""
    part = SearchDepth().part()
    steps = tuple(ControlStep(name, name) for name in ("gapft", "uniform"))
    recipe = {**inputs.recipe, "experiments": {"search_depth": {}}}
    controlled = replace(inputs, recipe=recipe, parts=(LoadedPart(part, steps),))
    findings = compute_findings(controlled)
    part_findings = findings.find_part("search_depth")
    assert part.results(part_findings)["permutation_tests"] == []
    assert "search_depth_test.csv" not in dict(part.tables(controlled, findings, part_findings))
    (section,) = part.sections(controlled, findings, part_findings)
    assert "needs one decode" in section.blocks[0].text
    assert findings.find_contrast("gapft", "uniform").resampled.p_value is not None


def test_replicates_compare_decodes(inputs):
    """A copy changes no decode; another one is compared decode by decode."""
    conditions = {"gapft": {}, "again": {"selector": "gapft", "replicate": 1}}
    copies = [
        replace(arm, arm=replace(arm.arm, condition="again")) for arm in inputs.find_arms("gapft")
    ]
    repeated = replace(
        inputs,
        recipe={**inputs.recipe, "conditions": conditions},
        conditions=("gapft", "again"),
        arms=(*inputs.find_arms("gapft"), *copies),
    )
    (same,) = compute_findings(repeated).replicates
    decodes = len(inputs.seeds) * len(inputs.audit.ids) * REPEATS
    assert (same.changes.n, same.changes.changed) == (decodes, 0)
    uniform = [
        replace(arm, arm=replace(arm.arm, condition="again")) for arm in inputs.find_arms("uniform")
    ]
    other = replace(repeated, arms=(*inputs.find_arms("gapft"), *uniform))
    findings = compute_findings(other)
    (replicate,) = findings.replicates
    means = [findings.conditions[name].mean.pass_at_1 for name in ("again", "gapft")]
    assert replicate.changes.difference == means[0] - means[1]
