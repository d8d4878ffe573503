"""Training budgets: the training set of every arm, and which budgets match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from statistics import fmean

from gapft_harness.presentation.content import Column, Row, Section, Table, add_hidden, format_value
from gapft_harness.report.findings.computation import ConditionFindings, Findings, SeedFindings

_BUDGET_NOTE = (
    "n example slots, N exposures, L processed tokens (mean over seeds), J optimizer steps "
    "(Equation 7). Budgets are computed before training and enforced: conditions of a group have "
    "the same n, N and J; a dash: the condition has its own budget. Online training does not use "
    "the examples; they determine J."
)
_SEEDS_NOTE = (
    "S, U corrected and G lost: audit problems of each state whose outcome changed. Trained as: "
    "the arm with the same training set, which was trained once for both. Unverified: examples "
    "whose response did not pass."
)
_BUDGET_COLUMNS = (
    Column("label", "condition"),
    Column("group", "group"),
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
    spreads = [measure_token_spread(group)[2] for group in findings.groups if len(group) > 1]
    text = []
    if spreads:
        spread = format_value(max(spreads), "share")
        text.append(f"Processed tokens L differ by at most {spread} within a group.")
    groups = {
        condition.name: str(number)
        for number, group in enumerate(findings.groups, start=1)
        for condition in group
    }
    budgets = [_build_budget(condition, groups) for condition in findings.conditions.values()]
    seeds = [
        _build_seed(condition, seed, model)
        for condition in findings.conditions.values()
        for seed, model in condition.seeds.items()
    ]
    tables = [
        Table("budgets", add_hidden(_BUDGET_COLUMNS, budgets), budgets, _BUDGET_NOTE),
        Table(
            "seeds",
            add_hidden(_SEED_COLUMNS, seeds),
            seeds,
            _SEEDS_NOTE,
            "Every condition and seed",
        ),
    ]
    return Section("Training budgets", text, tables)


def measure_token_spread(group: Sequence[ConditionFindings]) -> tuple[int, int, Fraction]:
    """Return the fewest and the most processed tokens L, and their relative difference."""
    counts = [budget.tokens for condition in group for budget in condition.budgets]
    low, high = min(counts), max(counts)
    return low, high, Fraction(high - low, max(low, 1))


def _build_budget(condition: ConditionFindings, groups: Mapping[str, str]) -> Row:
    first = condition.budgets[0]  # n, N and J are the same for all seeds
    return {
        "label": condition.label,
        "condition": condition.name,
        "group": groups.get(condition.name),
        "slots": first.n,
        "exposures": first.exposures,
        "tokens": round(fmean(budget.tokens for budget in condition.budgets)),
        "steps": first.steps,
    }


def _build_seed(condition: ConditionFindings, seed: int, model: SeedFindings) -> Row:
    parts, budget = model.decomposition, asdict(model.budget)
    return {
        "label": condition.label,
        "condition": condition.name,
        "seed": seed,
        "pass_at_1": parts.pass_at_1,
        "correct": parts.correct,
        **asdict(parts),
        **model.verdicts,
        "slots": budget.pop("n"),
        "problems": model.problems,
        **budget,
        "unverified": model.unverified,
        "trained_as": model.trained_as,
    }
