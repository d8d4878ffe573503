"""Assess whether the effect of training on recovered problems exceeds retraining noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gapft_harness.analysis.power import find_detectable_effect
from gapft_harness.gap.findings import GapFindings
from gapft_harness.report.rendering.wording import format_count, listed, percent, points

#: Share of decisions that differed between two trainings with the same seed and data, LogiQA 2.0
#: (the paper, Appendix A, "Method Details": Reproducibility).
DISCORDANCE = 331 / 1367
#: Share of recovered audit failures that training corrects: the paper's range over its three
#: models (Section 6, "between two fifths and two thirds").
CORRECTED = (2 / 5, 2 / 3)


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned training, with the assumptions of the power formula.

    Attributes:
        seeds: number of training seeds; None: the recipe's.
        items: number of audit items; None: those of the searched audit.
        discordance: share of decisions in which two trained models differ.
        shared: share of the variance of these differences that all seeds have in common.
    """

    seeds: int | None = None
    items: int | None = None
    discordance: float = DISCORDANCE
    shared: float = 0.0


@dataclass(frozen=True, slots=True)
class TrainingAdvice:
    """The answer, with its reasons in a few sentences."""

    answer: Literal["worth training", "may be too little to see", "not worth training"]
    why: str


@dataclass(frozen=True, slots=True)
class Prospects:
    """The effects that a planned training can detect.

    Attributes:
        seeds: number of training seeds.
        items: number of audit items.
        discordance: see ``Plan``.
        shared: see ``Plan``.
        detectable: by number of seeds, the smallest effect found with power 80%; None: none.
        verdict: whether training is worth it.
    """

    seeds: int
    items: int
    discordance: float
    shared: float
    detectable: Mapping[int, float | None]
    verdict: TrainingAdvice

    @property
    def power(self) -> str:
        """The detectable effects in a sentence."""
        seeds = listed([str(count) for count in self.detectable])
        effects = [
            "none" if least is None else points(least, 2) for least in self.detectable.values()
        ]
        return (
            f"Differences found with probability 80% on {format_count(self.items)} audit items "
            f"(two-sided paired test, level 5%), with {seeds} training seeds: {listed(effects)} "
            f"points. Assumed: two trained models differ on {percent(self.discordance)} of the "
            f"items; {percent(self.shared, 0)} of the variance of their differences is shared by "
            "all seeds."
        )


def assess(plan: Plan, splits: Mapping[str, GapFindings], seeds: int) -> Prospects | None:
    """Compare the possible gain of training with the effect that seeds and items can detect.

    Args:
        plan: the planned training.
        splits: the searched splits; the gain is judged on the audit, else on the pool.
        seeds: number of seeds in the recipe.

    Returns:
        The prospects; None without a searched audit and without a number of items in the plan.
    """
    judged = splits.get("audit") or splits["pool"]
    items = plan.items or ("audit" in splits and len(judged.verdicts.passing))
    if not items:
        return None
    pool = splits.get("pool")
    verdict = None
    if pool is not None and not pool.verdicts.sizes["S"]:
        verdict = TrainingAdvice(
            "not worth training",
            f"Search recovered none of the {format_count(pool.verdicts.sizes['U'])} pool problems "
            "that one decode missed: there is nothing to train on. Search deeper (search.k), at a "
            "higher temperature, or choose an easier pool.",
        )
    p_s = float(judged.shares["S"].value)
    evidence = (
        f"Search recovers {percent(p_s)} of the problems "
        f"({format_count(judged.verdicts.sizes['S'])} of "
        f"{format_count(len(judged.verdicts.passing))})"
    )
    seeds = plan.seeds or seeds
    least = {
        n: find_detectable_effect(
            seeds=n, items=items, discordance=plan.discordance, shared=plan.shared
        )
        for n in sorted({1, 3, 5, 10, seeds})
    }
    return Prospects(
        *(seeds, items, plan.discordance, plan.shared, least),
        verdict or _compare_gain(p_s, evidence, seeds, items, least[seeds]),
    )


def _compare_gain(
    p_s: float, evidence: str, seeds: int, items: int, least: float | None
) -> TrainingAdvice:
    """Compare the S term of the gain with the smallest detectable effect.

    The S term p_S kappa_S is the gain from correcting recovered failures. It is at most p_S, and
    between 2/5 and 2/3 of it at the paper's correction rates. If even p_S, or 2/3 of it, is below
    the detectable effect, training is not worth it.
    """
    plan = f"{_format_seeds(seeds)} and {format_count(items)} audit items"
    if least is None:
        return TrainingAdvice(
            "not worth training",
            f"{plan.capitalize()} cannot distinguish any effect from retraining noise: add items.",
        )
    low, high = (share * p_s for share in CORRECTED)
    gain = (
        f"{evidence}; correcting two fifths to two thirds of them, the paper's range, adds "
        f"{points(low)} to {points(high)} points, and {plan} detect {points(least)} or more."
    )
    if high < least:
        reason = (
            "Even correcting all of them would not exceed retraining noise. This is the "
            "paper's case of Qwen2.5-7B, whose one decode solves nearly all that search can reach."
            if p_s < least
            else "This does not exceed retraining noise; more seeds or items may help."
        )
        return TrainingAdvice("not worth training", f"{gain} {reason}")
    if low < least:
        return TrainingAdvice(
            "may be too little to see",
            f"{gain} The lower end does not exceed noise; more seeds or items would help.",
        )
    return TrainingAdvice("worth training", f"{gain} So the expected effect can be detected.")


def _format_seeds(count: int) -> str:
    return f"{count} training seed{'s' if count > 1 else ''}"
