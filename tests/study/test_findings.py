"""A study's numbers: each cell as its own report has it, and means recomputed from decisions."""

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
from gapft_harness.study.cells import CollectedCell
from gapft_harness.study.document import (
    build_budgets,
    build_provenance,
    build_sections,
    build_study_results,
    compute_checked,
)
from gapft_harness.study.findings import compute_shares, compute_study
from gapft_harness.study.recipe import StudyRecipe
from tests.report.planted import CONDITIONS
from tests.study.sealed import cell


def study_of(names, **changes) -> StudyRecipe:
    """A study of runs by these names."""
    cells = {name: {"run": name} for name in names}
    return StudyRecipe.model_validate({"name": "planted", "cells": cells, **changes})


def collected(name, inputs) -> CollectedCell:
    return CollectedCell(name, name, (), inputs, ((f"decisions/{name}", name),))


def other_audit(inputs, task="another"):
    """The same outcomes on problems of another task."""
    audit = replace(inputs.audit, ids=np.char.add("other ", inputs.audit.ids))
    data = {**inputs.recipe["data"], "task": task}
    return replace(inputs, audit=audit, recipe={**inputs.recipe, "data": data})


@pytest.fixture(scope="module")
def three():
    """Three cells: two models on one audit, a third on another."""
    cells = {"a": cell(0), "b": cell(1), "c": other_audit(cell(2, sizes=(25, 12, 20)))}
    return {name: collected(name, inputs) for name, inputs in cells.items()}


def test_the_mean_is_that_of_the_cells_differences_recomputed_from_decisions(three):
    found = compute_study(study_of(three), list(three.values()))

    def pass_at_1(inputs, name) -> Fraction:
        decisions = [bool(p) for arm in inputs.find_arms(name) for p in arm.passed]
        return Fraction(sum(decisions), len(decisions))

    for mean in found.means:
        differences = []
        for of in three.values():
            source = Fraction(int(of.inputs.audit.verdicts.greedy.sum()), len(of.inputs.audit.ids))
            other = source if mean.b == "source" else pass_at_1(of.inputs, mean.b)
            differences.append(pass_at_1(of.inputs, mean.a) - other)
        assert mean.delta == sum(differences) / 3
    assert [m.b for m in found.means if m.matched] == ["uniform", "replay"]
    pairs = [(mean.a, mean.b) for mean in found.means]
    assert pairs[:4] == [("gapft", b) for b in CONDITIONS[1:]] + [("gapft", "source")]


def test_its_interval_is_that_of_a_plain_loop_over_joint_draws(three):
    """Written out: seeds drawn once a replicate, problems once for both cells of one audit."""
    found = compute_study(study_of(three), list(three.values()))
    rng = np.random.default_rng(0)
    means = []
    for _ in range(4000):
        seeds = rng.integers(3, size=3)
        drawn: dict[str, np.ndarray] = {}
        values = []
        for of in three.values():
            audit = of.inputs.audit
            key = audit.ids[0]
            if key not in drawn:
                drawn[key] = rng.integers(len(audit.ids), size=len(audit.ids))
            a, b = (
                np.array([arm.passed for arm in of.inputs.find_arms(n)], dtype=float)
                for n in ("gapft", "uniform")
            )
            values.append((a - b)[seeds][:, drawn[key]].mean())
        means.append(np.mean(values))
    low, high = np.quantile(means, [0.025, 0.975])
    interval = found.find_mean("gapft", "uniform").interval
    # 200 replicates and 4,000: within a third of the interval's width
    assert interval.low == pytest.approx(low, abs=(high - low) / 3)
    assert interval.high == pytest.approx(high, abs=(high - low) / 3)


def test_two_cells_of_the_same_decisions_have_the_interval_of_one():
    """Drawn jointly, what is the same moves together; drawn apart, it would shrink."""
    one = cell(0)
    single = compute_study(study_of("a"), [collected("a", one)])
    double = compute_study(study_of("ab"), [collected("a", one), collected("b", one)])
    assert [m.interval for m in double.means] == [m.interval for m in single.means]
    assert [m.delta for m in double.means] == [m.delta for m in single.means]


def test_a_study_of_one_cell_is_that_cells_report(three):
    of = three["a"]
    found = compute_study(study_of("a"), [of])
    alone = compute_findings(of.inputs)
    for mean in found.means:
        contrast = alone.find_contrast(mean.a, mean.b)
        assert (mean.delta, mean.interval) == (contrast.delta, contrast.interval)
        assert mean.resampled.p_value == contrast.resampled.p_value
    said, expected = (
        build_study_results(found)["cells"]["a"],
        of_run.build_results(of.inputs, alone),
    )
    assert {key: said[key] for key in expected} == json.loads(json.dumps(expected))


@settings(max_examples=15)
@given(st.permutations(["a", "b", "c"]))
def test_the_order_of_cells_changes_no_number(three, order):
    found = build_study_results(compute_study(study_of(order), [three[name] for name in order]))
    expected = build_study_results(compute_study(study_of(three), list(three.values())))
    assert found == expected
    assert list(found["cells"]) == order


def test_terms_sum_exactly_to_every_cells_change(three):
    for of in compute_study(study_of(three), list(three.values())).cells:
        n, states = of.findings.source.n, of.findings.source.states
        for name, condition in of.findings.conditions.items():
            mean = condition.mean
            p_g, p_s, p_u = (Fraction(states[s], n) for s in "GSU")
            sums = p_s * mean.kappa_s + p_u * mean.kappa_u - p_g * mean.rho_g
            assert sums == of.findings.find_contrast(name, "source").delta == mean.terms.total


def test_no_mean_is_given_while_a_cell_lacks_something(three):
    lacking = CollectedCell("b", "b", ("no decisions of gapft under seed 73",))
    found = compute_study(study_of(three), [three["a"], lacking, three["c"]])
    assert found.means == ()
    said = build_study_results(found)
    assert (said["whole"], said["means"]) == (False, None)
    assert said["cells"]["b"] == {"lacks": ["no decisions of gapft under seed 73"]}


def test_shares_are_gain_by_gain_and_problems_by_problems(three):
    (of,) = compute_study(study_of("a"), [three["a"]]).cells
    (share,) = compute_shares(of, "gapft")
    gains = [of.findings.find_contrast(name, "source").delta for name in ("gapft", "all_verified")]
    assert (share.reference, share.gain) == ("all_verified", gains[0] / gains[1])
    assert share.problems == Fraction(100, 295)


def test_the_first_conditions_own_tokens_stand_beside_those_of_its_group(three):
    """As the paper's Table 5 lists L: of GapFT alone, the mean over its seeds."""
    found = compute_study(study_of(three), list(three.values()))
    (table,) = build_budgets(found)
    at = table.columns.index("L of GapFT")
    for one in found.cells:
        own = [arm.budget.tokens for arm in one.inputs.find_arms("gapft")]
        row, *others = [row for row in table.rows if row[0] == one.name]
        assert row[at] == f"{round(sum(own) / len(own)):,}"
        assert [other[at] for other in others] == ["–"]


def test_audits_of_one_task_on_other_problems_are_refused_with_their_ids(three):
    other = other_audit(cell(1), task=three["a"].inputs.recipe["data"]["task"])
    with pytest.raises(UserError, match=r"68 only in 'a' \(problem-00000.*68 only in 'b' \(other "):
        compute_checked(study_of("ab"), [three["a"], collected("b", other)])


def test_a_checkpoint_in_two_cells_is_refused(three):
    again = replace(three["a"], name="b")
    with pytest.raises(UserError, match=r"'a' and 'b' .*checkpoint"):
        compute_checked(study_of("ab"), [three["a"], again])


def test_episodes_that_differ_are_refused(three):
    task = {**three["b"].inputs.task, "episode": {"attempts": 3, "executions": 1}}
    other = collected("b", replace(three["b"].inputs, task=task))
    with pytest.raises(UserError, match=r"episode.attempts 1 → 3"):
        compute_checked(study_of("ab"), [three["a"], other])


def test_a_cells_imported_verdicts_are_not_the_verifiers(three):
    said = {"verdicts": "file", "responses": 1}
    inputs = replace(three["a"].inputs, imported={"pool": said})
    cells = {**three, "a": replace(three["a"], inputs=inputs)}
    (table, *_), *_ = (
        of.blocks for of in build_provenance(compute_study(study_of(cells), [*cells.values()]))
    )
    remarks = [row[4].partition("} ")[2] for row in table.rows]
    assert "pool" in remarks[0]
    assert "imported" in remarks[0]
    assert remarks[1:] == ["", ""]


def test_the_main_table_counts_the_whole_pool_and_ranks_what_is_matched(three):
    """Table 1: n and All; All verified is a larger budget, and out of the ranking."""
    found = compute_study(study_of(three), list(three.values()))
    table = next(of.blocks[0] for of in build_sections(found) if of.title == "Main comparison")
    names = [*table.columns]
    place = names.index("n") + 1
    assert [row[place] for row in table.rows] == ["295"] * 3
    ranked = {name for name in names if any(names[column] == name for _, column in table.ranks)}
    assert ranked <= {"source", "replay", "uniform", "GapFT"}
    for number, row in enumerate(table.rows):
        values = {name: float(row[names.index(name)]) for name in sorted(ranked | {"source"})}
        best = [names[c] for (r, c), rank in table.ranks.items() if (r, rank) == (number, "best")]
        assert {values[name] for name in best} == {max(values.values())}
