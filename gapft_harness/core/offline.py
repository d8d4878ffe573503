"""Keep Hugging Face's libraries from accessing the network."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_VARIABLES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")


@contextlib.contextmanager
def force_offline() -> Iterator[None]:
    """Set the offline variables of Hugging Face's libraries, and restore them at the end.

    The libraries read the variables when they are first imported. If that happens within the
    context, they stay offline for the rest of the process.
    """
    saved = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(dict.fromkeys(_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
