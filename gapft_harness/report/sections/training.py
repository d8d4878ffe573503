"""Training budgets: the training set of every arm, and which budgets match."""

from __future__ import annotations

from dataclasses import asdict
from statistics import fmean

from gapft_harness.presentation.content import Column, Row, Section, Table, add_hidden
from gapft_harness.report.findings.computation import (
    ConditionFindings,
    Findings,
    SeedFindings,
    is_budget_matched,
)
from gapft_harness.report.reading.columns import count_codes

_BUDGET_NOTE = (
    "n example slots, N exposures, L processed tokens (mean over seeds), J optimizer steps "
    "(Equation 7). Budgets are computed before training and enforced: conditions with the budget "
    "of the same condition have the same n, N and J; a dash: its own budget. Online training does "
    "not use the examples; they determine J."
)
_SEEDS_NOTE = (
    "S, U corrected and G lost: audit problems of each state whose outcome changed. Trained as: "
    "the arm with the same training set, which was trained once for both. Unverified: examples "
    "whose response did not pass."
)
_BUDGET_COLUMNS = (
    Column("label", "condition"),
    Column("group", "budget of"),
    Column("slots", "n", "count"),
    Column("exposures", "N", "count"),
    Column("tokens", "L", "count"),
    Column("steps", "J", "count"),
)
_SEED_COLUMNS = (
    Column("label", "condition"),
    Column("seed", "seed"),
    Column("pass_at_1", "Pass@1", "share"),
    Column("corrected_s", "S corrected", "count"),
    Column("corrected_u", "U corrected", "count"),
    Column("regressed_g", "G lost", "count"),
    Column("slots", "n", "count"),
    Column("problems", "distinct", "count"),
    Column("exposures", "N", "count"),
    Column("tokens", "L", "count"),
    Column("supervised_tokens", "supervised", "count"),
    Column("steps", "J", "count"),
    Column("unverified", "unverified", "count"),
    Column("trained_as", "trained as"),
)


def build_training(findings: Findings) -> Section:
    """Build the section on budgets."""
    conditions = findings.conditions.values()
    budgets = [
        _build_budget(condition, _find_group(condition, findings)) for condition in conditions
    ]
    seeds = [
        _build_seed(condition, seed, model)
        for condition in conditions
        for seed, model in condition.seeds.items()
    ]
    tables = [
        Table("budgets", add_hidden(_BUDGET_COLUMNS, budgets), budgets, _BUDGET_NOTE),
        Table("seeds", add_hidden(_SEED_COLUMNS, seeds), seeds, _SEEDS_NOTE, "Every seed"),
    ]
    return Section("Training budgets", tables=tables)


def _find_group(condition: ConditionFindings, findings: Findings) -> str | None:
    """Find the first condition with a matched budget, which names the group; None: its own."""
    matched = (
        other.label for other in findings.conditions.values() if is_budget_matched(other, condition)
    )
    return next(matched, None)


def _build_budget(condition: ConditionFindings, group: str | None) -> Row:
    first = condition.budgets[0]  # n, N and J are the same for all seeds
    return {
        "label": condition.label,
        "condition": condition.name,
        "group": group,
        "slots": first.n,
        "exposures": first.exposures,
        "tokens": round(fmean(budget.tokens for budget in condition.budgets)),
        "steps": first.steps,
    }


def _build_seed(condition: ConditionFindings, seed: int, model: SeedFindings) -> Row:
    parts = model.decomposition
    trained = model.trained
    budget = asdict(trained.budget)
    return {
        "label": condition.label,
        "condition": condition.name,
        "seed": seed,
        "pass_at_1": parts.pass_at_1,
        "correct": parts.correct,
        **asdict(parts),
        **parts.list_rates(),
        **count_codes(trained.deployed.statuses),
        "slots": budget.pop("n"),
        "problems": trained.problems,
        **budget,
        "unverified": trained.unverified,
        "trained_as": model.trained_as,
    }
