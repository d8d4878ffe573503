"""The page of ``gapft compare``: differences, gate, subsets, states and changed documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gapft_harness.analysis.pass_at_k import format_k, list_reported_k
from gapft_harness.compare.comparison import Comparison, Selected
from gapft_harness.compare.findings import Paired
from gapft_harness.compare.gate import GateCheck, build_gate_section, build_gate_table, find_verdict
from gapft_harness.compare.items import (
    ChangedItem,
    build_explored,
    find_changed_items,
    format_gold,
    list_item_rows,
    name_changes,
)
from gapft_harness.compare.notes import list_notes, list_warnings
from gapft_harness.core.files import require_absent
from gapft_harness.presentation.content import Column, Figure, Format, Section, Table, format_value
from gapft_harness.presentation.figures import forest
from gapft_harness.presentation.page import EXPLORER, Page
from gapft_harness.report.explorer import packing as explorer

#: The stem of the page's file names.
_NAME = "comparison"
#: The files that must be absent, or are replaced.
FILES = (f"{_NAME}.html", f"{_NAME}.md", EXPLORER, "results.json")
#: Maximum characters of a text in the tables of changed documents: its start and its end.
_MAX_TEXT = 600
#: Maximum number of rows of the figure.
_MAX_FOREST = 60

_NOTE = (
    "Difference: after minus before, with its 95% interval: 2,000 bootstrap replicates of documents "
    "(or clusters) and training seeds, Newcombe's where they do not vary; none for one document. "
    "p: McNemar's exact test for one seed and numbers 0 and 1, else sign flips; two-sided; Holm: "
    "adjusted for the table. Means are over seeds; changed documents are summed over them."
)
_PAIRS_NOTE = (
    "Model minus other, as above; documents changed by their mean over seeds. Holm: adjusted for "
    "all pairs of models, including those with the model before."
)
_GROUPS_NOTE = "Groups of tasks as lm_eval reports them: weighted by documents, or equally."
_STATES_NOTE = "G: right before; S: wrong before, right in at least one of the samples; U: in none."
_TERMS_NOTE = (
    "difference = p_S κ_S + p_U κ_U − p_G ρ_G, in points, exactly (Equation 9). κ_S and κ_U: share "
    "of S and U that is right after; ρ_G: share of G that is wrong after. K_eq: the largest number "
    "of samples of the model before, selected by a verifier, that one answer after is worth. Rates "
    "of fewer than 30 documents are unstable."
)
_TASKS_NOTE = (
    "The first metric and filter of each log before, unless --metric and --filter choose. log: rows "
    "are log-likelihoods, and their negatives are compared: the logarithm of the perplexity."
)
_CHANGED = (
    f"The first of each model; --show N shows more, and --out writes all (items, {EXPLORER})."
)


def build_page(
    comparison: Comparison, checks: Sequence[GateCheck] = (), *, written: bool = False
) -> Page:
    """Build the page.

    Args:
        comparison: the comparison.
        checks: the checks of the gate.
        written: whether the page is written to a folder, with figures and every document.
    """
    tables = {table.name: table for table in _build_tables(comparison)}
    warnings, notes = [*list_warnings(comparison)], [*list_notes(comparison)]
    figures = [*_draw_forest(comparison)] if written else []
    sections = [
        Section("", [_describe_logs(comparison)], warnings=warnings),
        Section("Before and after", tables=[tables["models"]], figures=figures),
        *([build_gate_section(comparison, checks)] if checks else []),
        Section("Between the models", tables=[tables["pairs"]]),
        Section(
            f"By {comparison.choice.by or 'task'}", tables=[tables["task_groups"], tables["groups"]]
        ),
        Section("Where the change comes from", tables=[tables["states"], tables["terms"]]),
        _build_changed(comparison),
        Section("How this was compared", notes, [tables["tasks"], tables["logs"]]),
    ]
    shown = [
        replace(section, tables=[table for table in section.tables if table.rows])
        for section in sections
    ]
    named = {table.name for section in shown for table in section.tables}
    files = [table for table in tables.values() if table.name not in named]
    files.append(_build_facts(comparison, checks))
    if not checks:
        files.append(build_gate_table(()))
    files.append(Table("notes", [Column("note")], [{"note": note} for note in notes]))
    if written:
        files.append(_build_items(comparison))
    return Page(
        _NAME,
        "Comparison",
        [section for section in shown if section.tables or section.text or section.figures],
        files,
        explorer.render_explorer(build_explored(comparison)) if written else "",
    )


def write_comparison(
    comparison: Comparison,
    folder: Path,
    checks: Sequence[GateCheck] = (),
    *,
    overwrite: bool = False,
) -> None:
    """Write the page and all tables.

    Args:
        comparison: the comparison.
        folder: the folder; created if missing.
        checks: the checks of the gate.
        overwrite: replace the files of an earlier comparison.

    Raises:
        UserError: the folder already contains a comparison.
        GapftError: the folder is not writable, or the disk is full.
    """
    require_absent(folder, FILES, overwrite=overwrite)
    build_page(comparison, checks, written=True).write(folder)


def _describe_logs(comparison: Comparison) -> str:
    tasks = [task for task in comparison.metrics if task]
    more = f" and {len(tasks) - 5} more" if len(tasks) > 5 else ""
    names = f"{', '.join(tasks[:5])}{more}: " if tasks else ""
    metric = "" if comparison.metric is None else f", {comparison.metric}"
    lower = [task for task, is_higher in comparison.directions.items() if is_higher is False]
    which = "" if len(lower) == len(comparison.directions) else f" for {', '.join(lower)}"
    direction = f" (lower is better{which})" if lower else ""
    return (
        f"{names}{len(comparison.joined.items):,} documents{metric}{direction}; before: "
        f"{comparison.before_name}"
    )


def _build_tables(comparison: Comparison) -> Iterator[Table]:
    findings = comparison.findings
    model = [Column("model", "model")]
    cut_before = _measure_cut([(comparison.before, comparison.joined.before)])
    cuts = {name: _measure_cut(runs) for name, runs in comparison.after.items()}
    rows = [
        ({"model": name, "cut_before": cut_before, "cut_after": cuts[name]}, pair)
        for name, pair in findings.models.items()
    ]
    cut_columns = [
        Column(key, f"cut {side}" if cut_before or any(cuts.values()) else None, "share")
        for key, side in (("cut_before", "before"), ("cut_after", "after"))
    ]
    yield _build_contrasts(comparison, "models", model, rows, _NOTE, cut_columns)
    rows = [
        ({"model": second, "minus": first}, pair)
        for (first, second), pair in findings.pairs.items()
    ]
    columns = [*model, Column("minus", "minus")]
    yield _build_contrasts(comparison, "pairs", columns, rows, _PAIRS_NOTE)
    aggregates = {aggregate.name: aggregate for aggregate in comparison.aggregates}
    rows = [
        (
            {
                "group": group,
                "weights": "documents" if aggregates[group].weighted else "equal",
                "model": name,
            },
            pair,
        )
        for group, pairs in findings.aggregates.items()
        for name, pair in pairs.items()
    ]
    columns = [Column("group", "group"), Column("weights", "weights"), *model]
    yield _build_contrasts(comparison, "task_groups", columns, rows, _GROUPS_NOTE)
    rows = [
        ({"group": group, "model": name}, pair)
        for group, pairs in findings.groups.items()
        for name, pair in pairs.items()
    ]
    columns = [Column("group", comparison.choice.by or "task"), *model]
    yield _build_contrasts(comparison, "groups", columns, rows, _NOTE)
    yield from _build_states(comparison)
    yield _build_tasks(comparison)
    yield _build_logs(comparison)


def _build_contrasts(
    comparison: Comparison,
    name: str,
    heads: Sequence[Column],
    rows: Sequence[tuple[Mapping[str, Any], Paired]],
    note: str,
    tails: Sequence[Column] = (),
) -> Table:
    """Build a table of contrasts; shares are in percent if all rows of the table are shares.

    Args:
        comparison: the comparison.
        name: of the table.
        heads: the columns that name a row.
        rows: the values of further columns, and the contrast.
        note: of the table.
        tails: further columns at the end.
    """
    pairs = [pair for _, pair in rows]
    rose, fell = name_changes(comparison)
    level, change, unit = _choose_formats(comparison, pairs)
    columns = [
        *heads,
        Column("documents", "documents" if len({p.items for p in pairs}) > 1 else None, "count"),
        Column("clusters", "clusters" if comparison.choice.cluster else None, "count"),
        Column("seeds", "seeds" if any(p.seeds > 1 for p in pairs) else None, "count"),
        Column("before", "before", level),
        Column("after", "after", level),
        Column("difference", f"difference{unit}", change),
        Column("test"),
        Column("p", "p", "p"),
        Column("p_holm", "p (Holm)" if any(p.p_holm is not None for p in pairs) else None, "p"),
        Column(rose, rose, "count"),
        Column(fell, fell, "count"),
        *tails,
    ]
    values = [
        {
            **own,
            "documents": pair.items,
            "clusters": pair.units,
            "seeds": pair.seeds,
            "before": pair.before,
            "after": pair.after,
            "difference": pair.estimate,
            "test": pair.test,
            "p": pair.estimate.p,
            "p_holm": pair.p_holm,
            rose: pair.gained,
            fell: pair.lost,
        }
        for own, pair in rows
    ]
    return Table(name, columns, values, note)


def _choose_formats(comparison: Comparison, pairs: Iterable[Paired]) -> tuple[Format, Format, str]:
    """Choose the formats of levels and differences, and the unit of the difference."""
    if all(pair.is_binary for pair in pairs):
        return "share", "points", " (points)"
    return "number", "change", f" ({comparison.metric.name})" if comparison.metric else ""


def _measure_cut(runs: Sequence[Selected]) -> float | None:
    """Compute the share of responses cut at the token limit; None if a log has no endings."""
    endings = [[outcomes.endings[row] for row in rows.tolist()] for outcomes, rows in runs]
    if any({*run} == {"unknown"} for run in endings):
        return None
    return sum(run.count("length") for run in endings) / sum(map(len, endings))


def _draw_forest(comparison: Comparison) -> Iterator[Figure]:
    """Draw the difference of each model, and of each group, if all have one unit."""
    findings = comparison.findings
    rows = [*findings.models.items()]
    for group, pairs in {**findings.aggregates, **findings.groups}.items():
        rows += [(f"{group}: {m}" if len(pairs) > 1 else group, p) for m, p in pairs.items()]
    if not findings.models or len(rows) > _MAX_FOREST:
        rows = [*findings.models.items()]
    if rows:
        _, change, unit = _choose_formats(comparison, [pair for _, pair in rows])
        label = f"after minus before{unit}"
        yield Figure(
            "differences",
            forest([(name, pair.estimate) for name, pair in rows], label, change),
            "; ".join(f"{name}: {format_value(pair.estimate, change)}" for name, pair in rows),
            f"{label.capitalize()}, with 95% intervals. Filled: the interval excludes zero.",
        )


def _build_states(comparison: Comparison) -> Iterator[Table]:
    """Build the tables of states, of the terms of each model's difference, and of Pass@k."""
    samples = comparison.samples
    sizes = {} if samples is None else samples.sizes
    yield Table(
        "states",
        [Column("state", "state before"), Column("documents", "documents", "count")],
        [{"state": state, "documents": size} for state, size in sizes.items()],
        _STATES_NOTE,
    )
    titles = {"S": "p_S κ_S", "U": "p_U κ_U", "G": "−p_G ρ_G", "difference": "difference"}
    rates = {"kappa_S": "κ_S", "kappa_U": "κ_U", "rho_G": "ρ_G"}
    columns = [
        Column("model", "model"),
        *(Column(key, title, "points") for key, title in titles.items()),
        *(Column(key, title, "share") for key, title in rates.items()),
        Column("K_eq", "K_eq"),
    ]
    rows = [
        {
            "model": name,
            "S": own.counts.terms.s,
            "U": own.counts.terms.u,
            "G": own.counts.terms.g,
            "difference": own.counts.terms.total,
            "kappa_S": own.counts.kappa_s,
            "kappa_U": own.counts.kappa_u,
            "rho_G": own.counts.rho_g,
            "K_eq": format_k(own.k_eq),
        }
        for name, own in comparison.findings.by_state.items()
    ]
    yield Table("terms", columns, rows, _TERMS_NOTE)
    curve = (
        [{"k": k, "rate": samples.compute_pass_at(k)} for k in list_reported_k(samples.k)]
        if samples
        else []
    )
    yield Table("pass_at_k", [Column("k"), Column("rate")], curve)


def _build_tasks(comparison: Comparison) -> Table:
    better = {True: "higher", False: "lower", None: None}
    columns = [
        Column("task", "task"),
        Column("metric", "metric"),
        Column("filter", "filter"),
        Column("better", "better"),
        Column("metrics", "other metrics"),
        Column("filters", "other filters"),
    ]
    before = comparison.before
    rows = [
        {
            "task": task,
            "metric": metric.name,
            "filter": metric.filter,
            "better": better[comparison.directions[task]],
            "metrics": ", ".join(n for n in before.metrics[task] if n != metric.metric),
            "filters": ", ".join(n for n in before.other_filters[task] if n != metric.filter),
        }
        for task, metric in comparison.metrics.items()
    ]
    return Table("tasks", columns, rows, _TASKS_NOTE)


def _build_logs(comparison: Comparison) -> Table:
    """Build the table of all logs, with the settings of their evaluations."""
    runs = [("before", "", comparison.before)]
    for model, model_runs in comparison.after.items():
        for seed, (outcomes, _) in zip(comparison.seeds[model], model_runs, strict=True):
            runs.append((model, seed, outcomes))
    rows = [
        {
            "model": model,
            "seed": seed,
            "task": log.own_task,
            "version": log.version,
            "format": log.kind,
            "path": str(log.path),
            "settings": ", ".join(f"{key}={value}" for key, value in log.settings.items()),
        }
        for model, seed, outcomes in runs
        for log in outcomes.logs
    ]
    columns = [Column(key, key) for key in rows[0]]
    return Table("logs", columns, rows, folded="Logs and settings of the evaluations")


def _build_facts(comparison: Comparison, checks: Sequence[GateCheck]) -> Table:
    samples = comparison.samples
    row = {
        "documents": len(comparison.joined.items),
        "left_out": comparison.joined.left_out,
        "cluster": comparison.choice.cluster,
        "clusters": comparison.units,
        "by": (comparison.choice.by or "task") if comparison.groups else None,
        "samples": None if samples is None else samples.k,
        "verdict": find_verdict(checks),
    }
    return Table("comparison", [Column(key) for key in row], [row])


def _build_items(comparison: Comparison) -> Table:
    rows = [*list_item_rows(comparison)]
    keys = (
        "model", "seed", "seed_name", "change", "task", "doc_id", "document", "group", "state",
        "value_before", "value_after", "prompt", "gold", "before", "after",
    )  # fmt: skip
    return Table("items", [Column(key) for key in keys], rows, csv_only=True)


def _build_changed(comparison: Comparison) -> Section:
    """Build the section of changed documents: of each model gained ones, then lost ones."""
    order = list(comparison.numbers.after)
    items = sorted(
        find_changed_items(comparison, comparison.choice.shown),
        key=lambda item: (order.index(item.model), not item.is_gained),
    )
    tables = [_build_case(comparison, item) for item in items]
    return Section("Where documents changed", [_CHANGED] if items else [], tables)


def _build_case(comparison: Comparison, item: ChangedItem) -> Table:
    change = name_changes(comparison)[not item.is_gained]
    if not comparison.is_judged:
        values = comparison.numbers.after[item.model][item.seed - 1]
        old, new = comparison.numbers.before[item.position], values[item.position]
        change += f", {format_value(old, 'number')} to {format_value(new, 'number')}"
    seeds = comparison.seeds[item.model]
    which = f", seed {seeds[item.seed - 1]}" if len(seeds) > 1 else ""
    task = f"{comparison.tasks[item.position]} " if len(comparison.metrics) > 1 else ""
    texts = {
        "prompt": item.before.question,
        "gold": format_gold(item.before.gold),
        "before": item.before.response,
        "after": item.after.response,
    }
    columns = [
        Column("part", change),
        Column("text", f"{task}doc_id {item.before.number} ({item.model}{which})"),
    ]
    rows = [{"part": part, "text": _shorten(text)} for part, text in texts.items()]
    return Table("", columns, rows)


def _shorten(text: str) -> str:
    """Shorten a long text to its start and its end: a prompt ends with its question."""
    if len(text) <= _MAX_TEXT:
        return text
    half = _MAX_TEXT // 2
    return f"{text[:half]} [… {len(text) - _MAX_TEXT:,} characters …] {text[-half:]}"
