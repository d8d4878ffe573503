"""The scope matrix as an experiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapft_harness.experiments.scope.settings import ScopeSettings
from gapft_harness.stages.search.windows import OnWindows

if TYPE_CHECKING:
    from gapft_harness.experiments.scope.report import ScopePart


class ScopeExperiment(OnWindows):
    """Every condition's decomposition at several search budgets, from one search."""

    name = stage = "scope"
    section = ScopeSettings

    def part(self) -> ScopePart:
        """Its section and table."""
        from gapft_harness.experiments.scope.report import ScopePart

        return ScopePart()
