"""Named random streams: every draw depends on (seed, purpose, id), never on the order of draws."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def derive_key(*parts: object) -> int:
    """Derive a 64-bit integer from the parts alone; it is the same on every machine and run."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


#: An odd number, so that consecutive samples of one problem have different seeds, even if a server
#: keeps only the low 31 bits.
_STRIDE = 0x1E3779B97F4A7C15

#: Seeds are non-negative integers below this, so they fit signed 64-bit integers.
SEED_LIMIT = 2**63


@dataclass(frozen=True, slots=True)
class SampleStreams:
    """The random streams of a split's samples, one stream for each sample.

    A stream depends only on these attributes and the arguments of ``derive_seeds``, not on the
    arm's name, the chunk, the worker, the batch or the position in a batch.

    Attributes:
        seed: ``search.seed``.
        purpose: the purpose of the samples, e.g. ``search``.
        split: the split of the problems.
        training_seed: the training seed of the adapter that generates; None for the source.
    """

    seed: int
    purpose: str
    split: str
    training_seed: int | None = None

    def derive_seeds(
        self,
        problem_id: str,
        attempt: int,
        indices: Sequence[int],
        samples_deployment: bool = False,
    ) -> tuple[int, ...]:
        """Compute the seeds of one problem's responses, below ``SEED_LIMIT``; all of them differ.

        Args:
            problem_id: the problem.
            attempt: the number of the attempt in an episode, from 1.
            indices: the samples' numbers, from 0; -1 is the deployment decode.
            samples_deployment: whether the deployment decode is sampled; otherwise it is greedy,
                with seed 0.
        """
        parts = (self.seed, self.purpose, self.split, problem_id, attempt, self.training_seed)
        first = derive_key(*parts)
        return tuple(
            0 if i < 0 and not samples_deployment else (first + i * _STRIDE) % SEED_LIMIT
            for i in indices
        )


@dataclass(frozen=True, slots=True)
class Stream:
    """The random stream of one purpose under one seed.

    Attributes:
        seed: the training seed.
        purpose: a name such as ``select/uniform``; streams of two purposes are independent.

    >>> Stream(13, "select/uniform").key("a") == Stream(13, "select/uniform").key("a")
    True
    """

    seed: int
    purpose: str

    def key(self, item: str) -> int:
        """Return the 64-bit key of one item; sorting items by it is a uniform shuffle."""
        return derive_key(self.seed, self.purpose, item)

    def child(self, purpose: str) -> Stream:
        """Return an independent stream for a part of this purpose."""
        return Stream(self.seed, f"{self.purpose}/{purpose}")

    def generator(self) -> np.random.Generator:
        """Return a numpy generator, for calls that need many numbers."""
        import numpy as np

        return np.random.Generator(np.random.PCG64(derive_key(self.seed, self.purpose)))
