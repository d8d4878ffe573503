"""From a response's text to a verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # what plugins of 0.1 import from here
    from gapft_harness.hooks.old_names import names_of

    __getattr__ = names_of(__name__, "gapft_harness.verification.judging", "once_each")
