"""Relations within the paper's tables, computed by the package's functions.

Printed values are rounded. Where a value is a mean over three seeds on a known number of problems
it follows from a whole count, so the count is recovered and the relation is exact.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from gapft_harness.analysis.decomposition import (
    Decomposition,
    Terms,
    compute_gain_share,
    find_unstable_states,
)
from gapft_harness.analysis.pass_at_k import format_k
from gapft_harness.analysis.resampling import Scores, average_differences
from gapft_harness.analysis.stability import measure_agreement
from gapft_harness.experiments.controls.shared_core import SharedCoreSettings
from gapft_harness.recipe.sections import Training
from tests.analysis.k_eq_bounds import k_equivalent_bounds
from tests.analysis.paper_tables import (
    AMORTIZATION,
    LLAMA,
    LOGIQA,
    MISTRAL,
    QWEN,
    RECLOR,
    SCOPE,
)

SEEDS = 3
#: Largest error of rounding to two decimals, in points.
HALF = 0.005001
AUDIT = {LOGIQA: 1367, RECLOR: 500}

# Table "Pass@1 Under Matched Evidence Budgets": Pass@1 of source, replay, uniform, GapFT and all
# verified, and GapFT minus source.
MAIN = {
    (LLAMA, LOGIQA): ((50.33, 55.84, 60.33, 62.59, 65.89), 12.27),
    (LLAMA, RECLOR): ((55.40, 61.27, 69.13, 70.67, 73.80), 15.27),
    (QWEN, LOGIQA): ((68.54, 68.50, 68.20, 68.81, 70.06), 0.27),
    (QWEN, RECLOR): ((72.20, 72.00, 71.53, 72.47, 73.20), 0.27),
    (MISTRAL, LOGIQA): ((47.26, 49.74, 49.57, 51.87, 53.21), 4.61),
    (MISTRAL, RECLOR): ((48.80, 53.47, 52.53, 54.33, 57.20), 5.53),
}

# Table "Decomposition of the Main Comparison": p_S, then κ_S, κ_U, ρ_G of the four conditions, and
# the term differences S, U, G of replay, GapFT and all verified from uniform.
RATES = {
    (LLAMA, LOGIQA): (
        26.6,
        ((30.7, 4.4, 7.3), (46.5, 16.9, 12.5), (54.7, 31.0, 18.8), (56.1, 26.7, 11.0)),
        ((-4.22, -2.88, 2.61), (2.17, 3.24, -3.15), (2.56, 2.24, 0.76)),
    ),
    (LLAMA, RECLOR): (
        26.0,
        ((27.4, 15.8, 7.6), (49.5, 35.1, 10.2), (63.1, 44.8, 17.1), (58.7, 47.3, 10.2)),
        ((-5.73, -3.60, 1.47), (3.53, 1.80, -3.80), (2.40, 2.27, 0.00)),
    ),
    (QWEN, LOGIQA): (
        2.1,
        ((29.9, 1.3, 1.6), (33.3, 1.5, 2.2), (44.8, 6.1, 3.6), (56.3, 8.1, 3.0)),
        ((-0.07, -0.05, 0.41), (0.24, 1.34, -0.98), (0.49, 1.93, -0.56)),
    ),
    (QWEN, RECLOR): (
        2.2,
        ((39.4, 1.6, 2.0), (33.3, 4.7, 3.6), (42.4, 4.9, 2.7), (48.5, 5.2, 1.9)),
        ((0.13, -0.80, 1.13), (0.20, 0.07, 0.67), (0.33, 0.13, 1.20)),
    ),
    (MISTRAL, LOGIQA): (
        7.8,
        ((36.8, 5.4, 5.9), (37.1, 6.7, 7.6), (45.9, 10.3, 7.6), (43.1, 11.8, 5.7)),
        ((-0.02, -0.61, 0.80), (0.68, 1.61, 0.00), (0.46, 2.29, 0.88)),
    ),
    (MISTRAL, RECLOR): (
        6.8,
        ((52.9, 10.2, 7.1), (49.0, 9.3, 7.7), (43.1, 14.6, 7.9), (57.8, 17.1, 6.4)),
        ((0.27, 0.40, 0.27), (-0.40, 2.33, -0.13), (0.60, 3.47, 0.60)),
    ),
}

# Table "MATH Results with Matched Training Exposures": Pass@1, its change, κ_S, κ_U, ρ_G. G, S and
# U are not printed; they follow from the rates.
MATH_STATES = (377, 104, 119)
MATH = [
    (63.39, 0.56, 41.35, 3.08, 11.49),
    (66.11, 3.28, 40.38, 4.48, 7.34),
    (64.11, 1.28, 33.65, 5.60, 9.02),
    (66.17, 3.33, 41.35, 5.04, 7.69),
    (64.83, 2.00, 34.62, 2.52, 7.16),
    (65.78, 2.94, 40.06, 3.92, 7.60),
    (65.17, 2.33, 40.38, 2.24, 8.13),
]


def to_percent(value: Fraction | None) -> float:
    assert value is not None
    return 100 * float(value)


def build_counts(sizes: tuple[int, int, int], kappa_s: float, kappa_u: float, rho_g: float):
    """Recover the counts over three seeds from printed rates."""
    n_g, n_s, n_u = (SEEDS * size for size in sizes)
    changed = [round(n * rate / 100) for n, rate in ((n_g, rho_g), (n_s, kappa_s), (n_u, kappa_u))]
    return Decomposition(n_g, n_s, n_u, *changed)


def recover_exact_rate(printed: float, problems: int) -> Fraction:
    """Recover the exact mean over three seeds from a printed Pass@1 or difference."""
    return Fraction(round(SEEDS * problems * printed / 100), SEEDS * problems)


@pytest.mark.parametrize(("k", "sizes", "p_s", "kappa_s", "kappa_u", "rho_g", "net"), SCOPE)
def test_scope_rows_reproduce_net_gain(k, sizes, p_s, kappa_s, kappa_u, rho_g, net):
    counts = build_counts(sizes, kappa_s, kappa_u, rho_g)
    share = Fraction(sizes[1], sum(sizes))
    values = [share, counts.kappa_s, counts.kappa_u, counts.rho_g, counts.terms.total]
    assert [*map(to_percent, values)] == pytest.approx(
        [p_s, kappa_s, kappa_u, rho_g, net], abs=HALF
    )
    assert ("S" in find_unstable_states(*sizes)) == (sizes[1] < 30)


def test_scope_rows_reproduce_example_term():
    """The text: at K = 4 the S term is 9.18 points for Llama and 0.91 for Qwen on LogiQA."""
    llama, qwen = (build_counts(sizes, *rates) for _, sizes, _, *rates, _ in (SCOPE[0], SCOPE[2]))
    assert [to_percent(llama.terms.s), to_percent(qwen.terms.s)] == pytest.approx(
        [9.18, 0.91], abs=HALF
    )


@pytest.mark.parametrize(("post", "delta", "kappa_s", "kappa_u", "rho_g"), MATH)
def test_math_rows_match_implied_states(post, delta, kappa_s, kappa_u, rho_g):
    counts = build_counts(MATH_STATES, kappa_s, kappa_u, rho_g)
    values = [counts.pass_at_1, counts.terms.total, counts.kappa_s, counts.kappa_u, counts.rho_g]
    assert [*map(to_percent, values)] == pytest.approx(
        [post, delta, kappa_s, kappa_u, rho_g], abs=HALF
    )


def test_math_rows_imply_unique_states():
    """Try all G, S, U of 600 problems within 20 of the implied ones."""

    def matches_rows(sizes: tuple[int, int, int]) -> bool:
        for _, delta, *rates in MATH:
            counts = build_counts(sizes, *rates)
            values = [counts.terms.total, counts.kappa_s, counts.kappa_u, counts.rho_g]
            printed = [delta, *rates]
            if any(abs(to_percent(a) - b) > HALF for a, b in zip(values, printed, strict=True)):
                return False
        return True

    g, s, _ = MATH_STATES
    candidates = [
        (a, b, 600 - a - b) for a, b in product(range(g - 20, g + 21), range(s - 20, s + 21))
    ]
    assert [sizes for sizes in candidates if matches_rows(sizes)] == [MATH_STATES]


@pytest.mark.parametrize("cell", MAIN)
def test_decomposition_rows_sum_to_table_1_differences(cell):
    pass_at_1, gain = MAIN[cell]
    problems = AUDIT[cell[1]]
    source, *conditions = (recover_exact_rate(value, problems) for value in pass_at_1)
    assert to_percent(conditions[2] - source) == pytest.approx(gain, abs=HALF)
    uniform = conditions[1]
    for condition, printed in zip((conditions[0], *conditions[2:]), RATES[cell][2], strict=True):
        terms = Terms(*(recover_exact_rate(value, problems) for value in printed))
        assert terms.total == condition - uniform


@pytest.mark.parametrize("cell", RATES)
def test_decomposition_rates_reproduce_table_1(cell):
    """G follows from Table 1's source, S from the printed p_S; rates have one decimal."""
    p_s, rates, _ = RATES[cell]
    problems = AUDIT[cell[1]]
    n_g = round(problems * MAIN[cell][0][0] / 100)
    n_s = round(problems * p_s / 100)
    for printed, pass_at_1 in zip(rates, MAIN[cell][0][1:], strict=True):
        counts = build_counts((n_g, n_s, problems - n_g - n_s), *printed)
        assert to_percent(counts.pass_at_1) == pytest.approx(pass_at_1, abs=0.035)


def test_table_1_cells_reproduce_equal_weight_means():
    """+6.37 over the source and +1.57 over uniform, from counts as a study averages them."""

    def build_scores(values: tuple[float, ...], n: int) -> Scores:
        """Put each condition's count of right decodes anywhere in its row."""
        rows = {}
        for number, value in enumerate(values):
            row = np.arange(SEEDS * n) < round(SEEDS * n * value / 100)
            rows[str(number)] = row.reshape(SEEDS, n)
        return Scores(rows, np.arange(SEEDS), np.array([str(item) for item in range(n)]))

    def compute_mean(a: str, b: str) -> float:
        pairs = [(MAIN[cell][0], AUDIT[cell[1]]) for cell in MAIN]
        return 100 * float(average_differences([build_scores(*pair) for pair in pairs], a, b))

    assert [compute_mean("3", "0"), compute_mean("3", "2")] == pytest.approx([6.37, 1.57], abs=HALF)


# Table 1: n and All. The text: "11--34% of those problems, GapFT recovers about two thirds to four
# fifths of the full pool's gain over the source on Llama and Mistral".
PROBLEMS = {
    (LLAMA, LOGIQA): (3190, 9429),
    (LLAMA, RECLOR): (913, 3050),
    (MISTRAL, LOGIQA): (887, 6554),
    (MISTRAL, RECLOR): (252, 2192),
}


def test_gain_shares_match_text():
    gains, problems = [], []
    for cell, (n, full_pool) in PROBLEMS.items():
        source, *_, gapft, full = (
            recover_exact_rate(value, AUDIT[cell[1]]) for value in MAIN[cell][0]
        )
        share = compute_gain_share(gapft - source, full - source)
        assert share is not None
        gains.append(float(share))
        problems.append(n / full_pool)
    assert (round(100 * min(problems)), round(100 * max(problems))) == (11, 34)
    assert min(gains) == pytest.approx(2 / 3, abs=0.01)
    assert max(gains) == pytest.approx(4 / 5, abs=0.04)


# Table "Pass@1 Decomposition of the Evidence Controls": task, difference, and its terms G, S, U.
CONTROLS = [
    (LOGIQA, 5.46, (-1.19, 3.97, 2.68)),
    (LOGIQA, 6.75, (-5.75, 6.39, 6.12)),
    (RECLOR, 5.73, (-2.20, 5.00, 2.93)),
    (RECLOR, 9.40, (-5.27, 9.27, 5.40)),
    (LOGIQA, 0.80, (-0.34, 0.32, 0.83)),
    (LOGIQA, -0.22, (-1.63, 0.54, 0.88)),
    (RECLOR, -0.60, (-2.13, 1.07, 0.47)),
    (RECLOR, 0.20, (-1.93, 1.33, 0.80)),
    (LOGIQA, -9.49, (-11.34, -1.07, 2.93)),
    (RECLOR, -6.87, (-6.13, -1.60, 0.87)),
]


@pytest.mark.parametrize(("task", "delta", "terms"), CONTROLS)
def test_controls_sum_to_their_differences(task, delta, terms):
    g, s, u = (recover_exact_rate(value, AUDIT[task]) for value in terms)
    assert to_percent(Terms(s, u, g).total) == pytest.approx(delta, abs=HALF)


def test_search_depth_difference_matches_table_1():
    for cell, (task, delta, _) in (((LLAMA, LOGIQA), CONTROLS[1]), ((LLAMA, RECLOR), CONTROLS[3])):
        replay, gapft = (recover_exact_rate(MAIN[cell][0][i], AUDIT[task]) for i in (1, 3))
        assert to_percent(gapft - replay) == pytest.approx(delta, abs=HALF)


# Table "Pass@1 of the Evidence Controls with a Shared Core": Pass@1 of the source, K = 0, K = 1,
# K = 8 and gold labels; their differences from K = 0; gold labels minus K = 8.
CORE = {
    LOGIQA: ((50.33, 54.18, 56.91, 62.33, 63.37), (2.73, 8.14, 9.19), 1.05),
    RECLOR: ((55.40, 59.27, 62.40, 67.93, 73.20), (3.13, 8.67, 13.93), 5.27),
}


@pytest.mark.parametrize("task", CORE)
def test_shared_core_rows_reproduce_differences(task):
    rates, deltas, gold = CORE[task]
    source, replay, *others = (recover_exact_rate(rate, AUDIT[task]) for rate in rates)
    differences = [to_percent(rate - replay) for rate in others]
    assert differences == pytest.approx(deltas, abs=HALF)
    assert to_percent(others[-1] - others[-2]) == pytest.approx(gold, abs=HALF)
    assert to_percent(source) == pytest.approx(MAIN[LLAMA, task][0][0], abs=HALF), "the same source"


@pytest.mark.parametrize(
    ("search", "gold", "fewer"), [(18_049_528, 17_989_088, 0.33), (5_892_872, 5_864_368, 0.48)]
)
def test_gold_labels_process_fewer_tokens(search, gold, fewer):
    """The difference is within the recipes' tolerance for response tokens of all depths."""
    assert to_percent(Fraction(search - gold, search)) == pytest.approx(fewer, abs=HALF)
    assert (search - gold) / search < SharedCoreSettings().token_tolerance
    assert search % Training().repetitions == gold % Training().repetitions == 0


def test_two_seed_diagnostic_matches_text():
    """ReClor: GapFT and gold labels, in the main recipe and with the core of 2,133 problems."""
    gapft, gold = ((70.6, 72.4), (63.7, 71.9))
    rates = [
        [Fraction(round(10 * rate), 1000) for rate in condition] for condition in (gapft, gold)
    ]
    assert all(rate * 2 * AUDIT[RECLOR] % 1 == 0 for condition in rates for rate in condition), (
        "of two seeds"
    )
    assert to_percent(rates[1][1] - rates[0][1]) == pytest.approx(-0.5)


@pytest.mark.parametrize("cell", AMORTIZATION)
def test_printed_k_eq_is_within_bounds(cell):
    at_4, at_8, printed = AMORTIZATION[cell]
    for pass_at_1, label in zip(MAIN[cell][0][1:], printed, strict=True):
        reached = recover_exact_rate(pass_at_1, AUDIT[cell[1]])
        bounds = [
            k_equivalent_bounds(
                {
                    4: Fraction(round(at_4 * 200) + a, 20_000),
                    8: Fraction(round(at_8 * 200) + b, 20_000),
                },
                8,
                reached,
            )
            for a, b in product((-1, 1), repeat=2)  # half a unit of the last digit each way
        ]
        least, most = min(low for low, _ in bounds), max(high for _, high in bounds)
        assert label in [format_k(k) for k in range(least, most + 1)]


# Table "Stability of the Source-State Partition": mean S and U flow, combined correction, total
# gain and G regression.
STABILITY = [(15.07, 6.39, 21.46, 16.35, 5.11), (14.87, 7.53, 22.40, 17.47, 4.93)]


@pytest.mark.parametrize(("s", "u", "combined", "gain", "lost"), STABILITY)
def test_stability_rows_sum_to_their_gain(s, u, combined, gain, lost):
    def sum_terms(*terms: float) -> float:
        return float(Terms(*(Fraction(str(term)) for term in terms)).total)

    assert sum_terms(s, u, 0) == pytest.approx(combined, abs=2 * HALF)
    assert sum_terms(s, u, -lost) == pytest.approx(gain, abs=3 * HALF)


@pytest.mark.parametrize(
    ("failures", "same", "jaccard", "recovered"),
    [(802, 79.90, 67.67, 416), (223, 74.89, 63.87, 130)],
)
def test_printed_jaccard_matches_printed_agreement(failures, same, jaccard, recovered):
    """Two partitions with the printed agreement and the scope matrix's |S| give nearly it."""
    moved = round(failures * (1 - same / 100) / 2)
    first, second = np.full((2, failures), "U")
    first[:recovered], second[moved : moved + recovered] = "S", "S"
    agreement = measure_agreement(np.array([first, second]))
    assert agreement is not None
    assert to_percent(agreement.same) == pytest.approx(same, abs=0.3)  # moved is a whole number
    assert to_percent(agreement.jaccard) == pytest.approx(jaccard, abs=1)
