"""The comparison, as text for the terminal and as the files of ``--out``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.pass_at_k import format_k, list_reported_k
from gapft_harness.compare.choice import REPLICATES
from gapft_harness.compare.comparison import Comparison
from gapft_harness.compare.findings import ByState, Paired
from gapft_harness.compare.gate import build_gate_blocks, build_gate_entry
from gapft_harness.compare.items import (
    ChangedItem,
    build_explored,
    choose_positions,
    find_changed_items,
    format_gold,
    item_rows,
    name_documents,
)
from gapft_harness.compare.number_format import choose_format
from gapft_harness.core.files import require_absent
from gapft_harness.outcomes.table import Metric, Outcomes
from gapft_harness.presentation.explorer import link_problem, render_explorer
from gapft_harness.report.frame import CI95, Column, Frame, Rows
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import (
    Block,
    Case,
    Cases,
    Section,
    Table,
    Text,
    group_remarks,
)
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import (
    UNSTABLE,
    format_count,
    percent,
    points,
)
from gapft_harness.report.sections.comparison import TERMS, split_by_state

#: Maximum number of a model's gained, and of its lost, documents on a written page.
PAGE_CASES = 25
#: Maximum characters of a prompt or response on a page: its start and its end.
_MAX_TEXT = 4_000
#: Maximum number of pairs of models whose table is open on the page.
_OPEN_PAIRS = 10
#: The files that ``--out`` writes, readable ones first.
FILES = (
    "comparison.html", "comparison.md", "explorer.html", "results.json", "comparison.csv",
    "items.csv",
)  # fmt: skip


def write_comparison(comparison: Comparison, folder: Path, *, overwrite: bool = False) -> None:
    """Write the files.

    Args:
        comparison: the comparison.
        folder: the folder; created if missing.
        overwrite: replace the files of an earlier comparison.

    Raises:
        UserError: the folder already contains a comparison.
        GapftError: the folder is not writable, or the disk is full.
    """
    require_absent(folder, FILES, overwrite=overwrite)
    positions = choose_positions(comparison)
    replace(
        build_document(
            comparison, dict(zip(positions, name_documents(comparison, positions), strict=True))
        ),
        tables={
            "comparison.csv": _list_rows(comparison),
            "items.csv": item_rows(comparison, *name_changes(comparison)),
        },
        explorer=render_explorer(build_explored(comparison)),
    ).write(folder)


def build_document(comparison: Comparison, names: Mapping[int, str] | None = None) -> Document:
    """Build the document for the terminal, without the page of all documents.

    Args:
        comparison: the comparison.
        names: see ``build_sections``.
    """
    return Document(
        title="Comparison",
        sections=build_sections(comparison, names),
        names=("comparison.html", "comparison.md", "results.json"),
        results=build_results(comparison),
    )


def build_sections(comparison: Comparison, names: Mapping[int, str] | None = None) -> list[Section]:
    """Build all sections.

    Args:
        comparison: the comparison.
        names: for a written page: by position, the documents' names in its explorer. None: for
            the terminal, with as many gained and lost documents as the user chose.
    """
    limit = comparison.choice.shown if names is None else PAGE_CASES
    opening = [Text(_format_opening(comparison), "lead"), *group_remarks(comparison.notes)]
    parts = [Section("", opening)]
    if comparison.checks:
        parts.append(Section("Gate", build_gate_blocks(comparison)))
    if comparison.findings.models:
        parts.append(Section("Before and after", [_build_model_table(comparison)]))
    if comparison.findings.pairs:
        parts.append(Section("Between the models", [_build_pair_table(comparison)]))
    if comparison.findings.aggregates:
        parts.append(Section("By group of tasks", [_build_aggregate_table(comparison)]))
    if comparison.findings.groups:
        parts.append(
            Section(f"By {comparison.choice.by or 'task'}", [_build_group_table(comparison)])
        )
    if comparison.samples is not None:
        parts.append(Section("Where the change comes from", _build_state_blocks(comparison)))
    order = list(comparison.numbers.after)
    items = sorted(
        find_changed_items(comparison, limit),
        key=lambda item: (order.index(item.model), not item.is_gained),
    )
    cases = [_build_case(comparison, item, names or {}) for item in items]
    summary = _count_changes(comparison, limit, written=names is not None)
    if summary:
        rose, fell = name_changes(comparison)
        blocks: list[Block] = [summary, *([Cases(cases)] if cases else [])]
        parts.append(Section(f"{rose.capitalize()} and {fell}", blocks))
    return parts


def _count_changes(comparison: Comparison, limit: int, *, written: bool) -> Text | None:
    """Format how many documents changed, and how many of them are shown."""
    rose, fell = name_changes(comparison)
    sentences, has_more = [], False
    for name, after in comparison.numbers.after.items():
        counts = [
            int(n)
            for n in (
                (after > comparison.numbers.before).sum(),
                (after < comparison.numbers.before).sum(),
            )
        ]
        if any(counts):
            has_more |= max(counts) > limit
            prefix = f"{name}: " if len(comparison.numbers.after) > 1 else ""
            counts_text = (
                f"{format_count(min(count, limit))} of {format_count(count)} {word}"
                for count, word in zip(counts, (rose, fell), strict=True)
                if count
            )
            sentences.append(prefix + " and ".join(counts_text))
    if not sentences:
        return None
    hint = "; --show N shows more, and --out writes all to items.csv and explorer.html"
    if written:
        hint = "; all are in items.csv and explorer.html"
    return Text(f"{'; '.join(sentences)}{hint if has_more else ''}.")


def name_changes(comparison: Comparison) -> tuple[str, str]:
    """Return the words for a document whose number rose, and for one whose number fell."""
    return ("gained", "lost") if comparison.is_judged() else ("higher", "lower")


def _format_opening(comparison: Comparison) -> str:
    tasks = [log.task for log in comparison.before.logs if log.task]
    by = "" if comparison.metric is None else f", {comparison.metric}"
    return (
        f"{', '.join(tasks[:5])}{f' and {len(tasks) - 5} more' if len(tasks) > 5 else ''}"
        f"{': ' if tasks else ''}{format_count(len(comparison.items))} documents{by}; before: "
        f"{comparison.before_name}"
    )


def _build_model_table(comparison: Comparison) -> Table:
    models = comparison.findings.models
    columns: list[Column[ComparisonLine]] = [*MODEL]
    if any(pair.seeds > 1 for pair in models.values()):
        columns += SEEDS
    cut_before = _measure_cut([(comparison.before, comparison.rows_before)])
    rows = [
        ComparisonLine(
            pair,
            model=name,
            cut_before=cut_before,
            cut_after=_measure_cut(comparison.after[name]),
        )
        for name, pair in models.items()
    ]
    columns += _list_columns(comparison, models.values())
    note = _format_note(comparison)
    if any(row.cut_before or row.cut_after for row in rows):
        columns += CUT
        note += " cut: share of responses cut at the token limit."
    return Frame(columns, rows).table(note)


def _measure_cut(runs: Sequence[tuple[Outcomes, NDArray[np.int64]]]) -> float | None:
    """Compute the share of responses cut at the token limit; None if a log has no endings."""
    endings = [[rows.endings[row] for row in by_item.tolist()] for rows, by_item in runs]
    if any({*run} == {"unknown"} for run in endings):
        return None
    return sum(run.count("length") for run in endings) / sum(map(len, endings))


def _build_pair_table(comparison: Comparison) -> Table:
    """Build the table of pairs of models after; pairs with BEFORE are in the table of models."""
    all_pairs = comparison.findings.pairs
    lines = [
        ComparisonLine(pair, model=second, first=first)
        for (first, second), pair in all_pairs.items()
        if first is not None
    ]
    pairs = [line.pair for line in lines]
    levels = {id(column) for column in LEVELS}
    columns = [column for column in _list_columns(comparison, pairs) if id(column) not in levels]
    note = (
        f"Interval as above. {_format_tests(comparison, pairs)} p (Holm): adjusted for all "
        f"{len(all_pairs)} pairs of models, including those with the model before."
    )
    if any(pair.seeds > 1 for pair in pairs):
        rose, fell = name_changes(comparison)
        note += f" {rose.capitalize()} and {fell}: by the mean over seeds."
    table = Frame([*PAIR, *columns], lines).table(
        f"{note}{_format_small_units(comparison, pairs)}", words=2
    )
    summary = f"{len(lines)} pairs of models" if len(lines) > _OPEN_PAIRS else ""
    return replace(table, summary=summary)


def _build_group_table(comparison: Comparison) -> Table:
    """Build the table by the chosen field or by task, with each task's metric if they differ."""
    figures = (
        comparison.metrics if comparison.choice.by is None and comparison.metric is None else None
    )
    table = _build_table_by_group(
        comparison, comparison.choice.by or "task", comparison.findings.groups
    )
    return (
        table
        if figures is None
        else replace(table, note=f"{_format_metrics(figures)} {table.note}")
    )


def _build_aggregate_table(comparison: Comparison) -> Table:
    """Build the table of lm_eval's groups of tasks, with the metric and the kind of mean."""
    figures = {
        aggregate.name: comparison.metrics[aggregate.tasks[0]]
        for aggregate in comparison.aggregates
    }
    weightings: set[bool] = {aggregate.weighted for aggregate in comparison.aggregates}
    kinds = {True: "weighted by documents", False: "with equal weights"}
    table = _build_table_by_group(comparison, "group", comparison.findings.aggregates)
    if len(weightings) == 1:
        note = f" Means of tasks as lm_eval reports them: {kinds[weightings.pop()]}."
    else:
        alike = ", ".join(
            aggregate.name for aggregate in comparison.aggregates if not aggregate.weighted
        )
        note = f" Means of tasks as lm_eval reports them: {kinds[True]}; in {alike} {kinds[False]}."
    return replace(table, note=f"{_format_metrics(figures)} {table.note}{note}")


def _build_table_by_group(
    comparison: Comparison, title: str, findings: Mapping[str, Mapping[str, Paired]]
) -> Table:
    has_models = len(comparison.numbers.after) > 1
    pairs = [pair for by_model in findings.values() for pair in by_model.values()]
    columns: list[Column[ComparisonLine]] = [group_column(title)]
    columns += [*MODEL * has_models, *DOCUMENTS, *(CLUSTERS if comparison.choice.cluster else ())]
    rows = [
        ComparisonLine(pair, group, name)
        for group, by_model in findings.items()
        for name, pair in by_model.items()
    ]
    note = _format_tests(comparison, pairs)
    if len({pair.is_binary for pair in pairs}) > 1:
        note += " If before and after are in %, the difference is in points."
    if len(pairs) > 1:
        note += f" p (Holm): adjusted for the {len(pairs)} tests of this table."
    note += _format_small_units(comparison, pairs)
    return Frame([*columns, *_list_columns(comparison, pairs)], rows).table(
        note, words=1 + has_models
    )


def _format_metrics(figures: Mapping[str, Metric]) -> str:
    """Format the metric of each task or group."""
    by_metric: dict[str, list[str]] = {}
    for name, figure in figures.items():
        by_metric.setdefault(str(figure), []).append(name)
    if len(by_metric) == 1:
        return f"Metric: {next(iter(by_metric))}."
    metric_texts = (f"{metric} ({', '.join(names)})" for metric, names in by_metric.items())
    return f"Metrics: {'; '.join(metric_texts)}."


@dataclass(frozen=True, slots=True)
class ComparisonLine:
    """A model on some documents, before and after.

    Attributes:
        pair: the model's change on the documents.
        group: the documents' group; empty: all documents.
        model: the model's name.
        figure: the compared metric.
        by_state: the terms of its change.
        k: number of samples before, which the states are based on.
        first: the model that ``model`` is compared with, if both are models after.
        cut_before: share of responses of the model before that were cut at the token limit; None:
            unknown.
        cut_after: the same of the model.
    """

    pair: Paired
    group: str = ""
    model: str = ""
    figure: Metric | None = None
    by_state: ByState | None = None
    k: int = 0
    first: str | None = None
    cut_before: float | None = None
    cut_after: float | None = None


def group_column(title: str) -> Column[ComparisonLine]:
    """Build the column of groups."""
    return Column("group", "or the field of `--by`", lambda line: line.group, title)


def difference_column(title: str) -> Column[ComparisonLine]:
    """Build the column of differences, in points or in the metric's unit."""

    def format_change(line: ComparisonLine) -> str:
        return choose_format(line.pair.is_binary).change(float(line.pair.estimate.value))

    return Column("", _MINUS, format_change, title)


def change_columns(rose: str, fell: str, meaning: str) -> tuple[Column[ComparisonLine], ...]:
    """Build the columns with the numbers of changed documents."""
    return (
        Column(rose, meaning, lambda line: line.pair.gained, rose, format_count),
        Column(fell, meaning, lambda line: line.pair.lost, fell, format_count),
    )


def _format_interval(line: ComparisonLine) -> str:
    return choose_format(line.pair.is_binary).interval(line.pair.estimate, line.pair.units)


_HOW_MANY = "how many"
_MEAN = "mean of the metric"
_MINUS = "after minus before, and its interval"
_P = "two-sided; adjusted for the table's tests"
_RIGHT = "documents that became right or wrong, over seeds"
_NUMBER = "documents whose number rose or fell, for metrics other than 0 and 1"

MODEL: tuple[Column[ComparisonLine], ...] = (
    Column("model", "AFTER's name", lambda line: line.model, "model"),
)
PAIR: tuple[Column[ComparisonLine], ...] = (
    *MODEL,
    Column(
        "minus", "the model that is subtracted; null in results.json: BEFORE",
        lambda line: line.first, "minus",
    ),
)  # fmt: skip
GROUP = (group_column("task"), group_column("group"))
DOCUMENTS: tuple[Column[ComparisonLine], ...] = (
    Column("documents", _HOW_MANY, lambda line: line.pair.items, "documents", format_count),
)
CLUSTERS: tuple[Column[ComparisonLine], ...] = (
    Column("", _HOW_MANY, lambda line: line.pair.units, "clusters", format_count),
)
SEEDS: tuple[Column[ComparisonLine], ...] = (
    Column("seeds", _HOW_MANY, lambda line: line.pair.seeds, "seeds"),
)
METRIC: tuple[Column[ComparisonLine], ...] = (
    Column("metric", "", lambda line: line.figure and line.figure.name),
    Column("filter", "", lambda line: line.figure and line.figure.filter),
)
LEVELS: tuple[Column[ComparisonLine], ...] = (
    Column("before", "", lambda line: line.pair.before),
    Column("after", "", lambda line: line.pair.after),
    Column(
        "",
        _MEAN,
        lambda line: choose_format(line.pair.is_binary).level(line.pair.before),
        "before",
    ),
    Column(
        "", _MEAN, lambda line: choose_format(line.pair.is_binary).level(line.pair.after), "after"
    ),
)
DIFFERENCE: tuple[Column[ComparisonLine], ...] = (
    difference_column("difference (points)"),
    difference_column("difference (METRIC)"),
    difference_column("difference"),
)
TEST: tuple[Column[ComparisonLine], ...] = (
    Column("difference", "", lambda line: line.pair.estimate.value),
    Column("ci95", "", lambda line: line.pair.estimate, names=CI95),
    Column("", _MINUS, _format_interval, "95% interval"),
    Column("test", "", lambda line: line.pair.test),
    Column("p", _P, lambda line: line.pair.estimate.p, "p", wording.format_p_value),
)
ADJUSTED: tuple[Column[ComparisonLine], ...] = (
    Column("p_holm", _P, lambda line: line.pair.p_holm, "p (Holm)", wording.format_p_value),
)
_CUT = "share of the responses that were cut at the token limit, if the logs say how they ended"
CUT: tuple[Column[ComparisonLine], ...] = (
    Column("", _CUT, lambda line: line.cut_before, "cut before", percent),
    Column("", _CUT, lambda line: line.cut_after, "cut after", percent),
)
GAINED = change_columns("gained", "lost", _RIGHT)
HIGHER = change_columns("higher", "lower", _NUMBER)


def _list_columns(
    comparison: Comparison, pairs: Collection[Paired]
) -> list[Column[ComparisonLine]]:
    """List the columns of a difference, with its unit if all have the same."""
    heading = (
        "difference" if comparison.metric is None else f"difference ({comparison.metric.name})"
    )
    if all(pair.is_binary for pair in pairs):
        heading = "difference (points)"
    adjusted = ADJUSTED if any(pair.p_holm is not None for pair in pairs) else ()
    return [
        *LEVELS,
        difference_column(heading),
        *TEST,
        *adjusted,
        *_choose_change_columns(comparison.is_judged()),
    ]


def _choose_change_columns(is_judged: bool) -> tuple[Column[ComparisonLine], ...]:
    return GAINED if is_judged else HIGHER


def _format_note(comparison: Comparison) -> str:
    rose, fell = name_changes(comparison)
    seeds = any(pair.seeds > 1 for pair in comparison.findings.models.values())
    drawn = "documents"
    if comparison.numbers.clusters is not None:
        cluster_count = int(comparison.numbers.clusters.max()) + 1
        drawn = f"{format_count(cluster_count)} clusters ({comparison.choice.cluster})"
    note = (
        f"Interval: {format_count(REPLICATES)} bootstrap replicates of {drawn}"
        f"{' and training seeds together' if seeds else ''}; Newcombe's where they do not vary. "
        f"{_format_tests(comparison, comparison.findings.models.values())}"
    )
    if seeds:
        note += f" Means are over seeds; {rose} and {fell} are summed over them."
    if len(comparison.findings.models) > 1:
        note += f" p (Holm): adjusted for the {len(comparison.findings.models)} models."
    if len(comparison.metrics) > 1:
        note += (
            f" Over all documents of {len(comparison.metrics)} tasks; lm_eval does not report this "
            "mean."
        )
    return note + _format_small_units(comparison, comparison.findings.models.values())


def _format_tests(comparison: Comparison, pairs: Iterable[Paired]) -> str:
    """Name the tests of a table."""
    names = {
        "mcnemar": "McNemar's exact test",
        "sign_flip": f"sign flips of {comparison.unit}s",
    }
    tests = {pair.test for pair in pairs}
    if len(tests) > 1:
        return (
            f"p: {names['mcnemar']} for one seed and numbers 0 and 1, else "
            f"{names['sign_flip']}; two-sided."
        )
    return f"p: {names[tests.pop()]}, two-sided."


def _format_small_units(comparison: Comparison, pairs: Iterable[Paired]) -> str:
    """Format the note on intervals from few documents or clusters, or from one."""
    units = {pair.units for pair in pairs}
    unit, note = comparison.unit, ""
    if any(1 < n < STABLE_ITEMS for n in units):
        note += f" {UNSTABLE} fewer than {STABLE_ITEMS} {unit}s: interval likely too narrow."
    if 1 in units:
        note += f" –: no interval for one {unit}."
    return note


def _build_state_blocks(comparison: Comparison) -> list[Block]:
    assert comparison.samples is not None
    sizes = next(iter(comparison.findings.by_state.values())).counts
    models = comparison.findings.models
    rows = [
        ComparisonLine(models[name], model=name, by_state=entry, k=comparison.samples.k)
        for name, entry in comparison.findings.by_state.items()
    ]
    seeds = {name: entry.seeds for name, entry in models.items()}
    first = next(iter(seeds.values()))
    shares = ", ".join(
        f"{state} {format_count(n // first)}{UNSTABLE if n // first < STABLE_ITEMS else ''}"
        for state, n in (("G", sizes.n_g), ("S", sizes.n_s), ("U", sizes.n_u))
    )
    text = (
        f"States before: {shares}. G: right before; S: wrong before, right in at least one of "
        f"{comparison.samples.k} samples; U: in none."
    )
    if UNSTABLE in shares:
        text += f" {UNSTABLE} fewer than {STABLE_ITEMS} documents: rates on them are unstable."
    note = (
        "difference = p_S κ_S + p_U κ_U − p_G ρ_G, in points, exactly. κ_S and κ_U: share of S "
        "and U that is right after; ρ_G: share of G that is wrong after. K_eq: the largest number "
        "of samples of the model before, selected by a verifier, that one answer after is worth."
    )
    return [Text(text), Frame([*MODEL, *BY_STATE], rows).table(note)]


_TERM = "terms of the difference (Equation 9)"
_STATE_COLUMNS: tuple[Column[ByState], ...] = (
    Column("", _TERM, lambda one: one.counts.terms.s, "p_S κ_S", points),
    Column("", _TERM, lambda one: one.counts.terms.u, "p_U κ_U", points),
    Column("", _TERM, lambda one: one.counts.terms.g, "−p_G ρ_G", points),
    Column("", _MINUS, lambda one: one.counts.terms.total, "difference", points),
    Column("kappa_S", "", lambda one: one.counts.kappa_s, "κ_S", percent),
    Column("kappa_U", "", lambda one: one.counts.kappa_u, "κ_U", percent),
    Column("rho_G", "", lambda one: one.counts.rho_g, "ρ_G", percent),
    Column("terms", "", lambda one: split_by_state(one.counts.terms), names=TERMS),
    Column("K_eq", "", lambda one: format_k(one.k_eq)),
)

#: The terms of the change, if the states are known.
BY_STATE: tuple[Column[ComparisonLine], ...] = (
    *(column.map_rows(lambda line: line.by_state) for column in _STATE_COLUMNS),
    Column(
        "",
        "",
        lambda line: (
            "" if line.by_state is None else wording.format_k_eq(line.by_state.k_eq, line.k)
        ),
        "K_eq",
    ),
)


def _build_case(comparison: Comparison, item: ChangedItem, names: Mapping[int, str]) -> Case:
    name = comparison.seeds[item.model][item.seed - 1]
    which = f"{item.model}, seed {name}" if len(comparison.seeds[item.model]) > 1 else item.model
    rose, fell = name_changes(comparison)
    task = comparison.items[item.position][0]
    numbers = f" {task}" if task and len(comparison.metrics) > 1 else ""
    if not comparison.is_judged():
        old, new = (
            comparison.numbers.before[item.position],
            comparison.numbers.after[item.model][item.seed - 1],
        )
        numbers += f", {wording.format_number(old)} to {wording.format_number(new[item.position])}"
    document, name_in_explorer = f"doc_id {item.before.number}", names.get(item.position)
    change_text = f"{rose if item.is_gained else fell}{numbers}"
    return Case(
        heading=f"{change_text}: {document} ({which})"
        if name_in_explorer is None
        else f"{change_text} ({which})",
        name="" if name_in_explorer is None else document,
        link="" if name_in_explorer is None else link_problem(name_in_explorer),
        prompt=_shorten(item.before.question),
        gold=format_gold(item.before.gold),
        before=_shorten(item.before.response),
        after=_shorten(item.after.response),
        gained=item.is_gained if comparison.is_judged() else None,
    )


def _shorten(text: str) -> str:
    """Shorten a long text to its start and its end, to limit the size of the page."""
    if len(text) <= _MAX_TEXT:
        return text
    half = _MAX_TEXT // 2
    left_out = (
        f"{format_count(len(text) - _MAX_TEXT)} characters are in items.csv and explorer.html"
    )
    return f"{text[:half]}\n[… {left_out} …]\n{text[-half:]}"


def build_results(comparison: Comparison) -> dict[str, Any]:
    """Build the content of results.json (schema 1; keys in docs/comparing.md)."""
    models: dict[str, dict[str, Any]] = {}
    for name, runs in comparison.after.items():
        is_judged = comparison.is_judged(name)
        entry = comparison.findings.models.get(name)
        models[name] = {
            "logs": [_list_paths(rows) for rows, _ in runs],
            "seeds": len(runs),
            "seed_names": comparison.seeds[name],
            "cut": _measure_cut(runs),
            **({} if entry is None else build_pair_entry(entry, is_judged)),
            "by": _build_group_entries(comparison.findings.groups, name, is_judged),
            "groups": _build_group_entries(comparison.findings.aggregates, name, is_judged),
        }
        if name in comparison.findings.by_state:
            line = ComparisonLine(
                comparison.findings.models[name], by_state=comparison.findings.by_state[name]
            )
            (models[name]["decomposition"],) = Frame(BY_STATE, [line]).entries()
    clusters, figure = comparison.numbers.clusters, comparison.metric
    content: dict[str, Any] = {
        "schema": 1,
        "tasks": {
            task: {
                "metric": figure.name,
                "filter": figure.filter,
                "higher_is_better": comparison.directions[task],
            }
            for task, figure in comparison.metrics.items()
        },
        "metric": figure and figure.name,
        "filter": figure and figure.filter,
        "higher_is_better": comparison.higher_is_better,
        "n": len(comparison.items),
        "by": (comparison.choice.by or "task") if comparison.findings.groups else None,
        "groups": {
            entry.name: {"tasks": list(entry.tasks), "weight_by_size": entry.weighted}
            for entry in comparison.aggregates
        },
        "cluster": comparison.choice.cluster,
        "clusters": len(comparison.items) if clusters is None else int(clusters.max()) + 1,
        "before": {
            "logs": _list_paths(comparison.before),
            "cut": _measure_cut([(comparison.before, comparison.rows_before)]),
            "mean": float(comparison.numbers.before.mean()) if comparison.findings.models else None,
        },
        "gate": build_gate_entry(comparison),
        "models": models,
        "pairs": [
            {"model": second, "minus": first, **build_pair_entry(pair, comparison.is_judged())}
            for (first, second), pair in comparison.findings.pairs.items()
        ],
        "notes": [note.line for note in comparison.notes],
    }
    if (samples := comparison.samples) is not None:
        content["source_samples"] = {
            "k": samples.k,
            "states": samples.sizes,
            "pass_at_k": {
                str(n): float(samples.compute_pass_at(n)) for n in list_reported_k(samples.k)
            },
        }
    return content


def _build_group_entries(
    findings: Mapping[str, Mapping[str, Paired]], model: str, is_judged: bool
) -> dict[str, dict[str, Any]]:
    """Build one model's figures by group."""
    return {
        group: {"n": by_model[model].items, **build_pair_entry(by_model[model], is_judged)}
        for group, by_model in findings.items()
    }


def _list_paths(rows: Outcomes) -> list[str]:
    return [str(log.path) for log in rows.logs]


def build_pair_entry(pair: Paired, is_judged: bool) -> dict[str, Any]:
    """Build one model's figures; ``is_judged``: the numbers mean right or wrong."""
    columns = [*LEVELS, *TEST, *ADJUSTED, *_choose_change_columns(is_judged)]
    (figures,) = Frame(columns, [ComparisonLine(pair)]).entries()
    return figures


def _list_rows(comparison: Comparison) -> Rows:
    """List a row for each model: on all documents, by group of tasks, by group."""
    metrics = {entry.name: comparison.metrics[entry.tasks[0]] for entry in comparison.aggregates}
    metrics |= comparison.metrics if comparison.choice.by is None else {}
    groups = (*comparison.findings.aggregates.items(), *comparison.findings.groups.items())
    rows = [
        ComparisonLine(
            *(entry, group, name, metrics.get(group, comparison.metric)),
            by_state=None if group else comparison.findings.by_state.get(name),
        )
        for group, by_model in [("", comparison.findings.models), *groups]
        for name, entry in by_model.items()
    ]
    columns = [
        *(*MODEL, group_column("group"), *METRIC, *DOCUMENTS, *SEEDS, *LEVELS, *TEST, *ADJUSTED),
        *(*_choose_change_columns(comparison.is_judged()), *BY_STATE),
    ]
    return Frame(columns, rows).csv()
