"""Answer redistribution as a section of the report, and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.experiments.redistribution.findings import RedistributionFindings
from gapft_harness.report.reading.adapters import SCALED
from gapft_harness.report.rendering.blocks import Block, Figure, Table, Text
from gapft_harness.report.rendering.wording import (
    UNSTABLE,
    condition_name,
    listed,
    p_said,
    p_value,
    percent,
    points,
    whole,
)


def blocks(lead: str, found: RedistributionFindings) -> list[Block]:
    """A sentence and the rates, or why there are none."""
    if found.why:
        return [Text(f"No rates: {found.why}.")]
    return [Text(_result(lead, found)), _figure(found), _rates(found)]


def rows(found: RedistributionFindings) -> Iterator[Sequence[object]]:
    """A line a condition and state; the first names the columns."""
    yield "condition", "state", "problems", "fixed", "observed", "null", "p"
    for name, states in found.conditions.items():
        for state, of in states.items():
            numbers = float(of.observed), float(of.null), float(of.p_value)
            yield name, state, of.items, of.fixed, *numbers


def _result(lead: str, found: RedistributionFindings) -> str:
    states = found.conditions[lead]
    if not states:
        return "The source solves every audit problem, so there is no correction to look at."
    shown = [
        f"{percent(of.observed)} of {state}, where redistributed answers would correct "
        f"{percent(of.null)} ({p_said(float(of.p_value))})"
        for state, of in states.items()
    ]
    scaled = f" {SCALED}" if found.adapters == "scaled" else ""
    return f"{condition_name(lead)} corrects {listed(shown)}.{scaled}"


def _figure(found: RedistributionFindings) -> Figure:
    shown = (
        f"{condition_name(name)}, {state}: {percent(of.observed)} against {percent(of.null)}"
        for name, states in found.conditions.items()
        for state, of in states.items()
    )
    return Figure(
        "redistribution",
        f"Observed rates of correction against those of redistributed answers: {'; '.join(shown)}.",
        "Filled: the share that each condition corrects, mean over seeds. Hollow: what its own "
        "answers would correct if they were dealt out anew. On the right both, in this order.",
    )


def _rates(found: RedistributionFindings) -> Table:
    lines, few = [], set()
    for name, states in found.conditions.items():
        for state, of in states.items():
            mark = UNSTABLE if of.items < STABLE_ITEMS else ""
            few |= {f"{state} ({of.items})"} if mark else set()
            lines.append(
                [
                    condition_name(name),
                    state,
                    percent(of.observed) + mark,
                    percent(of.null) + mark,
                    points(of.observed - of.null),
                    p_value(float(of.p_value)),
                    f"{whole(of.fixed)} of {whole(of.items)}",
                ]
            )
    note = (
        "Observed: share of the state's problems that are right after training, κ_S or κ_U, mean "
        "over seeds. Null: the same to be expected if the answers given after training were dealt "
        "out anew among problems of the same state and the same answer of the source, which keeps "
        "how often each answer is given. Difference in percentage points. p: one-sided, of "
        f"{whole(found.permutations)} permutations, the same one for all seeds. Fixed: problems "
        "that no permutation gives another answer, as none of their stratum has another; where "
        "they are many, the null rate is near the observed one whatever the truth."
    )
    if few:
        note += f" {UNSTABLE} Unstable: fewer than {STABLE_ITEMS} problems: {listed(sorted(few))}."
    columns = ["condition", "state", "observed", "null", "difference", "p", "fixed"]
    return Table(columns, lines, note=note)
