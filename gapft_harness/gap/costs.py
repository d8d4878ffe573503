"""Sum up the cost of a search, and estimate a deeper search, training and auditing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gapft_harness.analysis.extrapolation import MULTIPLES
from gapft_harness.gap.prospects import Plan
from gapft_harness.gap.searched import SearchedRun
from gapft_harness.recipe.conditions import conditions_of
from gapft_harness.report.findings.ledger import Spent


@dataclass(frozen=True, slots=True)
class Costs:
    """Tokens of each step, and their seconds at a measured rate; None where unknown.

    Attributes:
        search: generated tokens of the search over all splits, and its wall time.
        deeper: by k, a new run's search with k samples of every problem and the greedy decodes
            (search.k cannot change within a run). Unknown if this search stopped early: its
            number of samples depends on when they pass.
        arms: number of adapters that the recipe trains: conditions times seeds.
        training: training of all adapters at their conditions' budgets, where n may be |S|.
        audit: a greedy decode of every audit item by each adapter; unknown without the number of
            items.
    """

    search: Spent
    deeper: Mapping[int, Spent]
    arms: int
    training: Spent
    audit: Spent


def costs(run: SearchedRun, plan: Plan) -> Costs:
    """Sum up what was spent, and estimate the costs of the plan."""
    counted = [of.tokens for of in run.splits.values()]
    generated = [of for of in counted if of is not None]
    known = len(generated) == len(counted)
    total = float(sum(of.all for of in generated))
    rate = total / run.seconds if known and run.seconds else None

    problems = {split: len(of.greedy) for split, of in run.splits.items()}
    whole = known and all(of.complete for of in run.splits.values())

    def searching(k: int) -> float | None:
        a_problem = {
            split: k * of.tokens.a_sample + of.tokens.a_decode
            for split, of in run.splits.items()
            if of.tokens is not None
        }
        return sum(n * a_problem[split] for split, n in problems.items()) if whole else None

    seeds = plan.seeds or len(run.recipe["seeds"])
    items = plan.items or problems.get("audit")
    arms = len(run.recipe["conditions"]) * seeds
    audit = run.splits.get("audit") or run.splits["pool"]
    decode = audit.tokens.a_decode if audit.tokens else None
    return Costs(
        search=Spent(total if known else None, run.seconds),
        deeper={n * run.k: Spent.at(searching(n * run.k), rate) for n in MULTIPLES},
        arms=arms,
        training=_training(run, seeds),
        audit=Spent.at(None if decode is None or items is None else decode * items * arms, rate),
    )


def _training(run: SearchedRun, seeds: int) -> Spent:
    """Estimate training: exposures times the mean tokens of an example, for each condition."""
    pool = run.splits.get("pool")
    if pool is None or pool.example is None:
        return Spent(None)
    budget, exposures = run.recipe["budget"], 0
    for condition in conditions_of(run.recipe).values():
        wanted = condition.n or budget["n"]
        if not isinstance(wanted, int):
            sizes = pool.window(0, condition.k or pool.k).sizes
            wanted = sizes["S"] + (sizes["G"] if wanted == "verified" else 0)
        repetitions = {**run.recipe["training"], **condition.training}["repetitions"]
        exposures += (wanted + budget["replay"]) * repetitions
    tokens = seeds * exposures * pool.example
    if run.trained is None:
        return Spent(tokens)
    of_tokens, seconds = run.trained
    return Spent(tokens, tokens / of_tokens * seconds)
