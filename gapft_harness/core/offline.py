"""Looks at what this machine has: inside, nothing is downloaded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_VARIABLES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


@contextlib.contextmanager
def offline() -> Iterator[None]:
    """Keeps Hugging Face's libraries off the net; the environment is afterwards as before.

    They read it when they are imported first. Where that is inside, they stay off the net.
    """
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
