"""Sum up the cost of a search, and estimate training and auditing."""

from __future__ import annotations

from dataclasses import dataclass

from gapft_harness.gap.prospects import Plan
from gapft_harness.gap.searched import SearchedRun
from gapft_harness.recipe.conditions import conditions_of
from gapft_harness.report.findings.ledger import Spending


@dataclass(frozen=True, slots=True)
class Costs:
    """Tokens of each step, and their seconds at a measured rate; None where unknown.

    Attributes:
        search: generated tokens of the search over all splits, and its wall time.
        arms: number of adapters that the recipe trains: conditions times seeds.
        training: training of all adapters at their conditions' budgets, where n may be |S|.
        audit: the deployment decodes of every audit item by each adapter; unknown without the
            number of items.
    """

    search: Spending
    arms: int
    training: Spending
    audit: Spending


def estimate_costs(run: SearchedRun, plan: Plan) -> Costs:
    """Sum up what was spent, and estimate the costs of the plan."""
    total, rate = run.generated_tokens, run.rate
    repeats = (run.recipe["search"].get("deployment") or {}).get("repeats", 1)
    problems = {split: len(searched.passing) for split, searched in run.splits.items()}
    seeds = plan.seeds or len(run.recipe["seeds"])
    items = plan.items or problems.get("audit")
    arms = len(run.recipe["conditions"]) * seeds
    audit = run.splits.get("audit") or run.splits["pool"]
    decode = audit.tokens.mean_decode if audit.tokens else None
    return Costs(
        search=Spending(total, run.seconds),
        arms=arms,
        training=_estimate_training(run, seeds),
        audit=Spending.from_rate(
            None if decode is None or items is None else decode * repeats * items * arms, rate
        ),
    )


def _estimate_training(run: SearchedRun, seeds: int) -> Spending:
    """Estimate training: exposures times the mean tokens of an example, for each condition."""
    pool = run.splits.get("pool")
    if pool is None or pool.example is None:
        return Spending(None)
    budget, exposures = run.recipe["budget"], 0
    for condition in conditions_of(run.recipe).values():
        examples = condition.n or budget["n"]
        if not isinstance(examples, int):
            sizes = pool.select_samples(0, condition.k or pool.k).sizes
            examples = sizes["S"] + (sizes["G"] if examples == "verified" else 0)
        repetitions = {**run.recipe["training"], **condition.training}["repetitions"]
        exposures += (examples + budget["replay"]) * repetitions
    return run.estimate_training(seeds * exposures * pool.example)
