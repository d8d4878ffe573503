"""Properties of every results.json."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

MATCHED = ("gapft", "uniform", "replay")


def check_results(results: dict[str, Any]) -> None:
    """Check the exact identity, the partition, equal budgets and the sums of terms."""
    source = results["source"]
    n = source["n"]
    assert sum(source["states"].values()) == n
    assert source["pass_at_1"] == source["states"]["G"] / n
    curve = [source["pass_at_k"][k] for k in sorted(source["pass_at_k"], key=int)]
    assert curve == sorted(curve)
    for condition in results["conditions"].values():
        for arm in condition["seeds"].values():
            check_arm(arm, source["states"], n)
    budgets = {
        tuple(arm["budget"][key] for key in ("n", "N", "J"))
        for name in MATCHED
        if name in results["conditions"]
        for arm in results["conditions"][name]["seeds"].values()
    }
    assert len(budgets) <= 1
    for contrast in results["contrasts"]:
        assert abs(sum(contrast["terms"].values()) - contrast["delta"]) < 1e-12
        assert contrast["ci95"][0] <= contrast["delta"] <= contrast["ci95"][1]


def check_arm(arm: dict[str, Any], states: dict[str, int], n: int) -> None:
    """Check A(post) - A(source) = p_S k_S + p_U k_U - p_G r_G in rational arithmetic."""
    counts = arm["counts"]
    corrected_s, corrected_u = counts["S_corrected"], counts["U_corrected"]
    regressed = counts["G_regressed"]
    post = (
        Fraction(states["G"], n)
        + Fraction(corrected_s, n)
        + Fraction(corrected_u, n)
        - Fraction(regressed, n)
    )
    assert post == Fraction(counts["correct"], n)
    assert arm["pass_at_1"] == float(post)
    assert arm["terms"] == {
        "S": float(Fraction(corrected_s, n)),
        "U": float(Fraction(corrected_u, n)),
        "G": float(Fraction(-regressed, n)),
    }
    for key, count, total in (
        ("kappa_S", corrected_s, states["S"]),
        ("kappa_U", corrected_u, states["U"]),
        ("rho_G", regressed, states["G"]),
    ):
        assert arm[key] == (count / total if total else None)
