"""Plan a search, training and audit from assumed or logged shares of states; run nothing."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gapft_harness.analysis.power import count_items_needed
from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.core.records import State
from gapft_harness.gap.prospects import CORRECTED, Plan, Prospects, assess_share
from gapft_harness.gap.searched import SearchedRun, SearchedSplit
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import Training
from gapft_harness.report.findings.ledger import Spending
from gapft_harness.report.rendering.wording import format_count, format_rounded, percent

#: The evidence states, in the order of the tables.
STATES: tuple[State, ...] = ("G", "S", "U")
#: How far three rounded shares may be from a sum of 1.
_ROUNDING = 0.01


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user chose; None: read from a searched folder, or the default recipe's.

    Attributes:
        shares: assumed shares by state, at least that of S.
        k: number of samples of each problem.
        pool: number of pool problems.
        conditions: number of conditions to train.
        response_tokens: mean generated tokens of a response.
        rate: generated tokens per second.
    """

    shares: Mapping[State, float] | None = None
    k: int | None = None
    pool: int | None = None
    conditions: int | None = None
    response_tokens: float | None = None
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class StepCost:
    """A step of the plan.

    Attributes:
        count: responses to generate, or examples to process; None: unknown.
        cost: tokens and seconds.
    """

    count: int | None
    cost: Spending

    def __add__(self, other: StepCost) -> StepCost:
        total = None if self.count is None or other.count is None else self.count + other.count
        return StepCost(total, self.cost + other.cost)


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A planned run with its costs, and what it can detect.

    Attributes:
        shares: by state, the share of the problems; without a state that is unknown.
        shares_from: the origin of the shares, in words.
        rate_from: the origin of the rate, in words; empty without a rate.
        k: number of samples of each problem.
        pool: number of pool problems; None if unknown.
        conditions: number of conditions.
        repetitions: exposures of each training example.
        prospects: the effects that seeds and items can detect.
        items_needed: by number of seeds, the audit items on which a correction of 2/5 and of 2/3
            of the recovered problems is detected; None: no number of items shows it.
        steps: the steps by name.
    """

    shares: Mapping[State, float]
    shares_from: str
    rate_from: str
    k: int
    pool: int | None
    conditions: int
    repetitions: int
    prospects: Prospects
    items_needed: Mapping[int, tuple[int | None, int | None]]
    steps: Mapping[str, StepCost]

    @property
    def adapters(self) -> int:
        """Number of adapters: conditions times seeds."""
        return self.conditions * self.prospects.seeds


def parse_shares(text: str) -> dict[State, float]:
    """Parse assumed shares of states, such as ``S=0.2,U=0.3``.

    Two shares determine the third.

    Raises:
        UserError: an unknown or repeated state, a share outside 0..1, no share of S, or shares
            that do not sum to at most 1 (three: to 1).
    """
    shares: dict[State, float] = {}
    for part in text.split(","):
        name, equals, value = (word.strip() for word in part.partition("="))
        state = next((state for state in STATES if state == name), None)
        if not equals or state is None:
            hint = did_you_mean(name, STATES) if equals else "expected STATE=SHARE,..."
            raise UserError(f"--shares {text}: {part!r}: {hint}; write e.g. S=0.2,U=0.3")
        if state in shares:
            raise UserError(f"--shares {text}: state {name} occurs twice; leave one out")
        try:
            share = float(value)
        except ValueError:
            share = math.nan
        if not 0 <= share <= 1:
            raise UserError(f"--shares {text}: {part!r}: expected a share within 0 and 1")
        shares[state] = share
    if "S" not in shares:
        raise UserError(
            f"--shares {text}: no share of S, the problems that search recovers; add e.g. S=0.2"
        )
    total = math.fsum(shares.values())
    if total > 1 and not math.isclose(total, 1):
        raise UserError(
            f"--shares {text}: the shares sum to {total:.4g}; expected at most 1, since every "
            "problem has one state"
        )
    if len(shares) == len(STATES) and total < 1 - _ROUNDING:
        raise UserError(
            f"--shares {text}: the shares of all states sum to {total:.4g}; expected 1; leave one "
            "out to compute it from the others"
        )
    if len(shares) == len(STATES) - 1:
        missing = next(state for state in STATES if state not in shares)
        shares[missing] = max(0.0, 1 - total)
    return {state: shares[state] for state in STATES if state in shares}


def plan_run(
    place: str | None, run: SearchedRun | None, choices: Choices, plan: Plan
) -> PlannedRun:
    """Plan a run from the user's choices and, for what they leave out, from a searched folder.

    Args:
        place: the folder's name for messages; None without one.
        run: the folder's search; None without one.
        choices: what the user chose.
        plan: the planned training.

    Raises:
        UserError: the shares or the number of audit items are unknown, or K differs from that of
            the logged shares.
    """
    splits = {} if run is None else run.splits
    judged = splits.get("audit") or splits.get("pool")
    items = plan.items or _count_problems(splits.get("audit"))
    if items is None:
        raise UserError("--plan: the number of audit items is unknown; add --items M")
    shares, shares_from = choices.shares, "assumed"
    if shares is None:
        if run is None or judged is None:
            raise UserError(
                "--plan: no shares of states; add --shares, e.g. S=0.2,U=0.3, or the folder of a "
                "search that gapft gap or gapft run made"
            )
        if choices.k is not None and choices.k != run.k:
            raise UserError(
                f"--k {choices.k}: the shares of {place} are those of K = {run.k}; leave --k out, "
                "or assume shares for this K with --shares"
            )
        shares = {state: judged.sizes[state] / len(judged.passing) for state in STATES}
        split = "audit" if "audit" in splits else "pool"
        shares_from = f"{place}, {split}: {format_count(len(judged.passing))} problems"
    k = choices.k or (8 if run is None else run.k)
    recipe = {} if run is None else run.recipe
    seeds = plan.seeds or len(recipe.get("seeds", Recipe.model_fields["seeds"].default))
    conditions = choices.conditions or len(
        recipe.get("conditions", Recipe.model_fields["conditions"].default)
    )
    evidence = f"Search recovers {percent(shares['S'])} of the problems ({shares_from})"
    prospects = assess_share(plan, seeds, items, shares["S"], evidence)
    pool = choices.pool or _count_problems(splits.get("pool"))
    repetitions = int(
        recipe.get("training", {}).get("repetitions", Training.model_fields["repetitions"].default)
    )
    rate, rate_from = _find_rate(place, run, choices)
    planned = PlannedRun(
        *(shares, shares_from, rate_from, k, pool, conditions, repetitions, prospects),
        items_needed={n: _count_items(shares["S"], n, plan) for n in prospects.detectable},
        steps={},
    )
    return replace(planned, steps=_list_steps(planned, run, judged, choices, rate))


def _count_items(p_s: float, seeds: int, plan: Plan) -> tuple[int | None, int | None]:
    """Count the audit items on which a correction of 2/5, and of 2/3, of S is detected."""
    low, high = (
        count_items_needed(
            part * p_s, seeds=seeds, discordance=plan.discordance, shared=plan.shared
        )
        for part in CORRECTED
    )
    return low, high


def _count_problems(split: SearchedSplit | None) -> int | None:
    return None if split is None else len(split.passing)


def _find_rate(
    place: str | None, run: SearchedRun | None, choices: Choices
) -> tuple[float | None, str]:
    """Return the generated tokens per second, given or measured, with its origin in words."""
    if choices.rate is not None:
        return choices.rate, f"{choices.rate:g} tokens per second (--tokens-per-second)"
    rate = None if run is None else run.rate
    if rate is None:
        return None, ""
    return rate, f"{format_rounded(rate)} tokens per second, as in the search of {place}"


def _list_steps(
    planned: PlannedRun,
    run: SearchedRun | None,
    judged: SearchedSplit | None,
    choices: Choices,
    rate: float | None,
) -> dict[str, StepCost]:
    """List the steps: responses of search and audit, their sum, and training examples.

    A condition's training set has the recovered problems of the pool (|S| = p_S times the pool), or
    the number in the recipe's ``budget.n``.
    """
    counted = judged.tokens if judged is not None else None
    decode = sample = choices.response_tokens
    if choices.response_tokens is None and counted is not None:
        decode, sample = counted.mean_decode, counted.mean_sample

    def search(problems: int | None) -> StepCost:
        if problems is None:
            return StepCost(None, Spending(None))
        tokens = None
        if decode is not None and sample is not None:
            tokens = problems * (decode + planned.k * sample)
        return StepCost(problems * (planned.k + 1), Spending.from_rate(tokens, rate))

    items, adapters = planned.prospects.items, planned.adapters
    decodes = adapters * items
    generated = {
        "search pool": search(planned.pool),
        "search audit": search(items),
        "audit adapters": StepCost(
            decodes, Spending.from_rate(None if decode is None else decodes * decode, rate)
        ),
    }
    total = functools.reduce(operator.add, generated.values())
    return {**generated, "all responses": total, "train adapters": _plan_training(planned, run)}


def _plan_training(planned: PlannedRun, run: SearchedRun | None) -> StepCost:
    """Plan the training of all adapters; its tokens and time are known from a searched run only."""
    budget = {} if run is None else run.recipe["budget"]
    examples = budget.get("n", "recovered")
    if not isinstance(examples, int):
        states = "SG" if examples == "verified" else "S"
        shares = [share for state, share in planned.shares.items() if state in states]
        if planned.pool is None or len(shares) < len(states):
            return StepCost(None, Spending(None))
        examples = round(planned.pool * sum(shares))
    count = planned.adapters * planned.repetitions * (examples + budget.get("replay", 0))
    pool = None if run is None else run.splits.get("pool")
    if run is None or pool is None or pool.example is None:
        return StepCost(count, Spending(None))
    return StepCost(count, run.estimate_training(count * pool.example))
