"""Named random streams: every draw derives from (seed, purpose, id), never from order."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def derive(*parts: object) -> int:
    """A 64-bit integer that depends on the parts alone, the same on every machine and run."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


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
