"""Where the change comes from, by the source's state, and what search reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gapft_harness.analysis.decomposition import (
    STABLE_ITEMS,
    find_unstable_states,
)
from gapft_harness.analysis.estimate import Estimate, estimate_share
from gapft_harness.analysis.pass_at_k import list_reported_k
from gapft_harness.core.records import State
from gapft_harness.presentation.content import (
    Column,
    Figure,
    Row,
    Section,
    Table,
    add_hidden,
    format_value,
)
from gapft_harness.presentation.figures import flows, lines
from gapft_harness.report.findings.computation import Findings
from gapft_harness.report.names import STATE_NAMES, condition_name, name_decode, name_source
from gapft_harness.report.reading.inputs import ReportInputs

#: Marks a rate that is based on few problems.
UNSTABLE = "†"

_STATES: tuple[State, ...] = ("S", "U", "G")
_RATES = {"S": ("kappa_S", "κ_S"), "U": ("kappa_U", "κ_U"), "G": ("rho_G", "ρ_G")}

_DECOMPOSITION_NOTE = (
    "κ_S: share of the failures recovered by search that are right after training. κ_U: the same "
    "share of the failures missed by search. ρ_G: share of the problems solved by the source that "
    "are wrong after training. The terms are these rates times each state's share of the audit; "
    "they add up exactly to the change of Pass@1 (Equation 9). A dash: the state is empty. "
    f"{UNSTABLE} Unstable: fewer than {STABLE_ITEMS} audit problems."
)
_CURVE_NOTE = (
    "Unbiased Pass@k on the audit, with 95% intervals: Wilson's where a problem counts 0 or 1, "
    "else the bootstrap. It needs search and a verifier at inference: it is a reference, not a "
    "deployed model. Sampled Pass@1: Pass@k at k = 1, the share of samples that pass. maj@K: the "
    "most frequent answer of K samples, without a verifier."
)
_STATES_NOTE = (
    "Under the source model, with Wilson's 95% intervals. A problem missed by this search is not "
    "impossible: with more samples, problems move from U to S."
)
_RECOVERED_NOTE = (
    "Pool problems that the source fails in one decode and that the first K samples of the search "
    "recover: the training problems of a search with K samples."
)


def build_decomposition(findings: Findings) -> Section:
    """Build the section on the parts of the change by state."""
    unstable = find_unstable_states(*findings.source.verdicts.sizes.values())
    rates = [
        Column(key, f"{title} {UNSTABLE}" if state in unstable else title, "share")
        for state, (key, title) in _RATES.items()
    ]
    terms = [Column(f"term_{state}", f"{state} (points)", "points") for state in _STATES]
    rows = [
        {
            "label": condition.label,
            "condition": name,
            **condition.mean.list_rates(),
        }
        for name, condition in findings.conditions.items()
    ]
    columns = add_hidden([Column("label", "condition"), *rates, *terms], rows)
    table = Table("decomposition", columns, rows, _DECOMPOSITION_NOTE)
    return Section("Where the change comes from", tables=[table], figures=[_draw_flows(findings)])


def _draw_flows(findings: Findings) -> Figure:
    mean = findings.conditions[findings.lead].mean
    outcomes: dict[State, Sequence[int]] = {
        "G": (mean.n_g - mean.regressed_g, 0, mean.regressed_g, 0),
        "S": (0, mean.corrected_s, 0, mean.n_s - mean.corrected_s),
        "U": (0, mean.corrected_u, 0, mean.n_u - mean.corrected_u),
    }
    rows = {
        f"{state}: {STATE_NAMES[state]}": [count / mean.n for count in counts]
        for state, counts in outcomes.items()
    }
    lead = condition_name(findings.lead)
    lost, corrected, acquired = (
        format_value(count / mean.n, "share")
        for count in (mean.regressed_g, mean.corrected_s, mean.corrected_u)
    )
    return Figure(
        "flows",
        flows(rows),
        f"After {lead}, of all audit problems: {lost} solved ones are lost, {corrected} recovered "
        f"ones and {acquired} missed ones are corrected",
        f"Outcomes after {lead} by the source's state, as shares of the audit; mean over seeds.",
    )


def build_reach(inputs: ReportInputs, findings: Findings) -> Section:
    """Build the section on what search reaches: Pass@k, states, and training problems by K."""
    search = findings.source
    rates = [dict(row) for row in search.list_rates()]
    rates[0]["label"] = name_decode(inputs.deployment)
    shown = [row for row in rates if row["k"] in (0, *list_reported_k(inputs.k))]
    columns = [
        Column("label", ""),
        Column("rate", "passes", "share"),
        Column("gain", "− sampled Pass@1 (points)", "points"),
    ]
    tables = [
        Table("", columns, shown, _CURVE_NOTE),
        Table("curve", add_hidden((), rates), rates),
        _build_states({"pool": inputs.pool_states, "audit": search.verdicts.sizes}),
    ]
    if inputs.pool_recovered:
        rows = [{"K": k, "problems": n} for k, n in enumerate(inputs.pool_recovered, start=1)]
        titles = [Column("K", "K", "count"), Column("problems", "recovered", "count")]
        folded = "Training problems by K"
        tables.append(Table("recovered", titles, rows, _RECOVERED_NOTE, folded))
    fault = search.verdicts.voting_fault
    text = [f"maj@K is not shown: {fault}."] if fault else []
    return Section("What search reaches", text, tables, [_draw_curve(inputs, findings)])


def _draw_curve(inputs: ReportInputs, findings: Findings) -> Figure:
    search = findings.source
    levels: dict[str, Estimate] = {name_source(inputs.deployment): search.greedy}
    for name, condition in findings.distinct.items():
        levels[condition_name(name)] = condition.estimate
    curve = dict(enumerate(search.pass_at, 1))
    points = ", ".join(
        f"{format_value(rate.value, 'share')} at k = {k}" for k, rate in curve.items()
    )
    decodes = ", ".join(
        f"{name} {format_value(level.value, 'share')}" for name, level in levels.items()
    )
    return Figure(
        "pass_at_k",
        lines("Pass@k", curve, "source samples that a verifier may choose from, k", levels),
        f"Source Pass@k: {points}. One decode: {decodes}",
        "Share of audit problems that at least one of k source samples solves, with its 95% "
        "interval. Dashed: one decode of each model.",
    )


def _build_states(splits: Mapping[str, Mapping[State, int]]) -> Table:
    rows = [row for split, sizes in splits.items() for row in _list_states(split, sizes)]
    columns = [
        Column("split", "split"),
        Column("state", "state"),
        Column("meaning", ""),
        Column("problems", "problems", "count"),
        Column("share", "share", "share"),
    ]
    return Table("states", columns, rows, _STATES_NOTE)


def _list_states(split: str, sizes: Mapping[State, int]) -> Iterator[Row]:
    total = sum(sizes.values())
    for state, name in STATE_NAMES.items():
        share = estimate_share(sizes[state] / total, total) if total else None
        yield {
            "split": split,
            "state": state,
            "meaning": name,
            "problems": sizes[state],
            "share": share,
        }
