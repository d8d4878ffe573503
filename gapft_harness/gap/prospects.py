"""Advise whether to train: does the possible gain exceed what seeds and items can show?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.estimate import Estimate, estimate_share
from gapft_harness.analysis.power import find_detectable_effect
from gapft_harness.outcomes.searches import SearchFindings
from gapft_harness.presentation.content import format_value

#: Share of decisions that differed between two trainings with the same seed and data, LogiQA 2.0
#: (the paper, Appendix A, "Method Details": Reproducibility).
DISCORDANCE = 331 / 1367
#: Share of recovered audit failures that training corrects: the paper's range over its three
#: models (Section 6, "between two fifths and two thirds").
CORRECTED = (2 / 5, 2 / 3)
#: The share of responses, cut or without an answer, from which there is no advice.
MAX_UNFIT = 0.1
#: The largest number of problems that is proposed.
MAX_PROBLEMS = 100_000


@dataclass(frozen=True, slots=True)
class Advice:
    """Whether to train.

    Attributes:
        answer: the answer.
        reason: its reason in a few sentences.
        detectable: by number of training seeds, the smallest effect that the audit items show with
            power 80%; None: none.
        items: number of audit items; 0: unknown.
    """

    answer: Literal["no advice", "too little data", "too small a gain", "worth training"]
    reason: str
    detectable: Mapping[int, float | None] = field(default_factory=dict)
    items: int = 0


def advise(splits: Mapping[str, SearchFindings], seeds: int) -> Advice:
    """Compare the possible gain of training with the effect that seeds and items can detect.

    There is no advice where a tenth of the responses is cut or has no readable answer. The largest
    gain from correcting recovered failures is p_S. If its interval contains the detectable effect,
    there is too little data. If it is below, or if more than two thirds of the recovered problems
    would have to be corrected, the gain is too small.

    Args:
        splits: the searched splits; the gain is judged on the audit.
        seeds: number of training seeds.
    """
    if fault := describe_fault(splits):
        return Advice("no advice", fault)
    if "audit" not in splits:
        return Advice("no advice", "No audit was searched, on which a gain would be measured.")
    judged = splits["audit"]
    items = len(judged.verdicts.passing)
    detectable = {n: _find_effect(n, items) for n in sorted({1, 3, 5, 10, seeds})}
    pool = splits.get("pool")
    if pool is not None and not pool.verdicts.sizes["S"]:
        reason = "Search recovered no problem of the pool: there is nothing to train on."
        return Advice("too small a gain", reason, detectable, items)
    answer, reason = _compare_gain(judged, seeds, detectable[seeds])
    return Advice(answer, reason, detectable, items)


def describe_fault(splits: Mapping[str, SearchFindings]) -> str:
    """Describe what makes the figures of a split unfit for advice; empty if nothing does."""
    for split, findings in splits.items():
        endings = findings.endings
        unfit = {
            "were cut at the length limit (search.max_gen_toks)": endings.cut,
            "have no readable answer": endings.unanswered or 0,
        }
        faults = [
            f"{100 * count / endings.responses:.0f}% {what}"
            for what, count in unfit.items()
            if count >= MAX_UNFIT * endings.responses
        ]
        if faults:
            return (
                f"Of the {endings.responses:,} responses to the {split}, {' and '.join(faults)}. "
                "The numbers below describe the settings, not the model."
            )
    return ""


def _find_effect(seeds: int, items: int) -> float | None:
    return find_detectable_effect(seeds=seeds, items=items, discordance=DISCORDANCE)


def _compare_gain(
    judged: SearchFindings, seeds: int, effect: float | None
) -> tuple[Literal["too little data", "too small a gain", "worth training"], str]:
    gain = judged.shares["S"]
    problems = len(judged.verdicts.passing)
    largest = (
        "Correcting every recovered problem would add "
        f"{format_value(gain, 'points').replace('+', '')} points (p_S)."
    )
    plural = "" if seeds == 1 else "s"
    least = "no difference" if effect is None else f"a difference of {100 * effect:.1f} points"
    shown = f"{seeds} training seed{plural} on {problems:,} audit problems can show {least}"
    if effect is None or problems < STABLE_ITEMS or gain.low <= effect <= gain.high:
        deciding = _find_deciding_problems(gain, problems, seeds)
        more = f"About {deciding:,} problems would decide." if deciding else "Add audit problems."
        return "too little data", f"{largest} {shown}. {more}"
    if gain.high < effect:
        return "too small a gain", f"{largest} {shown}."
    needed = effect / float(gain.value)
    answer: Literal["too small a gain", "worth training"] = (
        "too small a gain" if needed > CORRECTED[1] else "worth training"
    )
    return answer, (
        f"{largest} {shown}, so {100 * needed:.0f}% of these problems must be corrected; training "
        "corrected 40 to 67% in the paper."
    )


def _find_deciding_problems(found: Estimate, problems: int, seeds: int) -> int | None:
    """Find how many audit problems would separate the share of S from the detectable effect.

    Args:
        found: the share of S.
        problems: the number of problems that were searched.
        seeds: number of training seeds.
    """
    problems = max(problems, STABLE_ITEMS)
    while problems < MAX_PROBLEMS:
        effect = _find_effect(seeds, problems)
        gain = estimate_share(found.value, problems)
        if effect is not None and not gain.low <= effect <= gain.high:
            unit: int = 10 ** (len(str(problems)) - 2)
            return -(-problems // unit) * unit
        problems += max(1, problems // 20)
    return None
