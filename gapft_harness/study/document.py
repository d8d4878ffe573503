"""A study's report: the tables of the paper's main comparison, cell by cell, and its figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.pass_at_k import reported_k
from gapft_harness.core.records import SOURCE
from gapft_harness.report import FILES
from gapft_harness.report import results as of_run
from gapft_harness.report.findings.whole import ConditionFindings, budget_matched
from gapft_harness.report.frame import Rows
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import (
    Block,
    Bullets,
    Code,
    Drawing,
    Figure,
    Section,
    Stat,
    Stats,
    Table,
    Text,
)
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import (
    condition_name,
    made_on,
    percent,
    points,
    points_interval,
    whole,
)
from gapft_harness.report.sections import comparison
from gapft_harness.report.sections.budgets import group_name, tokens
from gapft_harness.report.sections.provenance import flat
from gapft_harness.report.tables import tables_of_cells
from gapft_harness.study.findings import CellFindings, Mean, StudyFindings, shares
from gapft_harness.study.protocol import OWN, SECTIONS
from gapft_harness.study.recipe import CELLS, STUDY, folder_of

_MINUS = " \N{MINUS SIGN} "


def document(found: StudyFindings, drawings: Sequence[Drawing]) -> Document:
    """The report: a function of the findings and of how figures are drawn."""
    cells = [(cell.name, cell.inputs, cell.found) for cell in found.cells]
    tables = {
        **dict(tables_of_cells(cells)),
        "means.csv": _mean_rows(found),
        "shares.csv": _share_rows(found),
    }
    return Document(
        title=f"Study {found.study.name}",
        subtitle=found.study.description,
        made=made_on(day for cell in found.cells for day in cell.inputs.days),
        sections=sections(found),
        names=FILES,
        results=results(found),
        tables={f"tables/{name}": rows for name, rows in tables.items()},
        drawings=drawings,
    )


def sections(of: StudyFindings) -> list[Section]:
    """Every section."""
    found = [Section("", _opening(of))]
    if of.cells:
        found += [
            Section("Main comparison", _main(of)),
            Section(_minus(of.study.lead, of.study.reference), _forest(of)),
            Section("Equal-weight means", _means(of)),
            Section("Where the change comes from", _decomposition(of)),
            Section("What one decode is worth", _amortization(of)),
            Section("Share of a larger budget's gain", _shared(of)),
            Section("Training budgets", spent(of)),
        ]
    return [*found, *provenance(of)]


def _minus(a: str, b: str) -> str:
    return f"{condition_name(a)}{_MINUS}{condition_name(b)}"


def _main(of: StudyFindings) -> list[Block]:
    """Table 1, and every Pass@1 with its interval."""
    lead = of.study.lead
    # as the paper has it: the study's condition last, but for those with another budget
    own = [n for n in of.study.conditions if n != lead and not _matched(of, n)]
    order = [*(n for n in reversed(of.study.conditions) if n != lead and n not in own), lead, *own]
    rows, every = [], []
    by_name = {cell.name: cell for cell in of.cells}
    for collected in of.collected:
        cell = by_name.get(collected.name)
        if cell is None:
            rows.append([collected.name, *["–"] * (len(order) + 3)])
            continue
        found = cell.found
        gain = found.contrast(lead, SOURCE)
        rows.append(
            [
                cell.name,
                whole(_budget_n(found.conditions[lead])),
                _plain(found.source.pass_at_1),
                *(_plain(found.conditions[name].mean.pass_at_1) for name in order),
                f"{points(gain.delta, 2)} {wording.points_interval(gain.interval, 2)}",
            ]
        )
        for name in order:
            every.append([cell.name, *comparison.accuracy(found.conditions[name], cell.inputs.k)])
    note = (
        "Pass@1 in percent on each cell's audit: one greedy decode, mean over seeds "
        f"{wording.listed([str(seed) for seed in of.study.seeds])}. n: example slots of a matched "
        "condition. Brackets are 95% intervals, in percentage points."
    )
    if own:
        note += f" * Not budget-matched: {wording.listed([*map(condition_name, own)])}."
    if of.lacking:
        note += " A dash: the cell is not whole; see the top of the page."
    names = [condition_name(name) + (" *" if name in own else "") for name in order]
    columns = ["cell", "n", "source", *names, _minus(lead, SOURCE)]
    return [
        Table(columns, rows, note=note, links=pages(of)),
        Table(
            ["cell", *comparison.ACCURACY],
            every,
            words=2,
            note="Intervals resample training seeds and audit problems.",
            summary="Every condition's Pass@1 with its interval",
        ),
    ]


def _plain(rate: Fraction) -> str:
    """In percent without the sign, as Table 1 has it: every cell of the table is one."""
    return percent(rate, 2).removesuffix("%")


def _matched(of: StudyFindings, condition: str) -> bool:
    """Whether a condition has the first one's budget in every cell."""
    each = [cell.found.conditions for cell in of.cells]
    return all(budget_matched(of_cell[of.study.lead], of_cell[condition]) for of_cell in each)


def _budget_n(condition: ConditionFindings) -> int:
    return next(iter(condition.seeds.values())).budget.n


def _forest(of: StudyFindings) -> list[Block]:
    lead, reference = of.study.lead, of.study.reference
    rows = []
    for cell in of.cells:
        found = cell.found.contrast(lead, reference)
        rows.append(
            [
                cell.name + ("" if cell.found.fair(found) else " *"),
                points(found.delta, 2),
                wording.points_interval(found.interval, 2),
                *(points(term, 2) for term in (found.terms.s, found.terms.u, found.terms.g)),
                wording.p_value(found.resampled.p_value),
            ]
        )
    note = (
        "In percentage points of Pass@1; S, U and G are the parts of each difference that arise on "
        "these states of the source, and sum to it. p: two-sided, from the same replicates; not "
        f"corrected for the number of cells ({len(rows)})."
    )
    if not all(cell.found.fair(cell.found.contrast(lead, reference)) for cell in of.cells):
        note += " * Not budget-matched."
    return [
        Figure(
            "forest",
            "Intervals of Pass@1 differences: "
            + "; ".join(f"{row[0]} {row[1]} {row[2]}" for row in rows),
            "One row a cell, with 95% intervals. Filled: the interval excludes zero.",
        ),
        Table(["cell", "difference", "95% interval", "S", "U", "G", "p"], rows, note=note),
    ]


def _means(of: StudyFindings) -> list[Block]:
    if not of.means:
        return [
            Text(
                "Not given: a mean over fewer cells would not be the study's. See the top of the "
                "page for what is missing.",
                "warning",
            )
        ]
    rows = [
        [
            _minus(mean.a, mean.b) + ("" if mean.matched or mean.b == SOURCE else " *"),
            points(mean.delta, 2),
            wording.points_interval(mean.interval, 2),
            wording.p_value(mean.resampled.p_value),
        ]
        for mean in of.means
    ]
    note = (
        f"Over {len(of.cells)} cells, each counted the same. A replicate draws training seeds once "
        "for all cells, and audit problems once for all cells on one audit. Cells are not "
        "resampled: the mean describes these cells, and not other models or tasks."
    )
    if not all(mean.matched or mean.b == SOURCE for mean in of.means):
        note += " * Not budget-matched."
    return [Table(["contrast", "mean difference", "95% interval", "p"], rows, note=note)]


def _decomposition(of: StudyFindings) -> list[Block]:
    reference = of.study.reference
    rows, differences, few = [], [], []
    for cell in of.cells:
        table = comparison.decomposition(cell.found, explained=False)
        states = cell.found.source.states
        shares = (percent(Fraction(states[s], cell.found.source.n)) for s in ("G", "S", "U"))
        of_states = " / ".join(share.removesuffix("%") for share in shares)
        for number, (condition, *row) in enumerate(table.rows):
            rows.append([cell.name, condition, "" if number else of_states, *row])
        few += [f"{state} of {cell.name} ({states[state]})" for state in cell.found.source.unstable]
        for name in of.study.conditions:
            if name != reference:
                found = cell.found.contrast(name, reference)
                parts = (found.terms.s, found.terms.u, found.terms.g, found.delta)
                differences.append(
                    [cell.name, condition_name(name), *(points(part, 2) for part in parts)]
                )
    note = (
        "p: share of the audit, in percent, in each state of the source. κ_S, κ_U: of the failures "
        "that search recovered, and of those it missed, the share that is right now. ρ_G: of the "
        "solved, the share that is wrong now. The terms S = p_S κ_S, U = p_U κ_U and G = "
        "−p_G ρ_G are computed from counts and sum exactly to the change of Pass@1."
    )
    if few:
        note += (
            f" {wording.UNSTABLE} Unstable: fewer than {STABLE_ITEMS} audit problems: "
            f"{wording.listed(few)}."
        )
    lead = condition_name(of.study.lead)
    rates = ["κ_S", "κ_U", "ρ_G", "S", "U", "G", "change"]
    return [
        Figure(
            "flows",
            "; ".join(_flow(cell, of.study.lead) for cell in of.cells),
            f"Where the audit problems of each source state end up after {lead}, in shares of the "
            "audit, mean over seeds.",
        ),
        Table(["cell", "condition", "p_G / p_S / p_U", *rates], rows, note=note, words=2),
        Table(
            ["cell", "condition", "S", "U", "G", "difference"],
            differences,
            words=2,
            note=f"The terms minus those of {condition_name(reference)}, in percentage points; "
            "each row sums to its difference of Pass@1. A negative G means more regression.",
            summary=f"Term differences from {condition_name(reference)}",
        ),
    ]


def _flow(cell: CellFindings, lead: str) -> str:
    mean = cell.found.conditions[lead].mean
    return (
        f"{cell.name}: of the solved {percent(mean.rho_g)} are lost, of the recovered "
        f"{percent(mean.kappa_s)} corrected, of the missed {percent(mean.kappa_u)}"
    )


def _opening(of: StudyFindings) -> list[Block]:
    """The mean over cells if there is one, else which cells are not whole; then remarks."""
    remarks = [Text(note, "note") for note in of.study.notes]
    if of.lacking:
        whole = len(of.cells)
        said = (
            f"{whole} of {len(of.collected)} cells are whole. The mean over cells is not given "
            "until all are; these are not:"
        )
        lines = [f"{name}: {'; '.join(lacks)}" for name, lacks in of.lacking.items()]
        return [Text(said, "warning"), Bullets(lines), *remarks]
    lead, reference = of.study.lead, of.study.reference
    against, gain = of.mean(lead, reference), of.mean(lead, SOURCE)
    assert against is not None
    assert gain is not None
    above = sum(cell.found.contrast(lead, reference).delta > 0 for cell in of.cells)
    resolved = sum(cell.found.contrast(lead, reference).interval.excludes_zero for cell in of.cells)
    count = len(of.cells)
    cells = f"{count} cells" if count > 1 else "1 cell"
    sentence = (
        f"Over {cells}, each counted the same, {condition_name(lead)} minus "
        f"{condition_name(reference)} is {_said(against)} points of Pass@1"
        f"{' at the same training budget' * against.matched}; "
        f"{wording.resolution(against.interval)}. Minus the source it is {_said(gain)} points. "
        f"{condition_name(lead)} is above "
        f"{condition_name(reference)} in {above} of {count}, with an interval that excludes zero "
        f"on either side in {resolved}. Brackets are 95% intervals."
    )
    stats = [
        _stat(f"{condition_name(lead)} against {condition_name(reference)}", against),
        _stat(f"{condition_name(lead)} against the source", gain),
        Stat("cells", str(count), f"{len(of.study.seeds)} seeds each"),
    ]
    return [Text(sentence, "lead"), Stats(stats), *remarks]


def _said(mean: Mean) -> str:
    return f"{points(mean.delta, 2)} {points_interval(mean.interval, 2)}"


def _stat(label: str, mean: Mean) -> Stat:
    return Stat(label, points(mean.delta, 2), f"points {points_interval(mean.interval, 2)}, mean")


def _amortization(of: StudyFindings) -> list[Block]:
    """The source's Pass@k, and how many of its samples one decode of each model is worth."""
    samples = of.cells[0].inputs.k  # the protocol is one
    shown = reported_k(samples)[-2:]
    rows = [
        [
            cell.name,
            percent(cell.found.source.pass_at_1, 2),
            *(percent(cell.found.source.curve[k], 2) for k in shown),
            *(wording.k_eq(cell.found.conditions[n].k_eq, samples) for n in of.study.conditions),
        ]
        for cell in of.cells
    ]
    note = (
        f"Pass@k of the source, estimated without bias from {samples} samples a problem: an oracle "
        "reference that takes search and a verifier at inference. By condition, K_eq: the largest "
        "K whose source Pass@K does not exceed the condition's Pass@1; <1: the condition is below "
        f"one sample of the source; ≥{samples}: no more samples were drawn."
    )
    names = [condition_name(name) for name in of.study.conditions]
    names[0] = f"K_eq: {names[0]}"
    return [
        Figure(
            "curves",
            "; ".join(
                f"{row[0]}: greedy {row[1]}, Pass@{samples} {row[1 + len(shown)]}" for row in rows
            ),
            "The source's accuracy when a verifier picks among k samples. Lines: one greedy decode "
            "of each model; the marker stands at its K_eq.",
        ),
        Table(["cell", "greedy", *(f"Pass@{k}" for k in shown), *names], rows, note=note),
    ]


def _shared(of: StudyFindings) -> list[Block]:
    """How much of a larger budget's gain the first condition has, with how much of its problems."""
    lead = condition_name(of.study.lead)
    rows = []
    for cell in of.cells:
        for share in shares(cell, of.study.lead):
            full = cell.found.contrast(share.full, SOURCE).delta
            rows.append(
                [
                    cell.name,
                    condition_name(share.full),
                    percent(share.problems),
                    points(cell.found.contrast(of.study.lead, SOURCE).delta, 2),
                    points(full, 2),
                    percent(share.gain),
                ]
            )
    if not rows:
        return [Text("No condition of this study has a larger budget of its own.")]
    columns = [
        "cell", "reference", "share of its problems", f"gain of {lead}", "its gain", "share of it"
    ]  # fmt: skip
    note = (
        f"Distinct problems that {lead} is trained on, and its gain over the source in percentage "
        "points, beside those of a reference with a larger budget. Where the reference gains "
        "little, the share says little; a dash: it gains nothing."
    )
    return [Table(columns, rows, words=2, note=note)]


def spent(of: StudyFindings) -> list[Block]:
    """n, N, L and J of every cell, a row for each budget."""
    rows = []
    for cell in of.cells:
        conditions = cell.found.conditions
        groups = cell.found.groups + [[c] for c in conditions.values() if not c.matched]
        for group in groups:
            budget = next(iter(group[0].seeds.values())).budget
            low, high, spread = tokens(group)
            own = [of_lead for of_lead in group if of_lead.name == of.study.lead]
            processed = [seed.budget.tokens for each in own for seed in each.seeds.values()]
            rows.append(
                [
                    cell.name,
                    group_name(group),
                    *(whole(value) for value in (budget.n, budget.exposures)),
                    whole(round(sum(processed) / len(processed))) if own else "–",
                    *(whole(value) for value in (low, high)),
                    percent(spread),
                    whole(budget.steps),
                ]
            )
    lead = f"L of {condition_name(of.study.lead)}"
    columns = ["cell", "conditions", "n", "N", lead, "L, fewest", "L, most", "spread of L", "J"]
    note = (
        "n example slots, N exposures, L processed tokens over conditions and seeds, J optimizer "
        "steps; the first L is of the study's first condition, mean over seeds, as in the paper. "
        "Within a row n, N and J are the same; tokens are reported, not enforced."
    )
    return [Table(columns, rows, words=2, note=note)]


def provenance(of: StudyFindings) -> list[Section]:
    """Cells, settings, and the commands."""
    return [
        Section("Cells", _cells(of)),
        Section("Settings", _settings(of)),
        Section("Reproduce", _reproduce(of)),
    ]


def _cells(of: StudyFindings) -> list[Block]:
    whole_cells = {cell.name: cell.inputs for cell in of.cells}
    rows = []
    for cell in of.collected:
        choice, inputs = of.study.cells[cell.name], whole_cells.get(cell.name)
        place = choice.run or f"{CELLS}/{folder_of(cell.name)}"
        said = ["–"] * 4
        if inputs is not None:
            model = str(inputs.recipe["model"]["args"]["pretrained"])
            params = json.dumps(inputs.task.get("verifier_params", {}), ensure_ascii=False)
            verifier = f"{inputs.task['verifier']} {params}"
            if inputs.taken:
                verifier += f" (not {' and '.join(inputs.taken)}: verdicts of imported files)"
            said = [model, inputs.task["name"], verifier, whole(len(inputs.audit.ids))]
        rows.append([cell.name, "; ".join(cell.lacks) or "whole", *said, place])
    columns = ["cell", "state", "model", "task", "verifier", "audit problems", "run"]
    note = (
        "Each run has a report of its own (report/index.html in its folder; a cell's name leads "
        "there), with everything that this page leaves out: every seed as counts, problems gained "
        "and lost, verdicts, warnings."
    )
    lines = [f"{cell.name}: {line}" for cell in of.collected for line in cell.warnings]
    return [
        Table(columns, rows, words=7, note=note, links=pages(of)),
        *([Bullets(lines)] if lines else []),
    ]


def pages(of: StudyFindings) -> dict[str, str]:
    """Of the cells that have a report, where it is."""
    return {cell.name: cell.page for cell in of.collected if cell.page}


def _settings(of: StudyFindings) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "Compared before anything was run, and the same in every cell: the sections "
            f"{', '.join(SECTIONS)} of the recipe, but for {', '.join(OWN)}; the conditions with "
            "their selectors; and the seeds. Model, task, verifier and the numbers of a budget are "
            "each cell's own. Cells of one task have one audit."
        )
    ]
    if of.cells:
        recipe = of.cells[0].inputs.recipe
        kept = {name: recipe[name] for name in ("conditions", "seeds", *SECTIONS)}
        own = {*OWN, *(f"{name}.run" for name in of.study.conditions)}
        rows = [[key, value] for key, value in flat(kept) if key not in own]
        blocks.append(Table(["key", "value"], rows, words=2, summary="What the cells share"))
    return blocks


def _reproduce(of: StudyFindings) -> list[Block]:
    said = (
        f"The study's folder holds {STUDY} and a run for each cell that names a recipe. In that "
        "folder, to go on or write this page again, and to verify every cell and this report:"
    )
    return [Text(said), Code(f"gapft study {STUDY} --run-dir .\ngapft verify .")]


def results(found: StudyFindings) -> dict[str, Any]:
    """The content of a study's results.json (schema 1; keys in docs/studies.md)."""
    study = found.study
    cells: dict[str, Any] = {}
    whole = {cell.name: cell for cell in found.cells}
    for collected in found.collected:
        cell = whole.get(collected.name)
        if cell is None:
            cells[collected.name] = {"lacks": list(collected.lacks)}
            continue
        cells[collected.name] = {
            **of_run.results(cell.inputs, cell.found),
            "shares": {
                share.full: {
                    "gain": of_run.number(share.gain),
                    "problems": float(share.problems),
                }
                for share in shares(cell, study.lead)
            },
            "files": dict(collected.files),
        }
    return {
        "schema": 1,
        "study": study.name,
        "conditions": list(study.conditions),
        "reference": study.reference,
        "seeds": list(study.seeds),
        "whole": not found.lacking,
        "means": [_mean(mean) for mean in found.means] or None,
        "cells": cells,
    }


def _mean(mean: Mean) -> dict[str, Any]:
    return {
        "a": mean.a,
        "b": mean.b,
        "delta": float(mean.delta),
        "ci95": [mean.interval.low, mean.interval.high],
        "p": mean.resampled.p_value,
        "matched_budget": mean.matched,
    }


def _mean_rows(found: StudyFindings) -> Rows:
    yield "a", "b", "mean_difference", "ci95_low", "ci95_high", "p", "matched_budget"
    for of in (_mean(mean) for mean in found.means):
        yield of["a"], of["b"], of["delta"], *of["ci95"], of["p"], of["matched_budget"]


def _share_rows(found: StudyFindings) -> Rows:
    yield "cell", "reference", "share_of_problems", "share_of_gain"
    for cell in found.cells:
        for of in shares(cell, found.study.lead):
            yield cell.name, of.full, float(of.problems), of_run.number(of.gain)
