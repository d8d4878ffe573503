"""The matched-diversity control: selections of the same strata and tokens (MATH, Table 3)."""

from __future__ import annotations

from gapft_harness.hooks.specs import hookimpl


def make_matched_diversity() -> object:
    """Selections that are matched to GapFT's in strata and supervised tokens (Tables 3 and 6)."""
    from gapft_harness.experiments.diversity.experiment import MatchedDiversity

    return MatchedDiversity()


@hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers it."""
    register("matched_diversity", make_matched_diversity)
