"""Simulated studies of trained models whose Pass@k curves are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

#: Samples of each problem, before and after.
SAMPLES = 8
KS = tuple(range(1, SAMPLES + 1))
#: Both parameters of the beta distribution of the source's chances: many near 0 and near 1.
_SHAPE = 0.4
#: Standard deviation, in logits, of a seed's independent effect on each problem.
_PROBLEM_EFFECT = 0.4
#: Effect of training on a problem's logit: none, or it raises high logits and lowers low ones, so
#: that the curves cross.
EFFECTS: dict[str, Callable[[Array], Array]] = {
    "none": np.zeros_like,
    "crossing": lambda logits: np.where(logits > -1.5, 0.7, -1.2),
}
#: Standard deviations, in logits, of a training seed's effect on all problems together.
SEED_EFFECTS = (0.05, 0.15, 0.4)
_TRUTH_PROBLEMS = 400_000


def simulate_studies(
    effect: str, seed_effect: float, seeds: int, problems: int, count: int, seed: int
) -> Iterator[tuple[Counts, Counts]]:
    """Yield passing samples before, shape (P,), and after, shape (S, P), of each study."""
    rng = np.random.default_rng([seed, *effect.encode(), round(100 * seed_effect), seeds, problems])
    for _ in range(count):
        logits = _draw_logits(rng, problems)
        after = _apply_training(rng, logits, effect, seed_effect, (seeds, 1))
        yield rng.binomial(SAMPLES, expit(logits)), rng.binomial(SAMPLES, expit(after))


def compute_true_curves(effect: str, seed_effect: float, seed: int = 0) -> tuple[Array, Array]:
    """Return Pass@k before and after over all problems and training seeds, shape (K,) each."""
    rng = np.random.default_rng([seed, 1])
    logits = _draw_logits(rng, _TRUTH_PROBLEMS)
    after = _apply_training(rng, logits, effect, seed_effect, (_TRUTH_PROBLEMS,))
    return _compute_curve(expit(logits)), _compute_curve(expit(after))


def _draw_logits(rng: np.random.Generator, problems: int) -> Array:
    return np.asarray(logit(rng.beta(_SHAPE, _SHAPE, problems).clip(1e-4, 1 - 1e-4)))


def _apply_training(
    rng: np.random.Generator, logits: Array, effect: str, seed_effect: float, shape: tuple[int, ...]
) -> Array:
    """Add a training seed's effects: a shift of all problems and a slope with difficulty."""
    level, slope = rng.normal(0, seed_effect, shape), rng.normal(0, seed_effect, shape)
    moved = logits + EFFECTS[effect](logits) + level + slope * logits / 3
    return np.asarray(moved + rng.normal(0, _PROBLEM_EFFECT, moved.shape))


def _compute_curve(chances: Array) -> Array:
    return np.array([(1 - (1 - chances) ** k).mean() for k in KS])
