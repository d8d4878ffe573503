"""The allocation comparison: halves of the training sets, its tables, its files."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Example
from gapft_harness.experiments.allocation import AllocationPart, find_halves
from gapft_harness.report.findings.computation import compute_findings
from tests.report import planted

RATES = {
    "a_A_1": ("A", "diffuse"),
    "a_A_2": ("A", "concentrated"),
    "a_B_0": ("B", "concentrated"),
    "a_B_1": ("B", "diffuse"),
}


def build_examples(letter, state="S", count=3, response=(7,)):
    return [Example(f"{letter}{i}", state, (1, 2), response, 0, 0) for i in range(count)]


A, B, REPLAY = build_examples("a"), build_examples("b"), build_examples("g", "G", 2)
OTHER_A = build_examples("a", response=(9,))
OTHER_REPLAY = [*build_examples("g", "G", 1, (8,)), REPLAY[1]]


@given(st.integers(0, 2**32 - 1))
def test_halves_do_not_depend_on_order(number):
    rng = np.random.default_rng(number)
    diffuse, concentrated = A + B + REPLAY * 2, A + A + REPLAY * 2
    halves = find_halves(
        [diffuse[i] for i in rng.permutation(len(diffuse))],
        [concentrated[i] for i in rng.permutation(len(concentrated))],
        "x and y",
    )
    expected = [("a0", "A"), ("a1", "A"), ("a2", "A"), ("b0", "B"), ("b1", "B"), ("b2", "B")]
    assert list(halves.items()) == expected
    assert find_halves(A + B, A + A, "x and y") == halves, "without replay"


@pytest.mark.parametrize(
    ("diffuse", "concentrated", "named"),
    [
        (A + B, A, "a0"),
        (A + B, A + A + A, "a0"),
        (A + B + B[:1], A + A, "b0"),
        (A[1:] + B, A + A, "a0"),
        (A + B, A + A + B[:1], "b0"),
        (A + B[:2], A + A, "half B"),
        (A, A + A, "half B"),
        (REPLAY, REPLAY, "half A"),
        (A + B + REPLAY, A + A + REPLAY[:1], "g1"),
        (A + B + REPLAY, A + A + OTHER_REPLAY, "g0"),
        # exposures count examples: a second response to a problem is not a second exposure
        (A + B, A + OTHER_A, "a0"),
        (A + OTHER_A, A + A, "half A"),
        (A + B, A + A + build_examples("u", "U"), "u0"),
        (A + B + build_examples("u", "U"), A + A + build_examples("u", "U"), "u0"),
    ],
)
def test_selections_without_halves_are_named(diffuse, concentrated, named):
    with pytest.raises(UserError, match=named) as caught:
        find_halves(diffuse, concentrated, "arms x and y")
    assert "arms x and y" in str(caught.value)


@pytest.fixture(scope="module")
def inputs():
    return planted.build_allocation_inputs(sizes=(40, 35, 25))


@pytest.fixture(scope="module")
def tables(inputs):
    findings = compute_findings(inputs)
    (entry,) = findings.parts
    built = entry.part.tables(inputs, findings, entry.findings)
    return {table.name: table.list_entries() for table in built}


def test_rates_and_differences_match_planted_verdicts(inputs, tables):
    problems = inputs.find_part_data("allocation").problems
    values = {row["quantity"]: row for row in tables["allocation"]}
    assert {row["problems"] for row in values.values()} == {59}
    for seed in inputs.seeds:
        rates = {}
        for name, (half, model) in RATES.items():
            members = [p for p in problems if (p.seed, p.half) == (seed, half)]
            right = sum(getattr(p, f"verdict_{model}") == "pass" for p in members)
            rates[name] = Fraction(right, len(members))
            assert values[name][f"seed_{seed}"] == float(rates[name])
        gain, loss = rates["a_B_1"] - rates["a_B_0"], rates["a_A_2"] - rates["a_A_1"]
        assert values["coverage_gain"][f"seed_{seed}"] == float(gain)
        assert values["repetition_loss"][f"seed_{seed}"] == float(loss)
        assert values["contrast"][f"seed_{seed}"] == float((gain - loss) / 2)
    for row in values.values():
        mean = sum(row[f"seed_{seed}"] for seed in inputs.seeds) / 3
        assert row["mean"] == pytest.approx(mean, abs=1e-12)
        assert row["mean_low"] < row["mean"] < row["mean_high"]


def test_every_problem_is_in_a_file(inputs, tables):
    rows = tables["allocation_problems"]
    assert len(rows) == 3 * 2 * 59
    selected = Counter(
        (row["half"], row["selected_diffuse"], row["selected_concentrated"]) for row in rows
    )
    assert selected == {("A", 1, 2): 3 * 59, ("B", 1, 0): 3 * 59}
    part, exposures = AllocationPart(), inputs.find_part_data("allocation")
    for condition in ("diffuse", "concentrated"):
        counts = part.verdicts(inputs, exposures)[f"problems trained on, {condition}"]
        passed = sum(row[f"verdict_{condition}"] == "pass" for row in rows)
        assert counts == {"pass": passed, "fail": len(rows) - passed, "timeout": 0, "error": 0}
