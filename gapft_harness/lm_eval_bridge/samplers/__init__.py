"""Samplers: lm-eval's models with exact token ids, seeds and adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # what plugins of 0.1 import from here
    from gapft_harness.hooks.old_names import names_of

    __getattr__ = names_of(
        __name__, "gapft_harness.lm_eval_bridge.samplers.text", "LmEvalSampler", "dummy_sampler"
    )
