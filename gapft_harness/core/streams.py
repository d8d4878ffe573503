"""Named random streams: every draw derives from (seed, purpose, id), never from order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def derive(*parts: object) -> int:
    """A 64-bit integer that depends on the parts alone, the same on every machine and run."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


#: Odd in every number of its low bits, so that consecutive samples of one problem have different
#: seeds, also where a server keeps 31 bits of them.
_STRIDE = 0x1E3779B97F4A7C15

#: Seeds are whole numbers below this: they fit signed integers of 64 bits.
SEEDS = 2**63


@dataclass(frozen=True, slots=True)
class SampleStreams:
    """The random streams of a split's samples, one for each.

    A stream depends on nothing but what is named here and in ``seeds_of``: on no arm's name,
    chunk, worker, batch or place in one.

    Attributes:
        seed: ``search.seed``.
        purpose: what the samples are drawn for, e.g. ``search``.
        split: whose problems they answer.
        training_seed: of samples of a trained adapter, its training seed.
    """

    seed: int
    purpose: str
    split: str
    training_seed: int | None = None

    def seeds_of(self, problem_id: str, attempt: int, indices: Sequence[int]) -> tuple[int, ...]:
        """Compute the seeds of one problem's samples, below ``SEEDS``; all of them differ.

        Args:
            problem_id: the problem.
            attempt: in an episode, which attempt, from 1.
            indices: samples' numbers, from 0; a negative one is a greedy decode's, whose seed is 0.
        """
        named = (self.seed, self.purpose, self.split, problem_id, attempt, self.training_seed)
        first = derive(*named)
        return tuple(0 if i < 0 else (first + i * _STRIDE) % SEEDS for i in indices)


@dataclass(frozen=True, slots=True)
class Stream:
    """One purpose's randomness under one seed.

    >>> Stream(13, "select/uniform").key("a") == Stream(13, "select/uniform").key("a")
    True
    """

    seed: int
    purpose: str

    def key(self, item: str) -> int:
        """A 64-bit key of one item; sorting items by it is a uniform shuffle."""
        return derive(self.seed, self.purpose, item)

    def child(self, purpose: str) -> Stream:
        """An independent stream for a part of this purpose."""
        return Stream(self.seed, f"{self.purpose}/{purpose}")

    def generator(self) -> np.random.Generator:
        """A numpy generator, where one call needs many numbers."""
        import numpy as np

        return np.random.Generator(np.random.PCG64(derive(self.seed, self.purpose)))
