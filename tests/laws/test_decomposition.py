"""The exact decomposition and the unbiased Pass@k, of any random verdicts.

``tests/laws/test_matched_runs.py`` has the same laws in the results of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.analysis.decomposition import Decomposition, by_state
from gapft_harness.analysis.pass_at_k import mean_pass_at_k

PROBLEMS, SEEDS = 12, 3
#: Whether the greedy response and each of three samples of the source pass.
SOURCE = st.lists(
    st.tuples(st.booleans(), st.lists(st.booleans(), min_size=3, max_size=3)),
    min_size=PROBLEMS,
    max_size=PROBLEMS,
)
ROW = st.lists(st.booleans(), min_size=PROBLEMS, max_size=PROBLEMS)
#: Whether each arm of two conditions solves each problem.
ARMS = st.fixed_dictionaries(
    {name: st.lists(ROW, min_size=SEEDS, max_size=SEEDS) for name in ("gapft", "uniform")}
)


def classify(source: Sequence[tuple[bool, Sequence[bool]]], k: int = 3) -> list[str]:
    """Classify problems by the greedy response and the first k samples (Section 3.2)."""
    return ["G" if greedy else "SU"[not any(samples[:k])] for greedy, samples in source]


def decompose(states: Sequence[str], passed: Sequence[Any]) -> Decomposition:
    return by_state(np.array(states, dtype=str), np.array(passed, dtype=bool))


def mean(values: Sequence[bool]) -> Fraction:
    return Fraction(sum(values), len(values))


@given(SOURCE, ARMS)
def test_change_of_pass_at_1_is_decomposed_exactly(
    source: list[tuple[bool, list[bool]]], arms: dict[str, list[list[bool]]]
) -> None:
    """p_S κ_S + p_U κ_U - p_G ρ_G is the change, for a seed, a condition and a contrast."""
    states = classify(source)
    before = mean([greedy for greedy, _ in source])
    p = {state: Fraction(states.count(state), PROBLEMS) for state in "GSU"}
    conditions = {name: decompose(states, seeds) for name, seeds in arms.items()}
    for name, seeds in arms.items():
        for result, rows in [
            *((decompose(states, seed), [seed]) for seed in seeds),
            (conditions[name], seeds),
        ]:
            rates = {"S": result.kappa_s, "U": result.kappa_u, "G": result.rho_g}
            assert all((rates[state] is None) == (p[state] == 0) for state in "GSU")
            terms = {state: p[state] * (rate or 0) for state, rate in rates.items()}
            assert (result.terms.s, result.terms.u) == (terms["S"], terms["U"])
            assert result.terms.g == -terms["G"]
            rate = mean([passed for row in rows for passed in row])
            assert terms["S"] + terms["U"] - terms["G"] == rate - before
            assert result.pass_at_1 == rate
    contrast = conditions["gapft"].terms - conditions["uniform"].terms
    after = {
        name: mean([passed for row in seeds for passed in row]) for name, seeds in arms.items()
    }
    assert contrast.s + contrast.u + contrast.g == after["gapft"] - after["uniform"]


@given(SOURCE, ROW)
def test_more_samples_move_gains_from_missed_to_recovered(
    source: list[tuple[bool, list[bool]]], passed: list[bool]
) -> None:
    """A larger K changes neither the total nor the regressions, and recovers more problems."""
    results = [decompose(classify(source, k), passed) for k in range(4)]
    for fewer, more in pairwise(results):
        assert fewer.terms.total == more.terms.total
        assert (fewer.n_g, fewer.regressed_g) == (more.n_g, more.regressed_g)
        assert fewer.n_s <= more.n_s
        assert fewer.corrected_s <= more.corrected_s


@given(st.integers(1, 6), st.data())
def test_pass_at_k_is_the_mean_over_all_subsets(samples: int, data: st.DataObject) -> None:
    row = st.lists(st.booleans(), min_size=samples, max_size=samples)
    passed = data.draw(st.lists(row, min_size=1, max_size=4))
    counts = np.array([sum(row) for row in passed])
    estimates = {k: mean_pass_at_k(counts, samples, k) for k in range(1, samples + 1)}
    for k, estimate in estimates.items():
        subsets = [any(subset) for row in passed for subset in combinations(row, k)]
        assert estimate == mean(subsets)
    assert list(estimates.values()) == sorted(estimates.values())
