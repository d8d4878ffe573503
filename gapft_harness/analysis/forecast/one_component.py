"""Whether one beta-binomial distribution fits: its maximum of likelihood, and a test of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats
from scipy.special import expit

from gapft_harness.analysis.forecast.distributions import log_pmf

#: Problems that a cell of the test is expected to have at least (Cochran 1954).
CELL = 5.0
#: A fit whose p value lies below is warned of.
REJECTED = 0.05


@dataclass(frozen=True, slots=True)
class OneComponent:
    """One beta-binomial distribution, as likely as it can make the counts.

    Attributes:
        alpha: its first shape.
        beta: its second.
        cells: into how many cells the counts 0 to n were put for the test.
        p_value: of Pearson's chi-squared test with cells - 3 degrees of freedom; None where that
            is 0 or less.
    """

    alpha: float
    beta: float
    cells: int
    p_value: float | None

    @property
    def rejected(self) -> bool:
        """Whether the test says that it does not fit."""
        return self.p_value is not None and self.p_value < REJECTED


def one_component(counts: NDArray[np.integer]) -> OneComponent:
    """Fits one component and tests it.

    Neighbouring counts are put together, from 0 on, until a cell is expected to have ``CELL``
    problems. Two parameters are estimated, from the counts apart rather than the cells, so the
    test's true level lies between those of cells - 3 and cells - 1 degrees of freedom (Chernoff
    and Lehmann 1954): it warns rather too often than too seldom.

    Args:
        counts: shape (n + 1,), how many problems passed 0, ..., n samples.
    """
    samples, problems = len(counts) - 1, int(counts.sum())

    def logs(point: NDArray[np.float64]) -> NDArray[np.float64]:
        mean, size = expit(point[0]), np.exp(point[1])
        return log_pmf(samples, np.asarray(mean * size), np.asarray((1 - mean) * size))

    found = optimize.minimize(
        lambda point, *_: -float(counts @ logs(point)),
        x0=np.zeros(2),
        method="Nelder-Mead",
        bounds=[(-12.0, 12.0), (-12.0, 12.0)],
        tol=1e-9,
    )
    expected = problems * np.exp(logs(found.x))
    cells: list[list[float]] = [[0.0, 0.0]]
    for seen, due in zip(counts, expected, strict=True):
        if cells[-1][1] >= CELL:
            cells.append([0.0, 0.0])
        cells[-1][0] += float(seen)
        cells[-1][1] += float(due)
    if cells[-1][1] < CELL and len(cells) > 1:
        last = cells.pop()
        cells[-1] = [a + b for a, b in zip(cells[-1], last, strict=True)]
    table = np.array(cells)
    p_value = None
    if len(cells) > 3:
        distance = float((((table[:, 0] - table[:, 1]) ** 2) / table[:, 1]).sum())
        p_value = float(stats.chi2.sf(distance, len(cells) - 3))
    mean, size = float(expit(found.x[0])), float(np.exp(found.x[1]))
    return OneComponent(mean * size, (1 - mean) * size, len(cells), p_value)
