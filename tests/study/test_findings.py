"""A study's findings: cells as in their own reports, and means recomputed from decisions."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.report import results as of_run
from gapft_harness.report.findings.computation import compute_findings
from gapft_harness.report.rendering.markdown import render_markdown
from gapft_harness.study.cells import CollectedCell
from gapft_harness.study.document import (
    build_budgets,
    build_provenance,
    build_sections,
    build_study_results,
    compute_checked,
)
from gapft_harness.study.figures import draw_study_figures
from gapft_harness.study.findings import compute_shares, compute_study
from gapft_harness.study.recipe import StudyRecipe
from tests.report.planted import CONDITIONS, sample_decodes
from tests.study.sealed import build_cell


def build_study(names, **changes) -> StudyRecipe:
    """Build a study of runs with these names."""
    cells = {name: {"run": name} for name in names}
    return StudyRecipe.model_validate({"name": "planted", "cells": cells, **changes})


def build_collected_cell(name, inputs) -> CollectedCell:
    return CollectedCell(name, name, (), inputs, ((f"decisions/{name}", name),))


def move_to_other_audit(inputs, task="another"):
    """Return the inputs with the same outcomes on problems of another task."""
    audit = replace(inputs.audit, ids=np.char.add("other ", inputs.audit.ids))
    data = {**inputs.recipe["data"], "task": task}
    return replace(inputs, audit=audit, recipe={**inputs.recipe, "data": data})


@pytest.fixture(scope="module")
def three_cells():
    """Build three cells: two models on one audit, a third on another audit."""
    cells = {
        "a": build_cell(0),
        "b": build_cell(1),
        "c": move_to_other_audit(build_cell(2, sizes=(25, 12, 20))),
    }
    return {name: build_collected_cell(name, inputs) for name, inputs in cells.items()}


def test_mean_equals_recomputed_cell_differences(three_cells):
    findings = compute_study(build_study(three_cells), list(three_cells.values()))

    def compute_pass_at_1(inputs, name) -> Fraction:
        decisions = [bool(p) for arm in inputs.find_arms(name) for p in arm.deployed.passed]
        return Fraction(sum(decisions), len(decisions))

    for mean in findings.means:
        differences = []
        for collected in three_cells.values():
            source = Fraction(
                int(collected.inputs.audit.verdicts.deployed.sum()), len(collected.inputs.audit.ids)
            )
            other = source if mean.b == "source" else compute_pass_at_1(collected.inputs, mean.b)
            differences.append(compute_pass_at_1(collected.inputs, mean.a) - other)
        assert mean.estimate.value == sum(differences) / 3
    assert [m.b for m in findings.means if m.matched] == ["uniform", "replay"]
    pairs = [(mean.a, mean.b) for mean in findings.means]
    assert pairs[:4] == [("gapft", b) for b in CONDITIONS[1:]] + [("gapft", "source")]


def test_interval_matches_plain_bootstrap_loop(three_cells):
    """Each replicate draws seeds once, and problems once for all cells with the same audit."""
    findings = compute_study(build_study(three_cells), list(three_cells.values()))
    rng = np.random.default_rng(0)
    means = []
    for _ in range(4000):
        seeds = rng.integers(3, size=3)
        drawn: dict[str, np.ndarray] = {}
        values = []
        for collected in three_cells.values():
            audit = collected.inputs.audit
            key = audit.ids[0]
            if key not in drawn:
                drawn[key] = rng.integers(len(audit.ids), size=len(audit.ids))
            a, b = (
                np.array(
                    [arm.deployed.passed for arm in collected.inputs.find_arms(n)], dtype=float
                )
                for n in ("gapft", "uniform")
            )
            values.append((a - b)[seeds][:, drawn[key]].mean())
        means.append(np.mean(values))
    low, high = np.quantile(means, [0.025, 0.975])
    interval = findings.find_mean("gapft", "uniform").estimate
    # 200 replicates and 4,000: within a third of the interval's width
    assert interval.low == pytest.approx(low, abs=(high - low) / 3)
    assert interval.high == pytest.approx(high, abs=(high - low) / 3)


def test_duplicate_cells_keep_interval_of_one():
    """Equal cells are resampled together; separate draws would shrink the interval."""
    inputs = build_cell(0)
    single = compute_study(build_study("a"), [build_collected_cell("a", inputs)])
    double = compute_study(
        build_study("ab"), [build_collected_cell("a", inputs), build_collected_cell("b", inputs)]
    )
    assert [m.estimate for m in double.means] == [m.estimate for m in single.means]


def test_study_of_one_cell_equals_its_report(three_cells):
    collected = three_cells["a"]
    findings = compute_study(build_study("a"), [collected])
    alone = compute_findings(collected.inputs)
    for mean in findings.means:
        contrast = alone.find_contrast(mean.a, mean.b)
        assert mean.estimate == contrast.estimate
    cell_results, expected = (
        build_study_results(findings)["cells"]["a"],
        of_run.build_results(collected.inputs, alone),
    )
    assert {key: cell_results[key] for key in expected} == json.loads(json.dumps(expected))


@settings(max_examples=15)
@given(st.permutations(["a", "b", "c"]))
def test_cell_order_does_not_change_results(three_cells, order):
    results = build_study_results(
        compute_study(build_study(order), [three_cells[name] for name in order])
    )
    expected = build_study_results(
        compute_study(build_study(three_cells), list(three_cells.values()))
    )
    assert results == expected
    assert list(results["cells"]) == order


def test_terms_sum_to_change_of_each_cell(three_cells):
    for cell_findings in compute_study(build_study(three_cells), list(three_cells.values())).cells:
        n, states = cell_findings.findings.source.n, cell_findings.findings.source.states
        for name, condition in cell_findings.findings.conditions.items():
            mean = condition.mean
            p_g, p_s, p_u = (Fraction(states[s], n) for s in "GSU")
            sums = p_s * mean.kappa_s + p_u * mean.kappa_u - p_g * mean.rho_g
            assert (
                sums
                == cell_findings.findings.find_contrast(name, "source").delta
                == mean.terms.total
            )


def test_incomplete_cell_gives_no_means(three_cells):
    lacking = CollectedCell("b", "b", ("no decisions of gapft under seed 73",))
    findings = compute_study(
        build_study(three_cells), [three_cells["a"], lacking, three_cells["c"]]
    )
    assert findings.means == ()
    results = build_study_results(findings)
    assert (results["whole"], results["means"]) == (False, None)
    assert results["cells"]["b"] == {"lacks": ["no decisions of gapft under seed 73"]}


def test_compares_means_with_those_of_a_paper(three_cells):
    printed = {"gapft minus source.delta": 6.37, "gapft minus uniform.ci95_high": 2.45}
    study = build_study(three_cells, paper={"Table 1": printed})
    findings = compute_study(study, list(three_cells.values()))
    first, second = build_study_results(findings)["paper"]
    assert (first["of"], first["figure"], first["paper"]) == ("gapft minus source", "delta", 6.37)
    gain, contrast = findings.find_mean("gapft", "source"), findings.find_mean("gapft", "uniform")
    assert first["here"] == pytest.approx(100 * float(gain.estimate.value))
    assert second["here"] == pytest.approx(100 * contrast.estimate.high)
    (section,) = [s for s in build_sections(findings) if s.title == "Comparison with the paper"]
    (table,) = section.blocks
    assert [row[2] for row in table.rows] == ["+6.37", "+2.45"]
    lacking = CollectedCell("b", "b", ("no decisions",))
    incomplete = compute_study(study, [three_cells["a"], lacking, three_cells["c"]])
    assert [row["here"] for row in build_study_results(incomplete)["paper"]] == [None, None]
    assert "paper" not in build_study_results(compute_study(build_study("a"), [three_cells["a"]]))


def test_shares_are_ratios_of_gains_and_problems(three_cells):
    (cell_findings,) = compute_study(build_study("a"), [three_cells["a"]]).cells
    (share,) = compute_shares(cell_findings, "gapft")
    gains = [
        cell_findings.findings.find_contrast(name, "source").delta
        for name in ("gapft", "all_verified")
    ]
    assert (share.reference, share.gain) == ("all_verified", gains[0] / gains[1])
    assert share.problems == Fraction(100, 295)


def test_budget_table_lists_tokens_of_first_condition(three_cells):
    """The paper's Table 5 lists L of GapFT alone, as the mean over seeds."""
    findings = compute_study(build_study(three_cells), list(three_cells.values()))
    (table,) = build_budgets(findings)
    column = table.columns.index("L of GapFT")
    for cell_findings in findings.cells:
        own = [arm.budget.tokens for arm in cell_findings.inputs.find_arms("gapft")]
        row, *others = [row for row in table.rows if row[0] == cell_findings.name]
        assert row[column] == f"{round(sum(own) / len(own)):,}"
        assert [other[column] for other in others] == ["–"]


def test_rejects_different_audits_of_one_task(three_cells):
    other = move_to_other_audit(build_cell(1), task=three_cells["a"].inputs.recipe["data"]["task"])
    with pytest.raises(UserError, match=r"68 only in 'a' \(problem-00000.*68 only in 'b' \(other "):
        compute_checked(build_study("ab"), [three_cells["a"], build_collected_cell("b", other)])


def test_rejects_checkpoint_in_two_cells(three_cells):
    again = replace(three_cells["a"], name="b")
    with pytest.raises(UserError, match=r"'a' and 'b' .*checkpoint"):
        compute_checked(build_study("ab"), [three_cells["a"], again])


def test_rejects_different_episode_settings(three_cells):
    task = {**three_cells["b"].inputs.task, "episode": {"attempts": 3, "executions": 1}}
    other = build_collected_cell("b", replace(three_cells["b"].inputs, task=task))
    with pytest.raises(UserError, match=r"episode.attempts 1 → 3"):
        compute_checked(build_study("ab"), [three_cells["a"], other])


def test_provenance_marks_verdicts_of_logs(three_cells):
    facts = {"verdicts": "file", "responses": 1}
    inputs = replace(three_cells["a"].inputs, imported={"pool": facts})
    cells = {**three_cells, "a": replace(three_cells["a"], inputs=inputs)}
    (table, *_), *_ = (
        section.blocks
        for section in build_provenance(compute_study(build_study(cells), [*cells.values()]))
    )
    remarks = [row[4].partition("} ")[2] for row in table.rows]
    assert "pool" in remarks[0]
    assert "verdicts of logs" in remarks[0]
    assert remarks[1:] == ["", ""]


def test_main_table_ranks_only_matched_budgets(three_cells):
    """Table 1 counts the whole pool; ``all_verified`` has a larger budget and no rank."""
    findings = compute_study(build_study(three_cells), list(three_cells.values()))
    table = next(
        section.blocks[0]
        for section in build_sections(findings)
        if section.title == "Main comparison"
    )
    names = [*table.columns]
    place = names.index("n") + 1
    assert [row[place] for row in table.rows] == ["295"] * 3
    ranked = {name for name in names if any(names[column] == name for _, column in table.ranks)}
    assert ranked <= {"source", "replay", "uniform", "GapFT"}
    for number, row in enumerate(table.rows):
        values = {name: float(row[names.index(name)]) for name in sorted(ranked | {"source"})}
        best = [names[c] for (r, c), rank in table.ranks.items() if (r, rank) == (number, "best")]
        assert {values[name] for name in best} == {max(values.values())}


def test_sampled_decodes_are_compared_in_every_cell():
    cells = {
        "a": sample_decodes(build_cell(0), number=1),
        "b": move_to_other_audit(sample_decodes(build_cell(1, sizes=(25, 12, 20)), number=2)),
    }
    collected = [build_collected_cell(name, inputs) for name, inputs in cells.items()]
    findings = compute_study(build_study(cells), collected)

    def compute_success(inputs, name) -> Fraction:
        models = [inputs.audit] if name == "source" else inputs.find_arms(name)
        passed = np.array([model.deployed.passed for model in models])
        return Fraction(int(passed.sum()), passed.size)

    for mean in findings.means:
        differences = [
            compute_success(inputs, mean.a) - compute_success(inputs, mean.b)
            for inputs in cells.values()
        ]
        assert mean.estimate.value == sum(differences) / 2
        assert mean.estimate.low <= float(mean.estimate.value) <= mean.estimate.high
    for cell in findings.cells:
        entry = cell.findings.conditions["gapft"].mean
        terms = entry.terms
        assert entry.pass_at_1 - cell.findings.source.pass_at_1 == terms.s + terms.u + terms.g
    page = render_markdown("", "", build_sections(findings))
    assert page.count("Deployment decode: sampled once at temperature 0.6, top_p 0.95.") == 1
    assert "greedy" not in page.lower()
    assert {drawing.name for drawing in draw_study_figures(findings)} == {
        "forest", "flows", "curves",
    }  # fmt: skip
