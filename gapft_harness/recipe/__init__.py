"""One YAML file that says everything a run depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if not TYPE_CHECKING:  # what trainers of 0.1 import from here
    from gapft_harness.hooks.old_names import names_of

    __getattr__ = names_of(__name__, "gapft_harness.recipe.recipe", "Recipe", "Training")
