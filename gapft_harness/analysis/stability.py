"""Stability of the split of source failures into S and U under different source samples.

See the paper's appendix "Stability Across Independent Source Samples": the partition is computed
from several independent sample sets, while the deployment decodes of the source and of the trained
models stay fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.decomposition import Decomposition, by_state

#: Quantities that are compared between partitions. The first three do not depend on the samples.
QUANTITIES: dict[str, Callable[[Decomposition], Fraction | None]] = {
    "total_gain": lambda part: part.terms.total,
    "G_regression": lambda part: -part.terms.g,
    "combined_correction": lambda part: part.terms.s + part.terms.u,
    "S_flow": lambda part: part.terms.s,
    "U_flow": lambda part: part.terms.u,
    "kappa_S": lambda part: part.kappa_s,
    "kappa_U": lambda part: part.kappa_u,
}


def measure_agreement(states: NDArray[np.str_]) -> dict[str, Fraction | int | None]:
    """Measure how far partitions of the same problems agree.

    Args:
        states: shape (W, P), W >= 2. ``G`` must be equal in all, since it does not depend on the
            samples.

    Returns:
        The number of ``source_failures``, of which all else is; without any it is None:
        ``unstable_share``, that is in S in one partition and in U in a different one;
        ``agreement``, with the same state in two partitions, mean over pairs of partitions; and
        ``S_jaccard``, |S_i ∩ S_j| / |S_i ∪ S_j|, mean over pairs; 1 for a pair without S.

    Raises:
        ValueError: there is only one partition, or the partitions differ in G.
    """
    if states.ndim != 2 or len(states) < 2:
        raise ValueError(f"expected two partitions or more, found shape {states.shape}")
    solved = states == "G"
    if (solved != solved[0]).any():
        raise ValueError("the partitions differ in G, so they are not of the same source")
    recovered = states[:, ~solved[0]] == "S"
    failures = recovered.shape[1]
    names = ("unstable_share", "agreement", "S_jaccard")
    if not failures:
        return {"source_failures": 0, **dict.fromkeys(names)}
    pairs = [*combinations(recovered, 2)]
    same = sum(int((a == b).sum()) for a, b in pairs)
    return {
        "source_failures": failures,
        "unstable_share": Fraction(int((recovered != recovered[0]).any(axis=0).sum()), failures),
        "agreement": Fraction(same, failures * len(pairs)),
        "S_jaccard": sum((_compute_jaccard(a, b) for a, b in pairs), Fraction(0)) / len(pairs),
    }


def compute_quantities(
    states: NDArray[np.str_], passed: NDArray[np.bool_]
) -> dict[str, tuple[Fraction | None, ...]]:
    """Compute the values of all ``QUANTITIES`` under every partition, means over seeds.

    Args:
        states: shape (W, P), the source states by partition.
        passed: shape (P,) or (S, P), V of each seed's decode.

    Returns:
        The values by quantity, in the order of the partitions; None if undefined.
    """
    parts = [by_state(partition, passed) for partition in states]
    return {name: tuple(map(quantity, parts)) for name, quantity in QUANTITIES.items()}


def summarize(values: Sequence[Fraction | None]) -> tuple[Fraction | None, Fraction | None]:
    """Return the mean of values, and the largest minus the smallest; None if one is undefined."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None, None
    return sum(known, Fraction(0)) / len(known), max(known) - min(known)


def _compute_jaccard(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> Fraction:
    either = int((a | b).sum())
    return Fraction(int((a & b).sum()), either) if either else Fraction(1)
