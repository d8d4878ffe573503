"""Properties of every results.json."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tests.kit.report_tables import index_rows

MATCHED = ("gapft", "uniform", "replay")


def check_results(results: dict[str, Any]) -> None:
    """Check the exact identity, the partition, equal budgets and the sums of terms."""
    states = index_rows(results["states"], "split", "state")
    sizes = {state: states["audit", state]["problems"] for state in "GSU"}
    conditions = index_rows(results["conditions"], "condition")
    n = results["run"][0]["problems"]
    assert sum(sizes.values()) == n
    assert conditions["source"]["pass_at_1"] == sizes["G"] / n
    curve = [row["rate"] for row in results["curve"] if row["label"].startswith("Pass@")]
    assert curve == sorted(curve)
    for row in results.get("seeds", ()):
        check_seed(row, sizes, n)
    budgets = {
        tuple(row[key] for key in ("slots", "exposures", "steps"))
        for row in results.get("seeds", ())
        if row["condition"] in MATCHED
    }
    assert len(budgets) <= 1
    for row in results.get("decomposition", ()):
        change = row["term_S"] + row["term_U"] + row["term_G"]
        assert abs(change - conditions[row["condition"]]["change"]) < 1e-12
    for row in results.get("contrasts", ()):
        assert abs(row["term_S"] + row["term_U"] + row["term_G"] - row["delta"]) < 1e-12
        assert row["delta_low"] <= row["delta"] <= row["delta_high"]


def check_seed(row: dict[str, Any], sizes: dict[str, int], n: int) -> None:
    """Check that an arm's counts by state give its Pass@1."""
    assert [row[f"n_{state.lower()}"] for state in "GSU"] == [sizes[state] for state in "GSU"]
    assert row["correct"] == (
        sizes["G"] + row["corrected_s"] + row["corrected_u"] - row["regressed_g"]
    )
    assert row["pass_at_1"] == float(Fraction(row["correct"], n))
