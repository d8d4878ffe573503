"""The scope matrix as a section of the report, and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.experiments.scope.findings import ScopeFindings, ScopeLine
from gapft_harness.report.reading.adapters import SCALED
from gapft_harness.report.rendering.blocks import Block, Figure, Table, Text
from gapft_harness.report.rendering.wording import (
    UNSTABLE,
    condition_name,
    listed,
    percent,
    points,
    whole,
)


def blocks(found: ScopeFindings) -> list[Block]:
    """A sentence, the figure and the matrix."""
    return [Text(_result(found)), _figure(found), _matrix(found)]


def rows(found: ScopeFindings) -> Iterator[Sequence[object]]:
    """A line a condition and K; the first names the columns."""
    yield (
        "condition", "K", "G", "S", "U", "p_S", "kappa_S", "kappa_U", "rho_G", "net_gain",
        "null_S", "null_U", "unstable",
    )  # fmt: skip
    for line in found.lines:
        row, mean = line.row, line.row.mean
        rates = (row.p_s, mean.kappa_s, mean.kappa_u, mean.rho_g, row.net_gain)
        null = (line.null.get("S"), line.null.get("U"))
        numbers = ("" if rate is None else float(rate) for rate in (*rates, *null))
        yield line.condition, row.k, *row.sizes, *numbers, " ".join(row.unstable)


def _result(found: ScopeFindings) -> str:
    sizes = {line.row.k: line.row for line in found.lines}
    shares = [f"{percent(row.p_s)} at K = {k}" for k, row in sizes.items()]
    return (
        f"Search recovers {listed(shares)} of the audit, all from one search. A larger K moves "
        "problems from U to S. The trained models are the same at every K, and so are Pass@1 and "
        f"the regression on G.{f' {SCALED}' if found.adapters == 'scaled' else ''}"
    )


def _figure(found: ScopeFindings) -> Figure:
    sizes = {line.row.k: line.row.sizes for line in found.lines}
    states = (f"K = {k}: {' / '.join(map(whole, of))}" for k, of in sizes.items())
    rates = (
        f"{condition_name(of.condition)} at K = {of.row.k}: κ_S {percent(of.row.mean.kappa_s)}, "
        f"κ_U {percent(of.row.mean.kappa_u)}"
        for of in found.lines
    )
    return Figure(
        "scope",
        f"Audit problems in G / S / U: {'; '.join(states)}. Corrected: {'; '.join(rates)}.",
        "Above: the audit's problems by state at each K. Below: what each condition corrects of S "
        "and of U, mean over seeds.",
    )


def _matrix(found: ScopeFindings) -> Table:
    note = (
        "K: the first K samples of the search. p_S: share of the audit that they recover. κ_S, κ_U "
        "and ρ_G: means over seeds. Net gain: Pass@1 minus the source's, in percentage points. "
        "Null S and null U: the rates to be expected if the answers given after training were "
        "dealt out anew among problems of the same state and the same answer of the source."
    )
    few = sorted({(line.row.k, state) for line in found.lines for state in line.row.unstable})
    if few:
        named = listed([f"{state} at K = {k}" for k, state in few])
        note += f" {UNSTABLE} Unstable: fewer than {STABLE_ITEMS} audit problems ({named})."
    if found.why:
        note += f" No null rates: {found.why}."
    columns = ["condition", "K", "G / S / U", "p_S", "κ_S", "κ_U", "ρ_G", "net gain"]
    return Table([*columns, "null S", "null U"], [_cells(line) for line in found.lines], note=note)


def _cells(line: ScopeLine) -> list[str]:
    row = line.row

    def rate(value: Fraction | None, state: str) -> str:
        return percent(value) + (UNSTABLE if value is not None and state in row.unstable else "")

    return [
        condition_name(line.condition),
        str(row.k),
        " / ".join(map(whole, row.sizes)),
        percent(row.p_s),
        rate(row.mean.kappa_s, "S"),
        rate(row.mean.kappa_u, "U"),
        rate(row.mean.rho_g, "G"),
        points(row.net_gain, 2),
        rate(line.null.get("S"), "S"),
        rate(line.null.get("U"), "U"),
    ]
