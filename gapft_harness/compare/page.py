"""The page of ``gapft compare``: differences, gate, subsets, states and changed documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gapft_harness.analysis.decomposition import by_state
from gapft_harness.analysis.pass_at_k import format_k, k_equivalent
from gapft_harness.compare.comparison import Comparison, Selected
from gapft_harness.compare.findings import Paired
from gapft_harness.compare.gate import GateCheck, build_gate_section, find_verdict
from gapft_harness.compare.items import (
    ReadText,
    build_explored,
    list_changed,
    name_changes,
    open_texts,
)
from gapft_harness.compare.notes import list_notes, list_warnings
from gapft_harness.presentation.content import (
    Column,
    Figure,
    Format,
    Row,
    Section,
    Table,
    format_value,
)
from gapft_harness.presentation.explorer import render_explorer
from gapft_harness.presentation.figures import forest
from gapft_harness.presentation.page import EXPLORER, Page

#: The stem of the page's file names.
_NAME = "comparison"
#: The files that must be absent, or are replaced.
FILES = (f"{_NAME}.html", f"{_NAME}.md", EXPLORER, "results.json")
#: Maximum characters of a text in the tables of changed documents: its start and its end.
_MAX_TEXT = 600
#: Maximum number of rows of the figure.
_MAX_FOREST = 60

_NOTE = (
    "Difference: after minus before, with its 95% interval: 2,000 bootstrap replicates of "
    "documents (or clusters) and training seeds; Newcombe's where they do not vary; none for one "
    "document. p: McNemar's exact test for one seed and numbers 0 and 1, else sign flips; "
    "two-sided. Intervals of fewer than 30 documents or clusters are likely too narrow."
)
_SEEDS_NOTE = " Means are over seeds; changed documents are summed over them."
_HOLM_NOTE = " p (Holm): adjusted for the table."
_AS_ABOVE = "Columns as above."
_PAIRS_NOTE = (
    "Model minus other (–: the model before), as above; documents changed by their mean over seeds."
)
_GROUPS_NOTE = "Means of tasks as lm_eval reports them: weighted by documents, or equally."
_CUT_NOTE = "Share of responses that were cut at the token limit: a gain may come from fewer."
_STATES_NOTE = (
    "G: right before; S: wrong before, right in at least one of the samples; U: in none. The "
    "difference is p_S κ_S + p_U κ_U − p_G ρ_G, in points, exactly (Equation 9). κ_S and κ_U: "
    "share of S and U that is right after; ρ_G: share of G that is wrong after; rates of fewer "
    "than 30 documents are unstable. K_eq: the largest number of samples of the model before, "
    "selected by a verifier, that one answer after is worth."
)
_TASKS_NOTE = "The first metric and filter in the log before, unless --metric and --filter choose."
_LOG_NOTE = (
    " log: the negative log-likelihoods of the rows, whose mean is the logarithm of the perplexity."
)
_CHANGED = f"The first of each model; --show N shows more, and --out writes all ({EXPLORER})."


def build_page(
    comparison: Comparison, checks: Sequence[GateCheck] = (), *, written: bool = False
) -> Page:
    """Build the page; tables without rows are left out.

    Args:
        comparison: the comparison.
        checks: the checks of the gate.
        written: whether the page is written to a folder, with figures and every document.
    """
    # All tables and notes
    tables = {table.name: table for table in _build_tables(comparison) if table.rows}
    notes = [*list_notes(comparison)]
    files = [
        _build_facts(comparison, checks),
        Table("notes", [Column("note")], [{"note": note} for note in notes]),
    ]
    # Texts of changed documents, for the page, a file and the explorer
    explorer = ""
    with open_texts(comparison, written=written) as read_text:
        changed = [*_build_changed(comparison, read_text)]
        if written:
            rows = [*list_changed(comparison, read_text)]
            columns = [Column(key) for key in (rows[0] if rows else ())]
            files.append(Table("items", columns, rows, csv_only=True))
            explorer = render_explorer(build_explored(comparison, read_text))

    # Arrange the page
    def select(*names: str) -> list[Table]:
        return [tables[name] for name in names if name in tables]

    sections = [
        Section("", [_describe_logs(comparison)], warnings=[*list_warnings(comparison)]),
        Section(
            "Before and after",
            tables=select("models", "cut"),
            figures=[*_draw_forest(comparison)] if written else [],
        ),
        *([build_gate_section(comparison, checks)] if checks else []),
        Section("Between the models", tables=select("pairs")),
        Section(f"By {comparison.options.by or 'task'}", tables=select("task_groups", "groups")),
        Section("Where the change comes from", tables=select("states")),
        Section("Where documents changed", [_CHANGED], changed),
        Section("How this was compared", notes, select("tasks", "logs")),
    ]
    shown = [section for section in sections if section.tables or not section.title]
    return Page(_NAME, "Comparison", shown, files, explorer)


def _describe_logs(comparison: Comparison) -> str:
    tasks = ", ".join(filter(None, comparison.metrics))
    metric = comparison.metric or "several metrics"
    lower = " (lower is better)" if comparison.higher_is_better is False else ""
    return (
        f"{tasks}{': ' if tasks else ''}{len(comparison.joined.items):,} documents, {metric}"
        f"{lower}; before: {comparison.before_name}"
    )


def _build_tables(comparison: Comparison) -> Iterator[Table]:
    models = [((name,), pair) for name, pair in comparison.models.items()]
    several_seeds = any(len(names) > 1 for names in comparison.seeds.values())
    full_note = _NOTE + _SEEDS_NOTE if several_seeds else _NOTE
    yield _build_contrasts(comparison, "models", ("model",), models, full_note)
    runs = {"before": [(comparison.before, comparison.joined.before)], **comparison.after}
    cuts = {name: _measure_cut(own) for name, own in runs.items()}
    cut_rows = [{"model": name, "cut": cut} for name, cut in cuts.items() if cut is not None]
    yield Table(
        "cut", [Column("model", "model"), Column("cut", "cut", "share")], cut_rows, _CUT_NOTE
    )
    pairs = [((second, first), pair) for (first, second), pair in comparison.pairs.items()]
    yield _build_contrasts(comparison, "pairs", ("model", "minus"), pairs, _PAIRS_NOTE)
    weights = {a.name: "documents" if a.weighted else "equal" for a in comparison.aggregates}
    aggregates = [
        ((group, weights[group], name), pair)
        for group, by_model in comparison.by_aggregate.items()
        for name, pair in by_model.items()
    ]
    heads = ("group", "weights", "model")
    yield _build_contrasts(comparison, "task_groups", heads, aggregates, _GROUPS_NOTE)
    groups = [
        ((group, name), pair)
        for group, by_model in comparison.by_group.items()
        for name, pair in by_model.items()
    ]
    note = _AS_ABOVE if models else full_note
    yield _build_contrasts(comparison, "groups", ("group", "model"), groups, note)
    yield _build_states(comparison)
    yield _build_tasks(comparison)
    yield _build_logs(comparison)


def _build_contrasts(
    comparison: Comparison,
    name: str,
    heads: Sequence[str],
    contrasts: Sequence[tuple[Sequence[str | None], Paired]],
    note: str,
) -> Table:
    """Build a table of contrasts.

    Args:
        comparison: the comparison.
        name: of the table.
        heads: the keys of the columns that name a row.
        contrasts: the names of each row, and its contrast.
        note: of the table; that on adjusted p values is added.
    """
    pairs = [pair for _, pair in contrasts]
    rose, fell = name_changes(comparison)
    level, change, unit = _choose_formats(comparison, pairs)
    is_adjusted = any(pair.p_holm is not None for pair in pairs)
    columns = [
        *(Column(key, key) for key in heads),
        Column("documents", "documents" if len({p.items for p in pairs}) > 1 else None, "count"),
        Column("clusters", "clusters" if comparison.options.cluster else None, "count"),
        Column("seeds", "seeds" if any(p.seeds > 1 for p in pairs) else None, "count"),
        Column("before", "before", level),
        Column("after", "after", level),
        Column("difference", f"difference{unit}", change),
        Column("test"),
        Column("p", "p", "p"),
        Column("p_holm", "p (Holm)" if is_adjusted else None, "p"),
        Column(rose, rose, "count"),
        Column(fell, fell, "count"),
    ]
    rows = [
        {
            **dict(zip(heads, names, strict=True)),
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
        for names, pair in contrasts
    ]
    return Table(name, columns, rows, note + _HOLM_NOTE if is_adjusted else note)


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
    rows = [*comparison.models.items()]
    for group, pairs in {**comparison.by_aggregate, **comparison.by_group}.items():
        rows += [(f"{group}: {m}" if len(pairs) > 1 else group, p) for m, p in pairs.items()]
    if not comparison.models or len(rows) > _MAX_FOREST:
        rows = [*comparison.models.items()]
    if rows:
        _, change, unit = _choose_formats(comparison, [pair for _, pair in rows])
        label = f"after minus before{unit}"
        yield Figure(
            "differences",
            forest([(name, pair.estimate) for name, pair in rows], label, change),
            "; ".join(f"{name}: {format_value(pair.estimate, change)}" for name, pair in rows),
            f"{label.capitalize()}, with 95% intervals. Filled: the interval excludes zero.",
        )


def _build_states(comparison: Comparison) -> Table:
    """Build the table of the terms of each model's difference by the state before."""
    samples = comparison.samples
    rows = list[Row]()
    for name, after in comparison.numbers.after.items() if samples else ():
        assert samples is not None
        counts = by_state(samples.states, after == 1)
        rows.append(
            {
                "model": name,
                "samples": samples.k,
                **{str(state): size for state, size in samples.sizes.items()},
                **counts.list_rates(),
                "K_eq": format_k(k_equivalent(samples.passing, samples.k, counts.pass_at_1)),
            }
        )
    columns = [
        Column("model", "model"),
        Column("samples", "samples", "count"),
        *(Column(state, state, "count") for state in "GSU"),
        Column("term_S", "p_S κ_S", "points"),
        Column("term_U", "p_U κ_U", "points"),
        Column("term_G", "−p_G ρ_G", "points"),
        Column("kappa_S", "κ_S", "share"),
        Column("kappa_U", "κ_U", "share"),
        Column("rho_G", "ρ_G", "share"),
        Column("K_eq", "K_eq", "written"),
    ]
    return Table("states", columns, rows, _STATES_NOTE)


def _build_logs(comparison: Comparison) -> Table:
    """Build the table of all logs: what is compared, and the settings of the evaluations."""
    runs = [("before", "", comparison.before)]
    for model, model_runs in comparison.after.items():
        for seed, (outcomes, _) in zip(comparison.seeds[model], model_runs, strict=True):
            runs.append((model, seed, outcomes))
    rows = [
        {
            "model": model,
            "seed": seed,
            "task": log.task,
            "metrics": ", ".join(outcomes.metrics[log.task]),
            "filters": ", ".join(outcomes.other_filters[log.task]),
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


def _build_tasks(comparison: Comparison) -> Table:
    """Build the table of the compared metrics."""
    better = {True: "higher", False: "lower", None: "unknown"}
    columns = [Column(key, key) for key in ("task", "metric", "filter", "better")]
    rows = [
        {
            "task": task,
            "metric": metric.name,
            "filter": metric.filter,
            "better": better[comparison.directions[task]],
        }
        for task, metric in comparison.metrics.items()
    ]
    has_logs = any(metric.negative_log for metric in comparison.metrics.values())
    return Table("tasks", columns, rows, _TASKS_NOTE + _LOG_NOTE if has_logs else _TASKS_NOTE)


def _build_facts(comparison: Comparison, checks: Sequence[GateCheck]) -> Table:
    samples = comparison.samples
    row = {
        "documents": len(comparison.joined.items),
        "left_out": comparison.joined.left_out,
        "cluster": comparison.options.cluster,
        "clusters": comparison.units,
        "by": (comparison.options.by or "task") if comparison.groups else None,
        "samples": None if samples is None else samples.k,
        "verdict": find_verdict(checks),
    }
    return Table("comparison", [Column(key) for key in row], [row])


def _build_changed(comparison: Comparison, read_text: ReadText) -> Iterator[Table]:
    """Build a table of the texts of each changed document: by model, gained ones first."""
    models = [*comparison.after]
    words = name_changes(comparison)
    rows = sorted(
        list_changed(comparison, read_text, comparison.options.shown),
        key=lambda row: (models.index(row["model"]), words.index(row["change"])),
    )
    for row in rows:
        change = f"{row['change']}: {row['value_before']:.4g} to {row['value_after']:.4g}"
        name = f"{row['task']} doc_id {row['doc_id']}; {row['model']}, seed {row['seed']}"
        texts = [
            {"part": part, "text": _shorten(row[part])}
            for part in ("prompt", "gold", "before", "after")
        ]
        yield Table("", [Column("part", change), Column("text", name)], texts)


def _shorten(text: str) -> str:
    """Shorten a long text to its start and its end: a prompt ends with its question."""
    if len(text) <= _MAX_TEXT:
        return text
    half = _MAX_TEXT // 2
    return f"{text[:half]} [… {len(text) - _MAX_TEXT:,} characters …] {text[-half:]}"
