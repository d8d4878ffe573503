"""Whether training on the gap is worth it, from what search exposed and what can be detected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gapft_harness.forecast.findings import CORRECTED, Forecast
from gapft_harness.report.rendering.wording import percent, points, whole

Answer = Literal["worth training", "may be too little to see", "not worth training"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, and why in a few sentences."""

    answer: Answer
    why: str


def judge(of: Forecast) -> Verdict:
    """Compares the S term of the gain with the smallest effect that seeds and items can detect.

    The S term p_S kappa_S is what training on recovered failures adds by correcting such failures.
    It is at most p_S, and between 2/5 and 2/3 of it at the paper's correction rates. Where even
    the whole of p_S, or 2/3 of it, is below the detectable effect, it is not worth training.
    """
    pool, judged = of.splits.get("pool"), of.judged
    if pool is not None and not pool.recovered:
        return Verdict(
            "not worth training",
            f"Search recovered none of the {whole(pool.missed)} pool problems that one decode "
            "missed: there is nothing to train on. Search deeper (search.k), at a higher "
            "temperature, or take an easier pool.",
        )
    least = of.detectable[of.seeds]
    seeds = f"{of.seeds} seed{'s' if of.seeds > 1 else ''} and {whole(of.items)} audit items"
    if least is None:
        why = f"{seeds.capitalize()} cannot tell any effect from retraining noise: add items."
        return Verdict("not worth training", why)
    p_s = judged.p_s
    low, high = (share * p_s for share in CORRECTED)
    said = (
        f"Search recovers {percent(p_s)} of the problems ({whole(judged.recovered)} of "
        f"{whole(judged.problems)}); correcting two fifths to two thirds of them, the paper's "
        f"range, adds {points(low)} to {points(high)} points, and {seeds} detect "
        f"{points(least)} or more."
    )
    if high < least:
        more = (
            "Even all of them corrected could not be told from retraining noise. This is the "
            "paper's case of Qwen2.5-7B, whose one decode solves nearly all that search can reach."
            if p_s < least
            else "That could not be told from retraining noise; more seeds or items could."
        )
        return Verdict("not worth training", f"{said} {more}")
    if low < least:
        return Verdict(
            "may be too little to see",
            f"{said} The lower end could not be told from noise: more seeds or items would.",
        )
    return Verdict("worth training", f"{said} There is room for an effect that can be seen.")
