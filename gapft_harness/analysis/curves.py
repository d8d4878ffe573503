"""Compare two Pass@k curves with a simultaneous band over all k, training seeds and problems.

Problems and seeds are crossed: every seed answers every problem. The difference of the curves has a
variance component of the problems and one of the seeds; each is estimated without the noise that
it shares with the other. With few seeds, the estimate of the second is itself uncertain, so each
draw for the band divides it by a chi-square draw (the Behrens-Fisher approach to a sum of two
variances).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.pass_at_k import pass_at_k
from gapft_harness.core.streams import Stream

#: Draws of the largest deviation over all k.
DRAWS = 10_000
#: The level of the band.
_LEVEL = 0.95
#: Standard errors below this are treated as rounding errors.
_ROUNDING = 1e-7


@dataclass(frozen=True, slots=True)
class CurveDifference:
    """Pass@k after minus before, at K values of k.

    Attributes:
        k: the values of k, in ascending order.
        before: shape (K,), Pass@k before training, a fraction.
        after: shape (K,), Pass@k after training, mean over seeds.
        low: shape (K,), the lower end of a simultaneous 95% band over all k; None if there is only
            one cluster of problems.
        high: shape (K,), the upper end.
        seeds: the number of training seeds; for one, the band covers only problems.
    """

    k: tuple[int, ...]
    before: NDArray[np.float64]
    after: NDArray[np.float64]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    seeds: int

    @property
    def difference(self) -> NDArray[np.float64]:
        """After minus before, shape (K,)."""
        return self.after - self.before

    @property
    def behind(self) -> int | None:
        """The first k at which Pass@k is lower after training; None if there is none."""
        return next(
            (k for k, value in zip(self.k, self.difference, strict=True) if value < 0), None
        )

    @property
    def behind_set(self) -> tuple[int | None, ...]:
        """A 95% confidence set for ``behind``: its values for all curves inside the band.

        It contains None if a curve inside the band is below at no k. The confidence follows
        from the band, which is simultaneous over all k.
        """
        if self.low is None or self.high is None:
            return (*self.k, None)
        candidates: list[int | None] = []
        for k, low, high in zip(self.k, self.low, self.high, strict=True):
            if low < 0:
                candidates.append(k)
            if high < 0:
                return tuple(candidates)
        return (*candidates, None)


def compare_curves(
    before: NDArray[np.integer],
    samples_before: int,
    after: NDArray[np.integer],
    samples_after: int,
    ks: Sequence[int],
    *,
    clusters: NDArray[np.int64] | None = None,
    all_right: bool = False,
    stream: Stream,
) -> CurveDifference:
    """Compare the curve of a model before training with those of one or more training seeds.

    Args:
        before: shape (P,), the number of passing samples of each problem, P >= 1; or shape (S, P)
            if the baseline was trained with the same seeds.
        samples_before: the number of samples of every problem.
        after: shape (S, P), the same for each training seed.
        samples_after: the number of samples of every problem under every seed.
        ks: values of k in ascending order, at most the smaller number of samples.
        clusters: shape (P,), the cluster of each problem, numbered from 0, if problems are not
            independent. Default: every problem is a cluster.
        all_right: compare pass^k (all k samples pass) instead of Pass@k (at least one passes).
        stream: the random stream of the band.

    Raises:
        ValueError: k is outside 1..n, or a count outside 0..n.
    """

    def compute_curve(passing: NDArray[np.integer], samples: int) -> NDArray[np.float64]:
        if all_right:  # 1 minus the probability that k samples contain a failed one
            estimates = [1 - pass_at_k(samples - passing, samples, k) for k in ks]
        else:
            estimates = [pass_at_k(passing, samples, k) for k in ks]
        return np.stack(estimates, axis=-1)

    source, tuned = compute_curve(before, samples_before), compute_curve(after, samples_after)
    differences = tuned - source
    half = _compute_half_widths(differences, clusters, stream)
    middle = differences.mean(axis=(0, 1))
    return CurveDifference(
        tuple(ks),
        source.reshape(-1, len(ks)).mean(axis=0),
        tuned.mean(axis=(0, 1)),
        None if half is None else middle - half,
        None if half is None else middle + half,
        len(after),
    )


def _compute_half_widths(
    differences: NDArray[np.float64], clusters: NDArray[np.int64] | None, stream: Stream
) -> NDArray[np.float64] | None:
    """Compute half the band's width at each k, from differences of shape (S, P, K)."""
    seeds, problems, _ = differences.shape
    cluster_ids = np.arange(problems) if clusters is None else clusters
    units = int(cluster_ids.max()) + 1
    if units < 2:
        return None
    centred = differences - differences.mean(axis=(0, 1))
    summed = np.zeros((seeds, units, differences.shape[2]))
    for row, rows in zip(summed, centred, strict=True):
        np.add.at(row, cluster_ids, rows)
    scale = units / (units - 1) / problems**2
    by_unit = summed.mean(axis=0)
    problem_covariance = scale * by_unit.T @ by_unit
    seed_covariance = np.zeros_like(problem_covariance)
    if seeds > 1:
        by_seed = centred.mean(axis=1)
        sizes = np.bincount(cluster_ids)[:, None]
        rest = (summed - by_unit - by_seed[:, None] * sizes).reshape(-1, differences.shape[2])
        shared = scale * rest.T @ rest / (seeds * (seeds - 1))
        seed_covariance = by_seed.T @ by_seed / (seeds * (seeds - 1)) - shared
    random = stream.generator()
    root = _compute_root(seed_covariance)
    spread: NDArray[np.float64] = np.sqrt(np.diag(problem_covariance) + (root**2).sum(axis=1))
    deviations = _draw_normal(random, _compute_root(problem_covariance))
    if seeds > 1:
        chance = random.chisquare(seeds - 1, size=(DRAWS, 1)) / (seeds - 1)
        deviations += _draw_normal(random, root) / np.sqrt(chance)
    varies = spread > _ROUNDING
    if not varies.any():
        return np.zeros_like(spread)
    largest = np.max(np.abs(deviations[:, varies]) / spread[varies], axis=1)
    half: NDArray[np.float64] = np.quantile(largest, _LEVEL) * np.where(varies, spread, 0)
    return half


def _compute_root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute the symmetric root of a covariance, with negative eigenvalues set to 0.

    With the symmetric root, draws do not depend on the order or sign of the eigenvectors.
    """
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root: NDArray[np.float64] = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    return root


def _draw_normal(random: np.random.Generator, root: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draw from a normal distribution with covariance ``root @ root.T``, shape (DRAWS, K)."""
    drawn: NDArray[np.float64] = random.standard_normal((DRAWS, len(root))) @ root.T
    return drawn
