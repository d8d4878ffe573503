"""Controls: vary which problems fill the slots at one budget (Sections 5 and 6.2, Appendix B)."""

from __future__ import annotations

from gapft_harness import api
from gapft_harness.experiments.controls.coverage import CoverageControl, FullPoolControl
from gapft_harness.experiments.controls.diversity import MatchedDiversity
from gapft_harness.experiments.controls.search import GoldLabels, RandomizedInclusion, SearchDepth
from gapft_harness.experiments.controls.shared_core import SharedCore


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register the seven controls."""
    controls = (
        SearchDepth, RandomizedInclusion, GoldLabels, SharedCore, FullPoolControl, CoverageControl,
        MatchedDiversity,
    )  # fmt: skip
    for control in controls:
        register(control.name, control)
