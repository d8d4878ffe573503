"""The plan of a training: pages and results of ``gapft gap --plan``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from gapft_harness.core.records import State
from gapft_harness.gap.document import build_prospects_entry
from gapft_harness.gap.planning import PlannedRun, StepCost
from gapft_harness.gap.prospects import CORRECTED
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.rendering.blocks import Section, Text
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import (
    STATE_NAMES,
    capitalize_first,
    format_count,
    format_duration,
    format_rounded,
    percent,
    points,
)

#: The pages and the results.
NAMES = ("plan.html", "plan.md", "results.json")

#: State, share, pool problems, audit items.
StateRow = tuple[State, float, int | None, int]
#: Seeds, detectable effect, that effect as a part of p_S, items for 2/5 and for 2/3 of S.
SeedsRow = tuple[int, float | None, float | None, int | None, int | None]


def build_plan_document(planned: PlannedRun) -> Document:
    """Build the document for a plan."""
    prospects = planned.prospects
    pool = "an unknown number of" if planned.pool is None else format_count(planned.pool)
    lead = (
        f"{pool} pool problems, {format_count(prospects.items)} audit items, one greedy decode and "
        f"{planned.k} sample{'' if planned.k == 1 else 's'} of each; shares of states: "
        f"{planned.shares_from}. Nothing was run."
    )
    verdict = prospects.verdict
    low, high = CORRECTED
    return Document(
        title="A plan",
        sections=[
            Section(
                "The plan",
                [
                    Text(capitalize_first(lead), "lead"),
                    Frame(PLAN_STATES, list_state_rows(planned)).table(
                        "Largest effect: on greedy accuracy, if training changed every decision of "
                        "this state."
                    ),
                ],
            ),
            Section(
                "What can be detected",
                [
                    Text(f"{capitalize_first(verdict.answer)}. {verdict.why}"),
                    Frame(DETECTABLE, list_seeds_rows(planned)).table(
                        f"Effects found with probability 80% on {format_count(prospects.items)} "
                        "audit items (two-sided paired test, level 5%), and the items that detect "
                        f"a correction of ⅖ and of ⅔ of S: {points(low * planned.shares['S'])} and "
                        f"{points(high * planned.shares['S'])} points. Assumed: two trained models "
                        f"differ on {percent(prospects.discordance)} of the items; "
                        f"{percent(prospects.shared, 0)} of the variance of their differences is "
                        "shared by all seeds."
                    ),
                ],
            ),
            Section(
                "What it needs",
                [Frame(PLAN_STEPS, [*list_step_rows(planned)]).table(_format_cost_note(planned))],
            ),
        ],
        names=NAMES,
        results=build_plan_results(planned),
    )


def build_plan_results(planned: PlannedRun) -> dict[str, Any]:
    """Build the content of results.json (schema 1; keys in docs/gap.md)."""
    return {
        "schema": 1,
        "shares": dict(planned.shares),
        "shares_from": planned.shares_from,
        "k": planned.k,
        "pool": planned.pool,
        "conditions": planned.conditions,
        "repetitions": planned.repetitions,
        **build_prospects_entry(planned.prospects),
        "items_needed": {str(n): list(items) for n, items in planned.items_needed.items()},
        "rate_from": planned.rate_from or None,
        "steps": {
            name: {"count": step.count, **asdict(step.cost)} for name, step in planned.steps.items()
        },
    }


def list_state_rows(planned: PlannedRun) -> list[StateRow]:
    """List the states with known shares, and how many problems they have."""
    return [
        (
            state,
            share,
            None if planned.pool is None else round(share * planned.pool),
            round(share * planned.prospects.items),
        )
        for state, share in planned.shares.items()
    ]


def list_seeds_rows(planned: PlannedRun) -> list[SeedsRow]:
    """List the detectable effects and the items needed by number of seeds."""
    p_s = planned.shares["S"]
    return [
        (n, least, least / p_s if least is not None and p_s else None, *planned.items_needed[n])
        for n, least in planned.prospects.detectable.items()
    ]


def list_step_rows(planned: PlannedRun) -> Iterator[tuple[str, StepCost]]:
    """Yield the steps with their names for people."""
    adapters = f"{planned.adapters} adapter{'' if planned.adapters == 1 else 's'}"
    names = {"audit adapters": f"audit {adapters}", "train adapters": f"train {adapters}"}
    for name, step in planned.steps.items():
        yield names.get(name, name), step


def _format_cost_note(planned: PlannedRun) -> str:
    """Describe what the costs count, the assumed rate, and how to learn unknown costs."""
    conditions = f"{planned.conditions} condition{'' if planned.conditions == 1 else 's'}"
    seeds = f"{planned.prospects.seeds} seed{'' if planned.prospects.seeds == 1 else 's'}"
    note = (
        f"Search and audit: responses and generated tokens. Training: processed examples and "
        f"tokens, {conditions} at the same budget, {seeds}, {planned.repetitions} repetitions."
    )
    if planned.rate_from:
        note += f" Time: {planned.rate_from}."
    steps = planned.steps
    unknown = []
    if planned.pool is None:
        unknown.append("the pool's size needs --pool")
    if steps["search audit"].cost.tokens is None:
        unknown.append("tokens need --response-tokens or the folder of a search")
    if not planned.rate_from:
        unknown.append("times need --tokens-per-second or the folder of a search")
    if steps["train adapters"].cost.tokens is None:
        unknown.append("training tokens need the folder of a searched pool")
    elif steps["train adapters"].cost.seconds is None:
        unknown.append("training time needs the folder of a run that trained")
    return f"{note} –: {'; '.join(unknown)}." if unknown else note


def _format_largest_effect(row: StateRow) -> str:
    state, share, *_ = row
    return points(-share if state == "G" else share)


PLAN_STATES: tuple[Column[StateRow], ...] = (
    Column("", "of the plan", lambda row: f"{row[0]}: {STATE_NAMES[row[0]]}", "state"),
    Column("", "assumed, or of a searched split", lambda row: row[1], "share", percent),
    Column("", "expected numbers", lambda row: row[2], "pool", format_count),
    Column("", "expected numbers", lambda row: row[3], "audit", format_count),
    Column(
        "", "on greedy accuracy, if every decision of the state changed",
        _format_largest_effect, "largest effect (points)",
    ),
)  # fmt: skip

_ITEMS = "audit items on which a correction of this part of S is detected with power 80%"
DETECTABLE: tuple[Column[SeedsRow], ...] = (
    Column("", "of each condition", lambda row: row[0], "seeds"),
    Column(
        "", "smallest effect found with power 80%", lambda row: row[1], "detectable (points)",
        lambda effect: points(effect, 2),
    ),
    Column(
        "", "this effect divided by p_S; above 100% it cannot come from S alone",
        lambda row: row[2], "part of S", percent,
    ),
    Column("", _ITEMS, lambda row: row[3], "items for ⅖ of S", format_count),
    Column("", _ITEMS, lambda row: row[4], "items for ⅔ of S", format_count),
)  # fmt: skip
PLAN_STEPS: tuple[Column[tuple[str, StepCost]], ...] = (
    Column("", "the plan's steps", lambda row: row[0], "step"),
    Column("", "responses, or training examples", lambda row: row[1].count, "number", format_count),
    Column("", "costs", lambda row: row[1].cost.tokens, "tokens", format_rounded),
    Column("", "costs", lambda row: row[1].cost.seconds, "time", format_duration),
)
