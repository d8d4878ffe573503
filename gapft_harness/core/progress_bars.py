"""Hide the progress bars of libraries, which would disturb our own display."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def hide_progress_bars() -> Iterator[None]:
    """Hide the progress bars of transformers."""
    from transformers.utils import logging

    were_shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_shown:
            logging.enable_progress_bar()


@contextlib.contextmanager
def hide_data_progress_bars() -> Iterator[None]:
    """Hide the progress bars of datasets."""
    from datasets.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    were_hidden = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if not were_hidden:
            enable_progress_bars()
