"""What a recipe says of the scope matrix: at which search budgets."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gapft_harness.stages.experiment.adapters import OfAdapters
from gapft_harness.stages.search.states import Window


class ScopeSettings(OfAdapters):
    """What a recipe says under ``experiments.scope``; the defaults are the paper's."""

    k: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (4, 8), min_length=1, description="search budgets K: the first K samples of the search"
    )

    def windows(self) -> list[Window]:
        """Nested windows, which begin with the first sample; each K once, ascending."""
        return [Window(0, k) for k in sorted({*self.k})]
