"""A study's report: the tables of the paper's main comparison, cell by cell, and its figures.

It has the same files as a run's report, and is computed from the cells' sealed tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.pass_at_k import reported_k
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import SOURCE, Budget
from gapft_harness.report import FILES, replace_folder
from gapft_harness.report import results as of_run
from gapft_harness.report.findings.whole import ConditionFindings, Contrast, budget_matched
from gapft_harness.report.frame import CI95, Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
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
    Text,
)
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import (
    condition_name,
    made_on,
    percent,
    points,
    points_interval,
    rounded,
    whole,
)
from gapft_harness.report.sections import comparison
from gapft_harness.report.sections.budgets import group_name, tokens
from gapft_harness.report.sections.provenance import SETTINGS, flat
from gapft_harness.report.tables import tables_of_cells
from gapft_harness.study.cells import Collected, collect, require_different
from gapft_harness.study.figures import draw_all
from gapft_harness.study.findings import (
    CellFindings,
    Mean,
    Share,
    StudyFindings,
    compute_study,
    shares,
)
from gapft_harness.study.protocol import OWN, SECTIONS, require_comparable, require_one_protocol
from gapft_harness.study.recipe import CELLS, REPORT, STUDY, StudyRecipe, folder_of, read_study

_MINUS = " \N{MINUS SIGN} "
_two, _two_ends = partial(points, digits=2), partial(points_interval, digits=2)

# Meanings of columns in several tables.
_ABOUT = "a property of the cell"
_CELL = "the cell, conditions or contrast"
_DIFFERENCE = "of Pass@1; its mean over cells"
_GAIN = "gains over the source, and their ratio"
_OF_SOURCE = "the source's rate"
_SLOTS = "example slots of a condition with another budget"
_TERM = "terms (Equation 9)"


def document(found: StudyFindings, drawings: Sequence[Drawing]) -> Document:
    """Build the report from the findings and the drawn figures."""
    cells = [(cell.name, cell.inputs, cell.found) for cell in found.cells]
    tables = {
        **dict(tables_of_cells(cells)),
        "means.csv": Frame(MEANS, found.means).csv(),
        "shares.csv": Frame(SHARES, _shares(found)).csv(),
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
    """Build all sections."""
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
    """Build Table 1, and the table of every Pass@1 with its interval."""
    lead = of.study.lead
    # the paper's order: the study's condition is last, before those with another budget
    own = [n for n in of.study.conditions if n != lead and not _matched(of, n)]
    order = [*(n for n in reversed(of.study.conditions) if n != lead and n not in own), lead, *own]
    by_name = {cell.name: cell for cell in of.cells}
    rows = [(each.name, by_name.get(each.name)) for each in of.collected]
    every = [
        CellModel(cell, comparison.Model.of(cell.found.conditions[name], cell.inputs.k))
        for cell in of.cells
        for name in order
    ]
    note = (
        "Pass@1 in percent on each cell's audit: one greedy decode, mean over seeds "
        f"{wording.listed([str(seed) for seed in of.study.seeds])}. n: example slots of a matched "
        "condition. Among the source and the matched conditions, the best of each row is bold and "
        "the second-best underlined. Brackets are 95% intervals, in percentage points."
    )
    if own:
        note += f" * Not budget-matched: {wording.listed([*map(condition_name, own)])}."
    if of.lacking:
        note += " A dash: the cell is incomplete; see the top of the page."
    titles = {name: condition_name(name) + " *" * (name in own) for name in order}
    columns = [*main_columns(lead, titles, own)]
    return [
        Frame(columns, rows).table(note, links=pages(of)),
        Frame(ACCURACY, every).table(
            "Intervals resample training seeds and audit problems.",
            words=2,
            summary="Every condition's Pass@1 with its interval",
        ),
    ]


def _pass_at_1(name: str, cell: CellFindings) -> Fraction:
    return cell.found.conditions[name].mean.pass_at_1


#: A row of the main comparison; an incomplete cell has only a name.
MainRow = tuple[str, CellFindings | None]


def main_columns(
    lead: str, titles: Mapping[str, str], own: Sequence[str] = ()
) -> Iterator[Column[MainRow]]:
    """Build the columns of slots, the source, each condition, and the gain of the lead condition.

    Args:
        lead: the study's first condition.
        titles: titles by condition, in the order of the columns.
        unmatched: conditions with another budget; their slots are shown, and they are not ranked.
    """

    def column(
        title: str,
        meaning: str,
        value: Callable[[CellFindings], Any],
        shown: Callable[[Any], str] = str,
        ranked: bool = False,
    ) -> Column[MainRow]:
        return Column("", meaning, value, title, shown, ranked=ranked).of(lambda row: row[1])

    def gain(cell: CellFindings) -> str:
        return _said(cell.found.contrast(lead, SOURCE))

    def slots(name: str, cell: CellFindings) -> int:
        return _budget_n(cell.found.conditions[name])

    yield Column("", _CELL, lambda row: row[0], "cell")
    yield column("n", "", partial(slots, lead), whole)
    for name in own:
        yield column(f"n, {titles[name]}", _SLOTS, partial(slots, name), whole)
    yield column("source", _OF_SOURCE, lambda cell: cell.found.source.pass_at_1, _plain, True)
    for name, title in titles.items():
        pass_at_1 = partial(_pass_at_1, name)
        yield column(title, "Pass@1 of that condition", pass_at_1, _plain, name not in own)
    yield column(_minus(lead, SOURCE), _GAIN, gain)


def _plain(rate: Fraction) -> str:
    """Format a rate in percent without the percent sign, as in Table 1."""
    return percent(rate, 2).removesuffix("%")


MAIN = tuple(main_columns("CONDITION", {"CONDITION": "CONDITION"}, ["CONDITION"]))


def _matched(of: StudyFindings, condition: str) -> bool:
    """Return whether a condition has the budget of the first condition in every cell."""
    each = [cell.found.conditions for cell in of.cells]
    return all(budget_matched(of_cell[of.study.lead], of_cell[condition]) for of_cell in each)


def _budget_n(condition: ConditionFindings) -> int:
    return next(iter(condition.seeds.values())).budget.n


def _forest(of: StudyFindings) -> list[Block]:
    lead, reference = of.study.lead, of.study.reference
    rows = [(cell, cell.found.contrast(lead, reference)) for cell in of.cells]
    note = (
        "In percentage points of Pass@1. S, U and G: the parts of each difference on these states "
        "of the source; they add up to it. p: two-sided, from the same replicates, not corrected "
        f"for the number of cells ({len(rows)})."
    )
    if not all(cell.found.fair(contrast) for cell, contrast in rows):
        note += " * Not budget-matched."
    table = Frame(FOREST, rows).table(note)
    return [
        Figure(
            "forest",
            "Intervals of Pass@1 differences: "
            + "; ".join(f"{row[0]} {row[1]} {row[2]}" for row in table.rows),
            "One row for each cell, with 95% intervals. Filled marker: the interval excludes zero.",
        ),
        table,
    ]


CellContrast = tuple[CellFindings, Contrast]
TERMS: list[Column[CellContrast]] = [
    Column("", _TERM, lambda row: row[1].terms.s, "S", _two),
    Column("", _TERM, lambda row: row[1].terms.u, "U", _two),
    Column("", _TERM, lambda row: row[1].terms.g, "G", _two),
]
FOREST: tuple[Column[CellContrast], ...] = (
    Column("", _CELL, lambda row: row[0].name + " *" * (not row[0].found.fair(row[1])), "cell"),
    Column("", _DIFFERENCE, lambda row: row[1].delta, "difference", _two),
    Column("", "", lambda row: row[1].interval, "95% interval", _two_ends),
    *TERMS,
    Column("", "", lambda row: row[1].resampled.p_value, "p", wording.p_value),
)


def _means(of: StudyFindings) -> list[Block]:
    if not of.means:
        return [
            Text(
                "Not available: some cells are incomplete, and the mean is defined over all cells. "
                "The top of the page lists the missing parts.",
                "warning",
            )
        ]
    note = (
        f"Over {len(of.cells)} cells with equal weights. A replicate draws training seeds once "
        "for all cells, and audit problems once for all cells with the same audit. Cells are not "
        "resampled: the mean describes these cells, not other models or tasks."
    )
    if not all(mean.matched or mean.b == SOURCE for mean in of.means):
        note += " * Not budget-matched."
    return [Frame(MEANS, of.means).table(note)]


MEANS: tuple[Column[Mean], ...] = (
    Column("a", "", lambda mean: mean.a),
    Column("b", "", lambda mean: mean.b),
    Column(
        "",
        _CELL,
        lambda mean: _minus(mean.a, mean.b) + " *" * (not mean.matched and mean.b != SOURCE),
        "contrast",
    ),
    Column(
        "delta",
        _DIFFERENCE,
        lambda mean: mean.delta,
        "mean difference",
        _two,
        names=("mean_difference",),
    ),
    Column("ci95", "", lambda mean: mean.interval, "95% interval", _two_ends, names=CI95),
    Column("p", "", lambda mean: mean.resampled.p_value, "p", wording.p_value),
    Column("matched_budget", "", lambda mean: mean.matched),
)


def _decomposition(of: StudyFindings) -> list[Block]:
    reference = of.study.reference
    rows, differences, few = [], [], []
    for cell in of.cells:
        states = cell.found.source.states
        for number, condition in enumerate(cell.found.conditions.values()):
            model = comparison.Model.of(condition, cell.inputs.k)
            rows.append(CellModel(cell, model, first=not number))
        few += [f"{state} of {cell.name} ({states[state]})" for state in cell.found.source.unstable]
        differences += [
            (cell, cell.found.contrast(name, reference))
            for name in of.study.conditions
            if name != reference
        ]
    note = (
        "p: share of the audit in each state of the source, in percent. κ_S, κ_U: share of the "
        "failures recovered by search, and of the failures missed by it, that are right after "
        "training. ρ_G: share of the solved problems that are wrong after training. The terms "
        "S = p_S κ_S, U = p_U κ_U and G = −p_G ρ_G are computed from counts, and add up exactly to "
        "the change of Pass@1."
    )
    if few:
        note += (
            f" {wording.UNSTABLE} Unstable: fewer than {STABLE_ITEMS} audit problems: "
            f"{wording.listed(few)}."
        )
    lead = condition_name(of.study.lead)
    return [
        Figure(
            "flows",
            "; ".join(_flow(cell, of.study.lead) for cell in of.cells),
            f"Outcomes after {lead} by source state, as shares of the audit, mean over seeds.",
        ),
        Frame(DECOMPOSITION, rows).table(note, words=2),
        Frame(TERM_DIFFERENCES, differences).table(
            f"The terms minus those of {condition_name(reference)}, in percentage points; they add "
            "up to the row's difference of Pass@1. A negative G means more regression.",
            words=2,
            summary=f"Term differences from {condition_name(reference)}",
        ),
    ]


@dataclass(frozen=True, slots=True)
class CellModel:
    """A condition in a cell; ``is_first``: whether it is the first row of the cell."""

    cell: CellFindings
    model: comparison.Model
    first: bool = False

    @property
    def shares(self) -> str:
        """The shares of the audit's states, in percent."""
        source = self.cell.found.source
        shares = (percent(Fraction(count, source.n)) for count in source.states.values())
        return " / ".join(share.removesuffix("%") for share in shares)


def _of_cell(columns: Iterable[Column[comparison.Model]]) -> Iterator[Column[CellModel]]:
    """Convert columns of a report's conditions to columns of a cell's conditions."""
    for column in columns:
        title = column.title and column.title.removesuffix(" term")
        yield replace(column.of(lambda row: row.model), title=title)


NAME: tuple[Column[CellModel], ...] = (Column("", _CELL, lambda row: row.cell.name, "cell"),)
ACCURACY = (*NAME, *_of_cell(comparison.ACCURACY))
DECOMPOSITION = (
    *NAME,
    *_of_cell(comparison.DECOMPOSITION[:1]),
    Column(
        "",
        "shares of the audit",
        lambda row: row.shares if row.first else "",
        "p_G / p_S / p_U",
    ),
    *_of_cell(comparison.RATES),
)
TERM_DIFFERENCES: tuple[Column[CellContrast], ...] = (
    Column("", _CELL, lambda row: row[0].name, "cell"),
    Column("", "", lambda row: row[1].a, "condition", condition_name),
    *TERMS,
    Column("", _DIFFERENCE, lambda row: row[1].delta, "difference", _two),
)


def _flow(cell: CellFindings, lead: str) -> str:
    mean = cell.found.conditions[lead].mean
    return (
        f"{cell.name}: of the solved {percent(mean.rho_g)} are lost, of the recovered "
        f"{percent(mean.kappa_s)} corrected, of the missed {percent(mean.kappa_u)}"
    )


def _opening(of: StudyFindings) -> list[Block]:
    """Build the opening: the mean over cells, or the incomplete cells; then remarks."""
    remarks = [Text(note, "note") for note in of.study.notes]
    if of.lacking:
        whole = len(of.cells)
        said = (
            f"{whole} of {len(of.collected)} cells are complete. The mean over cells needs all "
            "cells; these are incomplete:"
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
        f"Over {cells} with equal weights, {condition_name(lead)} minus "
        f"{condition_name(reference)} is {_said(against)} points of Pass@1"
        f"{' at the same training budget' * against.matched}; "
        f"{wording.resolution(against.interval)}. Minus the source it is {_said(gain)} points. "
        f"{condition_name(lead)} is above {condition_name(reference)} in {above} of {count} cells; "
        f"the interval excludes zero, on either side, in {resolved}. Brackets are 95% intervals."
    )
    stats = [
        _stat(f"{condition_name(lead)} against {condition_name(reference)}", against),
        _stat(f"{condition_name(lead)} against the source", gain),
        Stat("cells", str(count), f"{len(of.study.seeds)} seeds each"),
    ]
    return [Text(sentence, "lead"), Stats(stats), *remarks]


def _said(of: Mean | Contrast) -> str:
    return f"{points(of.delta, 2)} {points_interval(of.interval, 2)}"


def _stat(label: str, mean: Mean) -> Stat:
    return Stat(label, points(mean.delta, 2), f"points {points_interval(mean.interval, 2)}, mean")


def _amortization(of: StudyFindings) -> list[Block]:
    """Build the table of the source's Pass@k and each condition's K_eq."""
    samples = of.cells[0].inputs.k  # all cells have the same protocol
    shown = reported_k(samples)[-2:]
    note = (
        f"Pass@k of the source: unbiased estimates from {samples} samples of each problem, an "
        "oracle reference that needs search and a verifier at inference. K_eq of a condition: the "
        "largest K whose source Pass@K does not exceed the condition's Pass@1; <1: the condition "
        f"is below one sample of the source; ≥{samples}: no more samples were drawn."
    )
    names = {name: condition_name(name) for name in of.study.conditions}
    names[of.study.lead] = f"K_eq: {names[of.study.lead]}"
    table = Frame([*worth_columns(shown, names)], of.cells).table(note)
    return [
        Figure(
            "curves",
            "; ".join(
                f"{row[0]}: greedy {row[1]}, Pass@{samples} {row[1 + len(shown)]}"
                for row in table.rows
            ),
            "The source's accuracy when a verifier picks among k samples. Lines: one greedy decode "
            "of each model; the marker is at its K_eq.",
        ),
        table,
    ]


_percent = partial(percent, digits=2)


def _pass_at(k: Any, cell: CellFindings) -> Fraction:
    return cell.found.source.curve[k]


def _k_eq(name: str, cell: CellFindings) -> str:
    return wording.k_eq(cell.found.conditions[name].k_eq, cell.inputs.k)


def worth_columns(
    ks: Iterable[int | str], titles: Mapping[str, str]
) -> Iterator[Column[CellFindings]]:
    """Build the columns of the source's Pass@k, and of each condition's K_eq."""
    yield Column("", _CELL, lambda cell: cell.name, "cell")
    yield Column("", _OF_SOURCE, lambda cell: cell.found.source.pass_at_1, "greedy", _percent)
    for k in ks:
        yield Column("", _OF_SOURCE, partial(_pass_at, k), f"Pass@{k}", _percent)
    for name, title in titles.items():
        meaning = "this column and those to its right: K_eq"
        yield Column("", meaning, partial(_k_eq, name), title)


WORTH = tuple(worth_columns(["k"], {"": "K_eq: CONDITION"}))


def _shared(of: StudyFindings) -> list[Block]:
    """Build the table of the lead condition's share of the gain and problems of larger budgets."""
    lead = condition_name(of.study.lead)
    rows = _shares(of)
    if not rows:
        return [Text("No condition of this study has its own, larger budget.")]
    note = (
        f"The distinct training problems of {lead}, and its gain over the source in percentage "
        "points, compared with a reference that has a larger budget. The share has little meaning "
        "where the reference gains little; a dash: the reference gains nothing."
    )
    return [Frame(SHARES, rows).table(note, words=2, fill={"CONDITION": lead})]


CellShare = tuple[CellFindings, str, Share]


def _shares(of: StudyFindings) -> list[CellShare]:
    lead = of.study.lead
    return [(cell, lead, share) for cell in of.cells for share in shares(cell, lead)]


def _gain_in(cell: CellFindings, condition: str) -> Fraction:
    return cell.found.contrast(condition, SOURCE).delta


_LARGER = "the condition with a larger budget; GapFT's distinct problems divided by its"


SHARES: tuple[Column[CellShare], ...] = (
    Column("cell", _CELL, lambda row: row[0].name, "cell"),
    Column("reference", _LARGER, lambda row: row[2].full, "reference", condition_name),
    Column(
        "share_of_problems", _LARGER, lambda row: row[2].problems, "share of its problems", percent
    ),
    Column("", _GAIN, lambda row: _gain_in(row[0], row[1]), "gain of CONDITION", _two),
    Column("", _GAIN, lambda row: _gain_in(row[0], row[2].full), "its gain", _two),
    Column("share_of_gain", _GAIN, lambda row: row[2].gain, "share of it", percent),
)


def spent(of: StudyFindings) -> list[Block]:
    """Build the table of n, N, L and J of every cell, with a row for each budget."""
    rows = []
    for cell in of.cells:
        conditions = cell.found.conditions
        groups = cell.found.groups + [[c] for c in conditions.values() if not c.matched]
        for group in groups:
            rows.append(Spent(cell, group, of.study.lead))
    note = (
        "n: example slots. N: exposures. L: processed tokens, over conditions and seeds; the first "
        "L is of the study's first condition, mean over seeds, as in the paper. J: optimizer "
        "steps. Within a row n, N and J are the same; tokens are reported, not enforced."
    )
    lead = condition_name(of.study.lead)
    return [Frame(SPENT, rows).table(note, words=2, fill={"CONDITION": lead})]


@dataclass(frozen=True, slots=True)
class Spent:
    """Conditions of a cell with the same budget."""

    cell: CellFindings
    group: Sequence[ConditionFindings]
    lead: str

    @property
    def budget(self) -> Budget:
        """The common budget: n, N and J are the same for all."""
        return self.group[0].budgets[0]

    @property
    def processed(self) -> float | None:
        """Tokens L of the study's first condition, mean over seeds; None if it is not included."""
        own = [of.tokens for each in self.group if each.name == self.lead for of in each.budgets]
        return fmean(own) if own else None


_L = "over conditions with the same budget"
_OWN_L = "processed tokens of the first condition, mean over seeds"


SPENT: tuple[Column[Spent], ...] = (
    Column("", _CELL, lambda row: row.cell.name, "cell"),
    Column("", _CELL, lambda row: group_name(row.group), "conditions"),
    Column("", "", lambda row: row.budget.n, "n", whole),
    Column("", "", lambda row: row.budget.exposures, "N", whole),
    Column("", _OWN_L, lambda row: row.processed, "L of CONDITION", rounded),
    Column("", _L, lambda row: tokens(row.group)[0], "L, fewest", whole),
    Column("", _L, lambda row: tokens(row.group)[1], "L, most", whole),
    Column("", _L, lambda row: tokens(row.group)[2], "spread of L", percent),
    Column("", "", lambda row: row.budget.steps, "J", whole),
)


def provenance(of: StudyFindings) -> list[Section]:
    """Build the sections on cells, settings, and commands."""
    return [
        Section("Cells", _cells(of)),
        Section("Settings", _settings(of)),
        Section("Reproduce", _reproduce(of)),
    ]


def _cells(of: StudyFindings) -> list[Block]:
    rows = [
        (cell, of.study.cells[cell.name].run or f"{CELLS}/{folder_of(cell.name)}")
        for cell in of.collected
    ]
    note = (
        "Each run has its own report (report/index.html in its folder, linked from the cell's "
        "name) with more details: counts for every seed, problems gained and lost, verdicts, "
        "warnings."
    )
    lines = [f"{cell.name}: {line}" for cell in of.collected for line in cell.warnings]
    return [
        Frame(CELL, rows).table(note, words=7, links=pages(of)),
        *([Bullets(lines)] if lines else []),
    ]


#: A cell, and where its run is.
CellRow = tuple[Collected, str]


def _of_run(title: str, value: Callable[[ReportInputs], str]) -> Column[CellRow]:
    """Build the column of a property of a cell's run; a dash for an incomplete cell."""
    return Column("", _ABOUT, value, title).of(lambda row: row[0].inputs)


def _verifier(inputs: ReportInputs) -> str:
    params = json.dumps(inputs.task.get("verifier_params", {}), ensure_ascii=False)
    told = f"{inputs.task['verifier']} {params}"
    if inputs.taken:
        told += f" (except {' and '.join(inputs.taken)}: verdicts of imported files)"
    return told


CELL: tuple[Column[CellRow], ...] = (
    Column("", _CELL, lambda row: row[0].name, "cell"),
    Column("", _ABOUT, lambda row: "; ".join(row[0].lacks) or "complete", "state"),
    _of_run("model", lambda inputs: str(inputs.recipe["model"]["args"]["pretrained"])),
    _of_run("task", lambda inputs: str(inputs.task["name"])),
    _of_run("verifier", _verifier),
    _of_run("audit problems", lambda inputs: whole(len(inputs.audit.ids))),
    Column("", _ABOUT, lambda row: row[1], "run"),
)


def pages(of: StudyFindings) -> dict[str, str]:
    """Return the addresses of the cells' reports, by cell."""
    return {cell.name: cell.page for cell in of.collected if cell.page}


def _settings(of: StudyFindings) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "These settings were checked before anything was run, and are the same in every cell: "
            f"the sections {', '.join(SECTIONS)} of the recipe, except {', '.join(OWN)}; the "
            "conditions with their selectors; and the seeds. Model, task, verifier and the numbers "
            "of a budget may differ between cells. Cells with the same task have the same audit."
        )
    ]
    if of.cells:
        recipe = of.cells[0].inputs.recipe
        kept = {name: recipe[name] for name in ("conditions", "seeds", *SECTIONS)}
        own = {*OWN, *(f"{name}.run" for name in of.study.conditions)}
        rows = [(key, value) for key, value in flat(kept) if key not in own]
        blocks.append(Frame(SETTINGS, rows).table(words=2, summary="Settings of all cells"))
    return blocks


def _reproduce(of: StudyFindings) -> list[Block]:
    said = (
        f"The study's folder contains {STUDY}, and a run for each cell that names a recipe. Run "
        "these commands in that folder to continue or to write this page again, and to verify "
        "every cell and this report:"
    )
    return [Text(said), Code(f"gapft study {STUDY} --run-dir .\ngapft verify .")]


def results(found: StudyFindings) -> dict[str, Any]:
    """Build the content of a study's results.json (schema 1; keys in docs/studies.md)."""
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
        "means": Frame(MEANS, found.means).entries() or None,
        "cells": cells,
    }


def write_study(study: StudyRecipe, collected: Sequence[Collected], folder: Path) -> StudyFindings:
    """Compute and write a study's report.

    Raises:
        UserError: the cells are not comparable; an earlier report stays.
        GapftError: the folder cannot be written.
    """
    found = checked(study, collected)
    replace_folder(folder / REPORT, document(found, draw_all(found)).files())
    return found


def checked(study: StudyRecipe, collected: Sequence[Collected]) -> StudyFindings:
    """Check that cells are comparable, and compute the study's findings.

    Raises:
        UserError: the cells are not comparable.
    """
    require_different(collected)
    require_one_protocol(study, {of.name: of.recipe for of in collected if of.recipe is not None})
    require_comparable(study, collected)
    return compute_study(study, collected)


def read_sections(folder: Path) -> list[Section]:
    """Recompute the sections of a study's report from its cells' sealed tables.

    Raises:
        UserError: the folder is not a study, or a cell is incomplete.
    """
    study = read_study(str(folder / STUDY))
    found = checked(study, collect(study, folder))
    if found.lacking:
        told = [f"{name}: {'; '.join(lacks)}" for name, lacks in found.lacking.items()]
        raise UserError("\n".join([f"{folder}: cells are incomplete:", *told]))
    return sections(found)
