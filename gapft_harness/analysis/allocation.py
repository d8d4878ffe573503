"""Compare coverage and repetition on the training problems (Equation 10).

A fixed budget is spent on two halves A and B once each (``diffuse``), or on A twice
(``concentrated``). With a_C(r) the success rate on half C after r exposures,

    contrast = 1/2 [a_B(1) - a_B(0)] - 1/2 [a_A(2) - a_A(1)]
             = 1/2 coverage gain     - 1/2 repetition loss

For halves of equal size, the contrast is the mean over both halves of diffuse minus concentrated. A
positive contrast favors coverage.
The functions take scores with the rows ``A`` and ``B`` (whether a seed trained on the problem as a
part of this half) and ``diffuse`` and ``concentrated`` (whether the model solves it; ignored
outside the halves). No half may be empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.estimate import (
    Estimate,
    estimate_mean,
    estimate_paired_difference,
    estimate_share,
)
from gapft_harness.analysis.resampling import (
    Scores,
    average_estimates,
    draw_seed_weights,
    sum_draws,
)
from gapft_harness.core.errors import GapftError
from gapft_harness.core.streams import Stream

Value = TypeVar("Value", Fraction, NDArray[np.float64])

#: The success rates a_C(r): the half C, and the model that had r exposures to it.
RATES = {
    "a_A_1": ("A", "diffuse"),
    "a_A_2": ("A", "concentrated"),
    "a_B_0": ("B", "concentrated"),
    "a_B_1": ("B", "diffuse"),
}

#: The differences of two rates of one half: the rate after more exposures, and the one before.
_DIFFERENCES = {"coverage_gain": ("a_B_1", "a_B_0"), "repetition_loss": ("a_A_2", "a_A_1")}

#: Draws per requested replicate after which the halves count as too small to resample.
_MAX_DRAW_FACTOR = 1000


def compute_by_seed(scores: Scores) -> dict[int, dict[str, Fraction]]:
    """Compute the exact rates and differences of each seed."""
    solved = _select_solved(scores)
    return {
        seed: _add_differences(
            {
                name: Fraction(int(solved[name][row].sum()), int(solved[half][row].sum()))
                for name, (half, _) in RATES.items()
            }
        )
        for row, seed in enumerate(scores.seeds.tolist())
    }


def estimate_allocation(scores: Scores, replicates: int, stream: Stream) -> dict[str, Estimate]:
    """Estimate the means over seeds of all rates and differences, with equal weights.

    Where resampling shows no variation, the interval is Wilson's for a rate, Newcombe's for a gain
    or loss, and for the contrast the mean of those of gain and loss.

    Raises:
        GapftError: the halves are so small that almost every draw is rejected.
    """
    seeds = compute_by_seed(scores).values()
    drawn = replicate_allocation(scores, replicates, stream)
    estimates: dict[str, Estimate] = {}
    for name, values in drawn.items():
        value = sum((seed[name] for seed in seeds), Fraction(0)) / len(seeds)
        estimate = estimate_mean(value, values)
        if estimate.low == estimate.high and name == "contrast":
            parts = [estimates["coverage_gain"], -estimates["repetition_loss"]]
            estimate = average_estimates(value, parts)
        elif estimate.low == estimate.high:
            estimate = _estimate_without_variation(value, scores, name)
        estimates[name] = estimate
    return estimates


def _estimate_without_variation(value: Fraction, scores: Scores, name: str) -> Estimate:
    """Estimate a rate, or a difference of the rates of one half, from the half's problems."""
    last, *first = [RATES[rate] for rate in _DIFFERENCES.get(name, (name,))]
    inside = scores.rows[last[0]] == 1
    problems = int(inside.any(axis=0).sum())  # problems of several seeds count once
    if not first:
        return estimate_share(value, problems)
    before, after = ((scores.rows[model][inside] == 1).astype(float) for _, model in (*first, last))
    return estimate_paired_difference(value, before, after, problems)


def replicate_allocation(
    scores: Scores, replicates: int, stream: Stream
) -> dict[str, NDArray[np.float64]]:
    """Draw paired bootstrap replicates. The order of problems and of seeds does not matter.

    A replicate draws training seeds, the same for both models, and problems from the union of all
    halves, the same for both models and all seeds: a problem that two seeds trained on has one
    weight. The success rate is the weighted mean within each half of each drawn seed. A draw in
    which a half of any seed has no weight is rejected and repeated, so the replicates are
    conditional on every half being drawn; for halves of 10 or more, rejection is rare.

    Returns:
        Means over the drawn seeds, each of shape (B,).

    Raises:
        GapftError: the halves are so small that almost every draw is rejected.
    """
    solved = _select_solved(scores)
    seeds = len(scores.seeds)
    columns = Scores(solved, scores.seeds, scores.items).stack_columns()
    sums = np.split(_draw_sums(columns, 2 * seeds, replicates, stream), len(solved), axis=1)
    by_seed = dict(zip(solved, sums, strict=True))
    weights = draw_seed_weights(seeds, replicates, stream)
    return _add_differences(
        {
            name: (by_seed[name] / by_seed[half] * weights).sum(axis=1) / seeds
            for name, (half, _) in RATES.items()
        }
    )


def _select_solved(scores: Scores) -> dict[str, NDArray[np.bool_]]:
    """Return both halves, and the solved problems of each rate's half; each shape (S, P)."""
    rows: dict[str, NDArray[np.bool_]] = {name: scores.rows[name] == 1 for name in "AB"}
    for name, (half, model) in RATES.items():
        rows[name] = rows[half] & (scores.rows[model] == 1)
    return rows


def _add_differences(rates: Mapping[str, Value]) -> dict[str, Value]:
    gain, loss = (rates[after] - rates[before] for after, before in _DIFFERENCES.values())
    contrast = (gain - loss) / 2
    return {**rates, "coverage_gain": gain, "repetition_loss": loss, "contrast": contrast}


def _draw_sums(
    columns: NDArray[np.float64], halves: int, replicates: int, stream: Stream
) -> NDArray[np.float64]:
    """Draw column sums, and return those of the first B accepted draws.

    A draw is accepted if the first ``halves`` columns all have a positive sum. The draws come from
    one sequence.
    """
    generator = stream.child("items").generator()
    accepted: list[NDArray[np.float64]] = []
    missing = replicates
    drawn = 0
    while missing:
        if drawn >= _MAX_DRAW_FACTOR * replicates:
            raise GapftError(
                f"the halves are too small to resample: only {replicates - missing} of {drawn} "
                "draws contain a problem of every half of every seed; increase budget.n, or "
                "remove the key allocation"
            )
        sums = sum_draws(columns, missing, generator)
        drawn += missing
        accepted.append(sums[(sums[:, :halves] > 0).all(axis=1)])
        missing -= len(accepted[-1])
    return np.concatenate(accepted)
