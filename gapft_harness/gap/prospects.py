"""Whether training on recovered problems can be told from retraining noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gapft_harness.analysis.power import detectable
from gapft_harness.gap.findings import GapFindings
from gapft_harness.report.rendering.wording import listed, percent, points, whole

#: Decisions that differed between two trainings with one seed and the same data, LogiQA 2.0
#: (the paper, appendix "Implementation Details", Reproducibility).
DISCORDANCE = 331 / 1367
#: Share of recovered audit failures that training corrects: the paper's range over its three
#: models (Section 5, "between two fifths and two thirds").
CORRECTED = (2 / 5, 2 / 3)


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned training, and what the power formula assumes of it.

    Attributes:
        seeds: training seeds; None: the recipe's.
        items: audit items; None: those of the searched audit.
        discordance: share of decisions in which two trained models differ.
        shared: share of these differences' variance that comes back under every seed.
    """

    seeds: int | None = None
    items: int | None = None
    discordance: float = DISCORDANCE
    shared: float = 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, and why in a few sentences."""

    answer: Literal["worth training", "may be too little to see", "not worth training"]
    why: str


@dataclass(frozen=True, slots=True)
class Prospects:
    """What a planned training can show.

    Attributes:
        detectable: by number of seeds the smallest effect found with power 80%; None: none is.
    """

    seeds: int
    items: int
    discordance: float
    shared: float
    detectable: Mapping[int, float | None]
    verdict: Verdict

    @property
    def power(self) -> str:
        """The detectable effects in a sentence."""
        seeds = listed([str(count) for count in self.detectable])
        effects = [
            "none" if least is None else points(least, 2) for least in self.detectable.values()
        ]
        return (
            f"Differences found with probability 80% on {whole(self.items)} audit items "
            f"(two-sided paired test, level 5%), with {seeds} training seeds: {listed(effects)} "
            f"points. Assumed: two trained models differ on {percent(self.discordance)} of the "
            f"items; {percent(self.shared, 0)} of the variance of their differences comes back "
            "under every seed."
        )


def assess(plan: Plan, splits: Mapping[str, GapFindings], seeds: int) -> Prospects | None:
    """Compare what training may gain with what seeds and items can detect.

    Args:
        plan: the planned training.
        splits: the searched splits; the gain is judged on the audit, else on the pool.
        seeds: how many the recipe has.

    Returns:
        None where no audit is searched and the plan does not say how many items it has.
    """
    judged = splits.get("audit") or splits["pool"]
    items = plan.items or ("audit" in splits and len(judged.verdicts.greedy))
    if not items:
        return None
    seeds = plan.seeds or seeds
    least = {
        n: detectable(seeds=n, items=items, discordance=plan.discordance, shared=plan.shared)
        for n in sorted({1, 3, 5, 10, seeds})
    }
    pool = splits.get("pool")
    if pool is not None and not pool.verdicts.sizes["S"]:
        verdict = Verdict(
            "not worth training",
            f"Search recovered none of the {whole(pool.verdicts.sizes['U'])} pool problems that "
            "one decode missed: there is nothing to train on. Search deeper (search.k), at a "
            "higher temperature, or take an easier pool.",
        )
    else:
        verdict = _judge(judged, seeds, items, least[seeds])
    return Prospects(seeds, items, plan.discordance, plan.shared, least, verdict)


def _judge(judged: GapFindings, seeds: int, items: int, least: float | None) -> Verdict:
    """Compare the S term of the gain with the smallest detectable effect.

    The S term p_S kappa_S is what training on recovered failures adds by correcting such failures.
    It is at most p_S, and between 2/5 and 2/3 of it at the paper's correction rates. Where even
    the whole of p_S, or 2/3 of it, is below the detectable effect, it is not worth training.
    """
    plan = f"{_seeds(seeds)} and {whole(items)} audit items"
    if least is None:
        return Verdict(
            "not worth training",
            f"{plan.capitalize()} cannot tell any effect from retraining noise: add items.",
        )
    p_s = float(judged.shares["S"].value)
    low, high = (share * p_s for share in CORRECTED)
    gain = (
        f"Search recovers {percent(p_s)} of the problems ({whole(judged.verdicts.sizes['S'])} of "
        f"{whole(len(judged.verdicts.greedy))}); correcting two fifths to two thirds of them, the "
        f"paper's range, adds {points(low)} to {points(high)} points, and {plan} detect "
        f"{points(least)} or more."
    )
    if high < least:
        reason = (
            "Even all of them corrected could not be told from retraining noise. This is the "
            "paper's case of Qwen2.5-7B, whose one decode solves nearly all that search can reach."
            if p_s < least
            else "That could not be told from retraining noise; more seeds or items could."
        )
        return Verdict("not worth training", f"{gain} {reason}")
    if low < least:
        return Verdict(
            "may be too little to see",
            f"{gain} The lower end could not be told from noise: more seeds or items would.",
        )
    return Verdict("worth training", f"{gain} There is room for an effect that can be seen.")


def _seeds(count: int) -> str:
    return f"{count} training seed{'s' if count > 1 else ''}"
