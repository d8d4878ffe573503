"""The paper's tables, recomputed by the package's functions.

Printed values are rounded. A mean over three seeds on a known number of problems follows from a
whole count, so the count is recovered and the relation is exact. That printed differences are those
of printed rates is tested for every recipe in ``tests/test_paper_figures.py``.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from gapft_harness.analysis.decomposition import Decomposition, find_unstable_states
from gapft_harness.analysis.stability import measure_agreement
from tests.analysis.paper_tables import SCOPE

SEEDS = 3
#: Largest error of rounding to two decimals, in points.
HALF = 0.005001


def to_percent(value: Fraction | None) -> float:
    assert value is not None
    return 100 * float(value)


@pytest.mark.parametrize(("k", "sizes", "p_s", "kappa_s", "kappa_u", "rho_g", "net"), SCOPE)
def test_scope_rows_reproduce_net_gain(k, sizes, p_s, kappa_s, kappa_u, rho_g, net):
    totals = [SEEDS * size for size in sizes]
    printed = (rho_g, kappa_s, kappa_u)
    changed = [round(n * rate / 100) for n, rate in zip(totals, printed, strict=True)]
    counts = Decomposition(*totals, *changed)
    share = Fraction(sizes[1], sum(sizes))
    values = [share, counts.kappa_s, counts.kappa_u, counts.rho_g, counts.terms.total]
    assert [*map(to_percent, values)] == pytest.approx(
        [p_s, kappa_s, kappa_u, rho_g, net], abs=HALF
    )
    assert ("S" in find_unstable_states(*sizes)) == (sizes[1] < 30)


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
    found = to_percent(agreement["agreement"])
    assert found == pytest.approx(same, abs=0.3)  # moved is a whole number
    assert to_percent(agreement["S_jaccard"]) == pytest.approx(jaccard, abs=1)
