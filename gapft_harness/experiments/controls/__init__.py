"""The paper's controls: at one budget, which problems fill the slots (Section 5, Appendix B)."""

from __future__ import annotations

from gapft_harness.hooks.specs import hookimpl


def make_search_depth() -> object:
    """What each sample of search adds in place of replay (Table 2, panel A)."""
    from gapft_harness.experiments.controls.search_depth import SearchDepth

    return SearchDepth()


def make_randomized_inclusion() -> object:
    """What failures that only deep search recovers are worth (Table 2, panel B)."""
    from gapft_harness.experiments.controls.randomized_inclusion import RandomizedInclusion

    return RandomizedInclusion()


def make_gold_labels() -> object:
    """Failures chosen by gold answers against GapFT, on the same targets (Table 2, panel C)."""
    from gapft_harness.experiments.controls.gold_labels import GoldLabels

    return GoldLabels()


def make_shared_core() -> object:
    """Search depth and gold labels beside a core of every solved problem (Appendix B, older)."""
    from gapft_harness.experiments.controls.shared_core import SharedCore

    return SharedCore()


def make_full_pool() -> object:
    """Every verified problem once against as many draws with replacement (Appendix B)."""
    from gapft_harness.experiments.controls.coverage import FullPool

    return FullPool()


def make_coverage() -> object:
    """More problems against more exposures of each, at as many exposures in all (Table 3)."""
    from gapft_harness.experiments.controls.coverage import Coverage

    return Coverage()


def make_related() -> object:
    """What other methods select by, against GapFT and against random twins (Appendix B)."""
    from gapft_harness.experiments.controls.coverage import Related

    return Related()


@hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Registers the six. (Functions of the modules' names would be lost when these load.)"""
    register("search_depth", make_search_depth)
    register("randomized_inclusion", make_randomized_inclusion)
    register("gold_labels", make_gold_labels)
    register("shared_core", make_shared_core)
    register("full_pool", make_full_pool)
    register("coverage", make_coverage)
    register("related", make_related)
