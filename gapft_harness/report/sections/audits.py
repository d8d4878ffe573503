"""A section for each further audit: its own problems, and no comparison with another's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.reading.inputs import Further, ReportInputs
from gapft_harness.report.rendering.blocks import Block, Bullets, Section, Table, Text
from gapft_harness.report.rendering.wording import STATE_NAMES, listed, percent, whole
from gapft_harness.report.sections import comparison


def sections(inputs: ReportInputs, findings: Findings) -> Iterator[Section]:
    """A section for each, in the recipe's order."""
    for of in inputs.further:
        yield Section(f"Audit {of.name}", _blocks(inputs, of, findings.further[of.name]))


def _what(inputs: ReportInputs, of: Further) -> str:
    """Whose problems these are, and what is compared."""
    n, task = whole(len(of.inputs.audit.ids)), of.inputs.task
    if not of.of:
        return (
            f"A further audit: {n} problems of task {task['name']}, version {task['version']}, "
            f"verified by {task['verifier']}{_params(task['verifier_params'])}. The source was "
            "searched and every adapter decoded on them as on the run's own audit; figures of two "
            "audits are not compared."
        )
    whole_of = next((f.inputs for f in inputs.further if f.name == of.of), inputs)
    which = "the audit" if of.of == "audit" else f"the audit {of.of}"
    return (
        f"A named subset: {n} of the {whole(len(whole_of.audit.ids))} problems of {which}. Nothing "
        "was decoded for it; the same decisions are scored on these problems alone, and compared "
        "with one another, never with those on other problems."
    )


def _params(params: Mapping[str, Any]) -> str:
    return f" ({', '.join(f'{k}: {v}' for k, v in params.items())})" if params else ""


def _blocks(inputs: ReportInputs, of: Further, findings: Findings) -> list[Block]:
    source = findings.source
    states = [
        f"{whole(count)} {STATE_NAMES[state]} ({state}, {percent(Fraction(count, source.n))})"
        for state, count in source.states.items()
    ]
    blocks: list[Block] = [Text(f"{_what(inputs, of)} Under the source model: {listed(states)}.")]
    if not of.of and (dropped := of.inputs.task.get("dropped", ())):
        blocks.append(Bullets(list(dropped)))
    if source.n < STABLE_ITEMS:
        few = f"Its rates rest on fewer than {STABLE_ITEMS} problems: they are unstable."
        blocks.append(Text(few, "warning"))
    rows = [["source, greedy", percent(source.pass_at_1), "", "", ""]]
    rows += [comparison.accuracy(each, inputs.k) for each in findings.conditions.values()]
    note = "Columns as in the table of conditions above. * Not budget-matched."
    if all(each.matched for each in findings.conditions.values()):
        note = note.partition(" *")[0]
    blocks.append(Table(list(comparison.ACCURACY), rows, note=note))
    if findings.conditions:
        blocks += [
            *comparison.contrasts(of.inputs, findings, explained=False),
            comparison.decomposition(findings, explained=False),
        ]
    return blocks
