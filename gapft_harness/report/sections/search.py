"""The source's Pass@k, and the evidence states of pool and audit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from gapft_harness.analysis.pass_at_k import list_reported_k
from gapft_harness.core.records import State
from gapft_harness.report.findings.computation import Findings, SourceFindings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Block, Figure
from gapft_harness.report.rendering.wording import (
    STATE_NAMES,
    condition_name,
    format_count,
    name_decode,
    percent,
)

_ORDER: tuple[State, ...] = ("G", "S", "U")


def build_reached(inputs: ReportInputs, findings: Findings) -> list[Block]:
    """Build the section "What search reaches": the source's Pass@k and the trained models."""
    source = findings.source
    k_values = list_reported_k(inputs.k)
    trained = ", ".join(
        f"{condition_name(name)} {percent(condition.mean.pass_at_1)}"
        for name, condition in findings.conditions.items()
    )
    caption = "The source's accuracy when a verifier picks among k samples."
    if trained:
        decode = name_decode(inputs.deployment)
        caption += f" Lines: one {decode} of each model; the marker is at its K_eq."
    pass_at_1 = replace(SEARCH[1], title="one decode") if inputs.deployment else SEARCH[1]
    columns = [SEARCH[0], pass_at_1, *(build_pass_at_column(k) for k in k_values)]
    if source.voting_fault:
        votes = f"maj@K is not shown, since {source.voting_fault}."
    else:
        columns.append(replace(SEARCH[-1], title=f"maj@{inputs.k}"))
        votes = (
            f"maj@{inputs.k}: the most frequent answer of {inputs.k} samples, without a verifier."
        )
    return [
        Figure(
            "search_curve",
            "Source Pass@k: "
            + ", ".join(f"{percent(rate)} at k = {k}" for k, rate in source.curve.items())
            + (f". One trained decode: {trained}." if trained else "."),
            caption,
        ),
        Frame(columns, [source]).table(
            f"Unbiased estimates from {inputs.k} samples of each problem. Pass@k needs search and "
            f"a verifier at inference: it is a reference, not a deployed model. {votes}"
        ),
    ]


def build_pass_at_column(k: int | str) -> Column[SourceFindings]:
    """Build the column of the source's Pass@k."""
    meaning = "chance that one of k samples passes, unbiased (Equation 1)"
    return Column("", meaning, lambda source: source.curve[int(k)], f"Pass@{k}", percent)


SEARCH: tuple[Column[SourceFindings], ...] = (
    Column("", "the split", lambda source: "audit", "source"),
    Column("", "greedy decode", lambda source: source.pass_at_1, "greedy", percent),
    build_pass_at_column("k"),
    Column(
        "",
        "chance that the most frequent answer of K samples passes; ties are drawn",
        lambda source: source.majority,
        "maj@K",
        percent,
    ),
)


def build_states(inputs: ReportInputs, findings: Findings) -> list[Block]:
    """Build the section "Evidence states": problems in each state."""
    return [
        Frame(STATES, list_splits(findings)).table(
            f"Under the source model, with K = {inputs.k} samples. A problem missed by this search "
            "is not impossible: with more samples, problems move from U to S."
        ),
        *_build_recovered(inputs, findings),
    ]


def _build_recovered(inputs: ReportInputs, findings: Findings) -> list[Block]:
    """Build the table of pool problems that nested searches recover."""
    if not inputs.pool_recovered:
        return []
    own_k = {
        condition.own["k"] for condition in findings.conditions.values() if "k" in condition.own
    }
    k_values = sorted({*list_reported_k(inputs.k), *own_k})
    return [
        Frame(RECOVERED, [(k, inputs.pool_recovered[k - 1]) for k in k_values]).table(
            "Pool problems that the source fails in one decode and that the first K samples of the "
            "search recover: the training problems of a search with K samples."
        )
    ]


_RECOVERED = "pool problems that the first K samples of the search recover (|S_K|, Equation 4)"
RECOVERED: tuple[Column[tuple[int, int]], ...] = (
    Column("", _RECOVERED, lambda row: row[0], "K"),
    Column("", _RECOVERED, lambda row: row[1], "recovered", format_count),
)
_SPLIT = "pool or audit, and its size"
SplitStates = tuple[str, Mapping[State, int]]


def list_splits(findings: Findings) -> list[SplitStates]:
    """List the pool and the audit, with their problems in G, S and U."""
    return [("pool", findings.pool_states), ("audit", findings.source.states)]


def _build_state_column(state: State, name: str) -> Column[SplitStates]:
    def format_share(row: SplitStates) -> str:
        count = row[1][state]
        return f"{format_count(count)} ({percent(Fraction(count, sum(row[1].values())))})"

    meaning = "problems in each state (Equations 3 to 5)"
    return Column("", meaning, format_share, f"{state} {name}")


STATES: tuple[Column[SplitStates], ...] = (
    Column("split", _SPLIT, lambda row: row[0], "split"),
    Column("states", "", lambda row: {state: row[1][state] for state in _ORDER}, names=_ORDER),
    *(_build_state_column(state, STATE_NAMES[state]) for state in _ORDER),
    Column("", _SPLIT, lambda row: sum(row[1].values()), "problems", format_count),
)
