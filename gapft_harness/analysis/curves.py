"""Two Pass@k curves compared at every k at once, over training seeds and problems together.

Problems and seeds are crossed: every seed answers every problem. The difference of the curves has a
part that varies with the problems and one that varies with the seeds, each estimated without the
noise that the other holds too. Of few seeds the second is uncertain itself: what is drawn for the
band divides it by a chi-square draw (Behrens and Fisher's way for a sum of two variances).
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
#: The band's level.
_LEVEL = 0.95
#: Standard errors below this are those of rounding.
_ROUNDING = 1e-7


@dataclass(frozen=True, slots=True)
class CurveDifference:
    """Pass@k after minus before, at K values of k.

    Attributes:
        k: the values, rising.
        before: shape (K,), Pass@k before, a fraction.
        after: shape (K,), after, mean over seeds.
        low: shape (K,), the lower end of a 95% band that holds at all k together; None where one
            unit says nothing of others.
        high: shape (K,), the upper end.
        seeds: training seeds; of one, the band is over problems alone.
    """

    k: tuple[int, ...]
    before: NDArray[np.float64]
    after: NDArray[np.float64]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    seeds: int

    @property
    def difference(self) -> NDArray[np.float64]:
        """Shape (K,)."""
        return self.after - self.before

    @property
    def behind(self) -> int | None:
        """The first k at which Pass@k after lies below; None: it does at none."""
        return next((k for k, one in zip(self.k, self.difference, strict=True) if one < 0), None)

    @property
    def behind_set(self) -> tuple[int | None, ...]:
        """Every first k that some curve inside the band has; None among them: it may be none.

        With 95% confidence it holds the true one, for the band holds at all k together.
        """
        if self.low is None or self.high is None:
            return (*self.k, None)
        held: list[int | None] = []
        for k, low, high in zip(self.k, self.low, self.high, strict=True):
            if low < 0:
                held.append(k)
            if high < 0:
                return tuple(held)
        return (*held, None)


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
    """Compares the curves of one model before and of one or more training seeds after.

    Args:
        before: shape (P,), how many of a problem's samples passed, P >= 1; or (S, P), where what is
            compared with has the same training seeds.
        samples_before: samples of every problem.
        after: shape (S, P), the same of each training seed.
        samples_after: samples of every problem under every seed.
        ks: up to the smaller number of samples, rising.
        clusters: shape (P,), of problems that are not independent; numbers from 0. Default: each
            is one.
        all_right: of pass^k, whether all k samples pass, in place of Pass@k, whether one does.
        stream: randomness of the band.

    Raises:
        ValueError: as ``pass_at_k``.
    """

    def curve(passing: NDArray[np.integer], samples: int) -> NDArray[np.float64]:
        if all_right:  # no choice of k holds one that failed
            each = [1 - pass_at_k(samples - passing, samples, k) for k in ks]
        else:
            each = [pass_at_k(passing, samples, k) for k in ks]
        return np.stack(each, axis=-1)

    source, tuned = curve(before, samples_before), curve(after, samples_after)
    differences = tuned - source
    half = _half_widths(differences, clusters, stream)
    middle = differences.mean(axis=(0, 1))
    return CurveDifference(
        tuple(ks),
        source.reshape(-1, len(ks)).mean(axis=0),
        tuned.mean(axis=(0, 1)),
        None if half is None else middle - half,
        None if half is None else middle + half,
        len(after),
    )


def _half_widths(
    differences: NDArray[np.float64], clusters: NDArray[np.int64] | None, stream: Stream
) -> NDArray[np.float64] | None:
    """Half the band's width at each k, from differences of shape (S, P, K)."""
    seeds, problems, _ = differences.shape
    own = np.arange(problems) if clusters is None else clusters
    units = int(own.max()) + 1
    if units < 2:
        return None
    centred = differences - differences.mean(axis=(0, 1))
    summed = np.zeros((seeds, units, differences.shape[2]))
    for one, rows in zip(summed, centred, strict=True):
        np.add.at(one, own, rows)
    scale = units / (units - 1) / problems**2
    by_unit = summed.mean(axis=0)
    of_problems = scale * by_unit.T @ by_unit
    of_seeds = np.zeros_like(of_problems)
    if seeds > 1:
        by_seed = centred.mean(axis=1)
        sizes = np.bincount(own)[:, None]
        rest = (summed - by_unit - by_seed[:, None] * sizes).reshape(-1, differences.shape[2])
        shared = scale * rest.T @ rest / (seeds * (seeds - 1))
        of_seeds = by_seed.T @ by_seed / (seeds * (seeds - 1)) - shared
    random = stream.generator()
    root = _root(of_seeds)
    spread: NDArray[np.float64] = np.sqrt(np.diag(of_problems) + (root**2).sum(axis=1))
    deviations = _normal(random, _root(of_problems))
    if seeds > 1:
        chance = random.chisquare(seeds - 1, size=(DRAWS, 1)) / (seeds - 1)
        deviations += _normal(random, root) / np.sqrt(chance)
    varies = spread > _ROUNDING
    if not varies.any():
        return np.zeros_like(spread)
    largest = np.max(np.abs(deviations[:, varies]) / spread[varies], axis=1)
    half: NDArray[np.float64] = np.quantile(largest, _LEVEL) * np.where(varies, spread, 0)
    return half


def _root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """The symmetric root of a covariance without what is negative: no order turns its draws."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    root: NDArray[np.float64] = vectors * np.sqrt(np.maximum(values, 0)) @ vectors.T
    return root


def _normal(random: np.random.Generator, root: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draws of a covariance, shape (DRAWS, K)."""
    drawn: NDArray[np.float64] = random.standard_normal((DRAWS, len(root))) @ root.T
    return drawn
