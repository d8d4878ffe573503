"""How often a process of ours looks for garbage."""

from __future__ import annotations

import gc


def collect_seldom() -> None:
    """Looks after 10,000 new objects and not after 700 or 2,000, as Python by itself does.

    Importing torch, transformers and lm_eval makes hundreds of thousands of objects and next to no
    garbage: a sixth of that time went into looking for it.
    """
    gc.set_threshold(10_000)
