"""Format a comparison for the terminal and for the files of ``--out``."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.analysis.curves import CurveDifference
from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.pass_at_k import k_label, reported_k
from gapft_harness.compare.choice import REPLICATES
from gapft_harness.compare.comparison import Comparison, Held
from gapft_harness.compare.findings import ByState, Paired
from gapft_harness.compare.items import (
    Changed,
    changed,
    explored,
    explored_positions,
    item_rows,
    names_of,
)
from gapft_harness.compare.reading import Figure
from gapft_harness.compare.reading import Rows as Logs
from gapft_harness.core.files import require_free
from gapft_harness.report.explorer import packing as explorer
from gapft_harness.report.frame import CI95, Column, Frame, Rows
from gapft_harness.report.rendering import page, wording
from gapft_harness.report.rendering.blocks import Block, Case, Cases, Section, Table, Text, remarks
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import UNSTABLE, percent, points, points_interval, whole
from gapft_harness.report.sections.comparison import TERMS, by_state

#: Maximum number of a model's gained, and of its lost, documents on a written page.
PAGE_SHOWN = 25
#: Maximum characters of a prompt or response on a page: its start and its end.
_TEXT = 4_000
#: Written only if there are several samples before and after.
CURVES_FILE = "curves.csv"
#: The files that ``--out`` writes, readable ones first.
FILES = (
    "comparison.html", "comparison.md", "explorer.html", "results.json", "comparison.csv",
    "items.csv", CURVES_FILE,
)  # fmt: skip


def written(of: Comparison) -> list[str]:
    """List the files of a comparison."""
    return [name for name in FILES if of.curves or name != CURVES_FILE]


def write(of: Comparison, folder: Path, *, overwrite: bool = False) -> None:
    """Write the files.

    Args:
        comparison: the comparison.
        folder: the folder; created if missing.
        overwrite: replace the files of an earlier comparison.

    Raises:
        UserError: the folder already contains a comparison.
        GapftError: the folder is not writable, or the disk is full.
    """
    require_free(folder, FILES, overwrite=overwrite)
    (folder / CURVES_FILE).unlink(missing_ok=True)  # may be left from an earlier comparison
    shown = explored_positions(of)
    replace(
        document(of, dict(zip(shown, names_of(of, shown), strict=True))),
        tables={
            "comparison.csv": _rows(of),
            "items.csv": item_rows(of, *changes(of)),
            **({CURVES_FILE: Frame(CURVES, points_of(of)).csv()} if of.curves else {}),
        },
        explorers={"": explorer.render(explored(of))},
    ).write(folder)


def document(of: Comparison, names: Mapping[int, str] | None = None) -> Document:
    """Build the document for the terminal, without the page of all documents.

    Args:
        comparison: the comparison.
        names: see ``build_sections``.
    """
    return Document(
        title="Comparison",
        sections=sections(of, names),
        names=("comparison.html", "comparison.md", "results.json"),
        results=results(of),
    )


@dataclass(frozen=True, slots=True)
class _Words:
    """The format of a metric's numbers and changes."""

    level: Callable[[float], str]
    change: Callable[[float], str]

    def interval(self, of: Interval | None, units: int) -> str:
        if of is None:
            return "–"
        few = UNSTABLE if units < STABLE_ITEMS else ""
        return f"[{self.change(of.low)}, {self.change(of.high)}]{few}"


def sections(of: Comparison, names: Mapping[int, str] | None = None) -> list[Section]:
    """Build all sections.

    Args:
        comparison: the comparison.
        names: for a written page: by position, the documents' names in its explorer. None: for
            the terminal, with as many gained and lost documents as the user chose.
    """
    shown = of.choice.shown if names is None else PAGE_SHOWN
    gate = [_told(of, held) for held in of.gate()]
    found = [Section("", [Text(_opening(of), "lead"), *remarks(of.notes), *gate])]
    if of.found.models:
        found.append(Section("Before and after", [_models(of)]))
    if of.found.aggregates:
        found.append(Section("By group of tasks", [_aggregates(of)]))
    if of.found.groups:
        found.append(Section(f"By {of.choice.by or 'task'}", [_groups(of)]))
    if of.samples is not None:
        found.append(Section("Where the change comes from", _states(of)))
    if of.curves:
        found.append(Section("With k samples", _curves(of)))
    order = list(of.table.after)
    few = sorted(changed(of, shown), key=lambda one: (order.index(one.model), not one.gained))
    cases = [_case(of, one, names or {}) for one in few]
    told = _how_many(of, shown, written=names is not None)
    if told:
        rose, fell = changes(of)
        blocks: list[Block] = [told, *([Cases(cases)] if cases else [])]
        found.append(Section(f"{rose.capitalize()} and {fell}", blocks))
    return found


def _told(of: Comparison, held: Held) -> Text:
    """Format whether a model is worse by more than the margin, and what would decide it."""
    margin, unit = of.choice.margin, _unit(of)
    if held.verdict != "undecided":
        role: Literal["body", "warning"] = "warning" if held.verdict == "worse" else "body"
        return Text(f"{held.name} is {held.verdict} than before by more than {margin:g}.", role)
    if held.times is None:
        more = f"no number of {unit}s would decide this"
    elif held.seeds > 1:
        more = f"about {held.times:.2g} times as many seeds and {unit}s would decide this"
    else:
        needed = math.ceil(held.times * held.units)
        more = f"about {whole(needed)} {unit}s (now {whole(held.units)}) would decide this"
    return Text(
        f"{held.name}: undecided whether it is worse than before by more than {margin:g}. At this "
        f"difference and spread, {more} (power 80%)."
    )


def _how_many(of: Comparison, shown: int, *, written: bool) -> Text | None:
    """Format how many documents changed, and how many of them are shown."""
    rose, fell = changes(of)
    told, more = [], False
    for name, after in of.table.after.items():
        counts = [
            int(n) for n in ((after > of.table.before).sum(), (after < of.table.before).sum())
        ]
        if any(counts):
            more |= max(counts) > shown
            of_model = f"{name}: " if len(of.table.after) > 1 else ""
            each = (
                f"{whole(min(count, shown))} of {whole(count)} {word}"
                for count, word in zip(counts, (rose, fell), strict=True)
                if count
            )
            told.append(of_model + " and ".join(each))
    if not told:
        return None
    hint = "; --show N shows more, and --out writes all to items.csv and explorer.html"
    if written:
        hint = "; all are in items.csv and explorer.html"
    return Text(f"{'; '.join(told)}{hint if more else ''}.")


def _words(binary: bool) -> _Words:
    if binary:
        return _Words(percent, points)
    return _Words(wording.number, lambda change: wording.signed(change, 4))


def changes(of: Comparison) -> tuple[str, str]:
    """Return the words for a document whose number rose, and for one whose number fell."""
    return ("gained", "lost") if of.judged() else ("higher", "lower")


def _opening(of: Comparison) -> str:
    tasks = [log.task for log in of.before.logs if log.task]
    by = "" if of.figure is None else f", {of.figure}"
    return (
        f"{', '.join(tasks[:5])}{f' and {len(tasks) - 5} more' if len(tasks) > 5 else ''}"
        f"{': ' if tasks else ''}{whole(len(of.items))} documents{by}; before: {of.before_name}"
    )


def _models(of: Comparison) -> Table:
    models = of.found.models
    columns: list[Column[Line]] = [*MODEL]
    if any(one.seeds > 1 for one in models.values()):
        columns += SEEDS
    rows = [Line(one, model=name) for name, one in models.items()]
    return Frame([*columns, *_paired(of, models.values())], rows).table(_note(of))


def _groups(of: Comparison) -> Table:
    """Build the table by the chosen field or by task, with each task's metric if they differ."""
    figures = of.figures if of.choice.by is None and of.figure is None else None
    table = _by_group(of, of.choice.by or "task", of.found.groups)
    return table if figures is None else replace(table, note=f"{_metrics(figures)} {table.note}")


def _aggregates(of: Comparison) -> Table:
    """Build the table of lm_eval's groups of tasks, with the metric and the kind of mean."""
    figures = {one.name: of.figures[one.tasks[0]] for one in of.aggregates}
    said: set[bool] = {one.weighted for one in of.aggregates}
    kinds = {True: "weighted by documents", False: "with equal weights"}
    table = _by_group(of, "group", of.found.aggregates)
    if len(said) == 1:
        note = f" Means of tasks as lm_eval reports them: {kinds[said.pop()]}."
    else:
        alike = ", ".join(one.name for one in of.aggregates if not one.weighted)
        note = f" Means of tasks as lm_eval reports them: {kinds[True]}; in {alike} {kinds[False]}."
    return replace(table, note=f"{_metrics(figures)} {table.note}{note}")


def _by_group(of: Comparison, what: str, found: Mapping[str, Mapping[str, Paired]]) -> Table:
    several = len(of.table.after) > 1
    everything = [one for by_model in found.values() for one in by_model.values()]
    columns: list[Column[Line]] = [group_by(what)]
    columns += [*MODEL * several, *DOCUMENTS, *(CLUSTERS if of.choice.cluster else ())]
    rows = [
        Line(one, group, name)
        for group, by_model in found.items()
        for name, one in by_model.items()
    ]
    note = _tests(of, everything)
    if len({one.binary for one in everything}) > 1:
        note += " If before and after are in %, the difference is in points."
    if len(everything) > 1:
        note += f" p (Holm): adjusted for the {len(everything)} tests of this table."
    note += _few(of, everything)
    return Frame([*columns, *_paired(of, everything)], rows).table(note, words=1 + several)


def _metrics(figures: Mapping[str, Figure]) -> str:
    """Format the metric of each task or group."""
    by_metric: dict[str, list[str]] = {}
    for name, figure in figures.items():
        by_metric.setdefault(str(figure), []).append(name)
    if len(by_metric) == 1:
        return f"Metric: {next(iter(by_metric))}."
    told = (f"{metric} ({', '.join(names)})" for metric, names in by_metric.items())
    return f"Metrics: {'; '.join(told)}."


@dataclass(frozen=True, slots=True)
class Line:
    """A model on some documents, before and after.

    Attributes:
        pair: the model's change on the documents.
        group: the documents' group; empty: all documents.
        model: the model's name.
        figure: the compared metric.
        by_state: the terms of its change.
        k: number of samples before, which the states are based on.
    """

    one: Paired
    group: str = ""
    model: str = ""
    figure: Figure | None = None
    by_state: ByState | None = None
    k: int = 0


def group_by(title: str) -> Column[Line]:
    """Build the column of groups."""
    return Column("group", "or the field of `--by`", lambda line: line.group, title)


def difference(title: str) -> Column[Line]:
    """Build the column of differences, in points or in the metric's unit."""

    def shown(line: Line) -> str:
        return _words(line.one.binary).change(line.one.difference)

    return Column("", _MINUS, shown, title)


def changed_documents(rose: str, fell: str, meaning: str) -> tuple[Column[Line], ...]:
    """Build the columns with the numbers of changed documents."""
    return (
        Column(rose, meaning, lambda line: line.one.gained, rose, whole),
        Column(fell, meaning, lambda line: line.one.lost, fell, whole),
    )


def _interval(line: Line) -> str:
    return _words(line.one.binary).interval(line.one.interval, line.one.units)


_HOW_MANY = "how many"
_MEAN = "mean of the metric"
_MINUS = "after minus before, and its interval"
_P = "two-sided; adjusted for the table's tests"
_RIGHT = "documents that became right or wrong, over seeds"
_NUMBER = "documents whose number rose or fell, for metrics other than 0 and 1"

MODEL: tuple[Column[Line], ...] = (
    Column("model", "AFTER's name", lambda line: line.model, "model"),
)
GROUP = (group_by("task"), group_by("group"))
DOCUMENTS: tuple[Column[Line], ...] = (
    Column("documents", _HOW_MANY, lambda line: line.one.items, "documents", whole),
)
CLUSTERS: tuple[Column[Line], ...] = (
    Column("", _HOW_MANY, lambda line: line.one.units, "clusters", whole),
)
SEEDS: tuple[Column[Line], ...] = (
    Column("seeds", _HOW_MANY, lambda line: line.one.seeds, "seeds"),
)
METRIC: tuple[Column[Line], ...] = (
    Column("metric", "", lambda line: line.figure and line.figure.name),
    Column("filter", "", lambda line: line.figure and line.figure.filter),
)
LEVELS: tuple[Column[Line], ...] = (
    Column("before", "", lambda line: line.one.before),
    Column("after", "", lambda line: line.one.after),
    Column("", _MEAN, lambda line: _words(line.one.binary).level(line.one.before), "before"),
    Column("", _MEAN, lambda line: _words(line.one.binary).level(line.one.after), "after"),
)
DIFFERENCE: tuple[Column[Line], ...] = (
    difference("difference (points)"),
    difference("difference (METRIC)"),
    difference("difference"),
)
TEST: tuple[Column[Line], ...] = (
    Column("difference", "", lambda line: line.one.difference),
    Column("ci95", "", lambda line: line.one.interval, names=CI95),
    Column("", _MINUS, _interval, "95% interval"),
    Column("test", "", lambda line: line.one.test),
    Column("p", _P, lambda line: line.one.p_value, "p", wording.p_value),
)
ADJUSTED: tuple[Column[Line], ...] = (
    Column("p_holm", _P, lambda line: line.one.p_holm, "p (Holm)", wording.p_value),
)
GAINED = changed_documents("gained", "lost", _RIGHT)
HIGHER = changed_documents("higher", "lower", _NUMBER)


def _paired(of: Comparison, found: Collection[Paired]) -> list[Column[Line]]:
    """List the columns of a difference, with its unit if all have the same."""
    heading = "difference" if of.figure is None else f"difference ({of.figure.name})"
    if all(one.binary for one in found):
        heading = "difference (points)"
    adjusted = ADJUSTED if any(one.p_holm is not None for one in found) else ()
    return [*LEVELS, difference(heading), *TEST, *adjusted, *_documents(of.judged())]


def _documents(judged: bool) -> tuple[Column[Line], ...]:
    return GAINED if judged else HIGHER


def _note(of: Comparison) -> str:
    rose, fell = changes(of)
    seeds = any(one.seeds > 1 for one in of.found.models.values())
    drawn = "documents"
    if of.table.clusters is not None:
        drawn = f"{whole(int(of.table.clusters.max()) + 1)} clusters ({of.choice.cluster})"
    note = (
        f"Interval: {whole(REPLICATES)} bootstrap replicates of {drawn}"
        f"{' and training seeds together' if seeds else ''}. "
        f"{_tests(of, of.found.models.values())}"
    )
    if seeds:
        note += f" Means are over seeds; {rose} and {fell} are summed over them."
    if len(of.found.models) > 1:
        note += f" p (Holm): adjusted for the {len(of.found.models)} models."
    if len(of.figures) > 1:
        note += (
            f" Over all documents of {len(of.figures)} tasks; lm_eval does not report this mean."
        )
    return note + _few(of, of.found.models.values())


def _tests(of: Comparison, found: Iterable[Paired]) -> str:
    """Name the tests of a table."""
    names = {"mcnemar": "McNemar's exact test", "sign_flip": f"sign flips of {_unit(of)}s"}
    tests = {one.test for one in found}
    if len(tests) > 1:
        return (
            f"p: {names['mcnemar']} for one seed and numbers 0 and 1, else "
            f"{names['sign_flip']}; two-sided."
        )
    return f"p: {names[tests.pop()]}, two-sided."


def _few(of: Comparison, found: Iterable[Paired]) -> str:
    """Format the note on intervals from few documents or clusters, or from one."""
    units = {one.units for one in found}
    few, said = _unit(of), ""
    if any(1 < n < STABLE_ITEMS for n in units):
        said += f" {UNSTABLE} fewer than {STABLE_ITEMS} {few}s: interval likely too narrow."
    if 1 in units:
        said += f" –: no interval for one {few}."
    return said


def _unit(of: Comparison) -> str:
    return "document" if of.table.clusters is None else "cluster"


def _states(of: Comparison) -> list[Block]:
    assert of.samples is not None
    sizes = next(iter(of.found.by_state.values())).counts
    models = of.found.models
    rows = [
        Line(models[name], model=name, by_state=one, k=of.samples.k)
        for name, one in of.found.by_state.items()
    ]
    seeds = {name: one.seeds for name, one in models.items()}
    first = next(iter(seeds.values()))
    shares = ", ".join(
        f"{state} {whole(n // first)}{UNSTABLE if n // first < STABLE_ITEMS else ''}"
        for state, n in (("G", sizes.n_g), ("S", sizes.n_s), ("U", sizes.n_u))
    )
    text = (
        f"States before: {shares}. G: right before; S: wrong before, right in at least one of "
        f"{of.samples.k} samples; U: in none."
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
    Column("terms", "", lambda one: by_state(one.counts.terms), names=TERMS),
    Column("K_eq", "", lambda one: k_label(one.k_eq)),
)

#: The terms of the change, if the states are known.
BY_STATE: tuple[Column[Line], ...] = (
    *(column.of(lambda line: line.by_state) for column in _STATE_COLUMNS),
    Column(
        "",
        "",
        lambda line: "" if line.by_state is None else wording.k_eq(line.by_state.k_eq, line.k),
        "K_eq",
    ),
)


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a model's curves at one k, on all documents or on those of a state."""

    model: str
    state: str
    documents: int
    number: int
    any_right: CurveDifference
    all_right: CurveDifference | None

    @property
    def k(self) -> int:
        """Number of samples."""
        return self.any_right.k[self.number]

    def of(self, values: Any) -> float | None:
        """Return this point's value of a curve."""
        return None if values is None else float(values[self.number])

    @property
    def band(self) -> Interval | None:
        """The simultaneous band."""
        low, high = self.of(self.any_right.low), self.of(self.any_right.high)
        return None if low is None or high is None else Interval(low, high)


_PASS_AT_K = "Pass@k: one of k samples is right; unbiased (Equation 1)"
_PASS_HAT_K = "pass^k: all k samples are right; unbiased"
_BAND = "of Pass@k after minus before; simultaneous for all k"


def _all_right(value: Callable[[CurveDifference], Any]) -> Callable[[Point], float | None]:
    return lambda one: None if one.all_right is None else one.of(value(one.all_right))


#: Pass@k of a model at each k.
CURVES: tuple[Column[Point], ...] = (
    Column("model", "AFTER's name", lambda one: one.model, "model"),
    Column("state", "of the documents, by the model before", lambda one: one.state, "state"),
    Column("documents", _HOW_MANY, lambda one: one.documents, "documents", whole),
    Column("k", "samples", lambda one: one.k, "k"),
    Column("before", _PASS_AT_K, lambda one: one.of(one.any_right.before), "before", percent),
    Column("after", _PASS_AT_K, lambda one: one.of(one.any_right.after), "after", percent),
    Column(
        "difference", _MINUS, lambda one: one.of(one.any_right.difference),
        "difference (points)", points,
    ),
    Column(
        "band95", _BAND, lambda one: one.band, "95% band", points_interval,
        names=("band95_low", "band95_high"),
    ),
    Column(
        "all_before", _PASS_HAT_K, _all_right(lambda curve: curve.before),
        "all k before", percent, missing="",
    ),
    Column(
        "all_after", _PASS_HAT_K, _all_right(lambda curve: curve.after),
        "all k after", percent, missing="",
    ),
)  # fmt: skip


def points_of(of: Comparison, *, every: bool = True, states: bool = True) -> list[Point]:
    """List the points of all models: on all documents, then by state.

    Args:
        comparison: the comparison.
        every: all k; else the reported ones.
        states: include the points by state.
    """
    points = []
    for name, one in of.curves.items():
        parts: list[tuple[str, int, CurveDifference, CurveDifference | None]] = [
            ("", len(of.items), one.any_right, one.all_right)
        ]
        if states:
            parts += [(state, *part, None) for state, part in one.by_state.items()]
        shown = set(one.any_right.k if every else reported_k(one.any_right.k[-1]))
        points += [
            Point(name, state, documents, number, any_right, all_right)
            for state, documents, any_right, all_right in parts
            for number, k in enumerate(any_right.k)
            if k in shown
        ]
    return points


def _curves(of: Comparison) -> list[Block]:
    several = len(of.curves) > 1
    left_out = {"state", "documents", *(() if several else ("model",))}
    columns = [column for column in CURVES if column.key not in left_out]
    seeds = {one.any_right.seeds for one in of.curves.values()}
    note = (
        "before, after: Pass@k, at least one of k samples right; all k: all of k right. The band "
        "is simultaneous for all k, over documents"
    )
    note += " and training seeds" if max(seeds) > 1 else ""
    if 1 in seeds:
        note += ". With one training seed it does not cover other seeds"
    if 2 in seeds:
        note += ". With two training seeds it is wide"
    rows = points_of(of, every=False, states=False)
    blocks: list[Block] = [
        *(Text(_behind(name, one.any_right, several)) for name, one in of.curves.items()),
        Frame(columns, rows).table(f"{note}."),
    ]
    by_state = [one for one in points_of(of, every=False) if one.state]
    if by_state:
        left_out = {"all_before", "all_after", *(() if several else ("model",))}
        columns = [column for column in CURVES if column.key not in left_out]
        note = (
            "By the state before. The samples before define S and U, so their Pass@K is 100% on S "
            "and 0% on U; new samples of the same model would be lower on S and higher on U, too."
        )
        blocks.append(Frame(columns, by_state).table(note, words=1 + several))
    return blocks


def _behind(name: str, curve: CurveDifference, several: bool) -> str:
    """Format the first k at which a model falls behind, and the values that the band allows."""
    told = f"{name}: " if several else ""
    if curve.behind is None:
        told += f"Pass@k after is not below that before at any k up to {curve.k[-1]}"
    else:
        told += f"Pass@k after falls below that before first at k = {curve.behind}"
    possible = [k for k in curve.behind_set if k is not None]
    none = None in curve.behind_set
    if not possible:
        return f"{told} (95% confidence: at no k)."
    span = f"k = {possible[0]}"
    if len(possible) > 1:
        span = f"a k from {possible[0]} to {possible[-1]}"
    return f"{told} (95% confidence: first at {span}{', or at no k' if none else ''})."


def _case(of: Comparison, one: Changed, names: Mapping[int, str]) -> Case:
    name = of.seeds[one.model][one.seed - 1]
    which = f"{one.model}, seed {name}" if len(of.seeds[one.model]) > 1 else one.model
    rose, fell = changes(of)
    task = of.items[one.position][0]
    numbers = f" {task}" if task and len(of.figures) > 1 else ""
    if not of.judged():
        old, new = of.table.before[one.position], of.table.after[one.model][one.seed - 1]
        numbers += f", {wording.number(old)} to {wording.number(new[one.position])}"
    document, there = f"doc_id {one.before.doc_id}", names.get(one.position)
    told = f"{rose if one.gained else fell}{numbers}"
    return Case(
        heading=f"{told}: {document} ({which})" if there is None else f"{told} ({which})",
        name="" if there is None else document,
        link="" if there is None else page.problem_link(there),
        prompt=_bounded(one.before.prompt),
        gold=one.before.gold,
        before=_bounded(one.before.response),
        after=_bounded(one.after.response),
        gained=one.gained if of.judged() else None,
    )


def _bounded(text: str) -> str:
    """Shorten a long text to its start and its end, to limit the size of the page."""
    if len(text) <= _TEXT:
        return text
    half = _TEXT // 2
    left_out = f"{whole(len(text) - _TEXT)} characters are in items.csv and explorer.html"
    return f"{text[:half]}\n[… {left_out} …]\n{text[-half:]}"


def results(of: Comparison) -> dict[str, Any]:
    """Build the content of results.json (schema 1; keys in docs/comparing.md)."""
    models: dict[str, dict[str, Any]] = {}
    for name, runs in of.after.items():
        judged = of.judged(name)
        one = of.found.models.get(name)
        models[name] = {
            "logs": [_paths(rows) for rows, _ in runs],
            "seeds": len(runs),
            "seed_names": of.seeds[name],
            **({} if one is None else paired(one, judged)),
            "by": _each(of.found.groups, name, judged),
            "groups": _each(of.found.aggregates, name, judged),
        }
        if name in of.found.by_state:
            line = Line(of.found.models[name], by_state=of.found.by_state[name])
            (models[name]["decomposition"],) = Frame(BY_STATE, [line]).entries()
        if name in of.curves:
            curve = of.curves[name]
            models[name]["curves"] = {
                "samples": curve.samples,
                "seeds": curve.any_right.seeds,
                "behind": curve.any_right.behind,
                "behind_set": [k for k in curve.any_right.behind_set if k is not None],
                "behind_at_none": None in curve.any_right.behind_set,
                "points": Frame(
                    [column for column in CURVES if column.key != "model"],
                    [point for point in points_of(of) if point.model == name],
                ).entries(),
            }
    clusters, figure = of.table.clusters, of.figure
    content: dict[str, Any] = {
        "schema": 1,
        "tasks": {
            task: {
                "metric": figure.name,
                "filter": figure.filter,
                "higher_is_better": of.directions[task],
            }
            for task, figure in of.figures.items()
        },
        "metric": figure and figure.name,
        "filter": figure and figure.filter,
        "higher_is_better": of.higher_is_better,
        "n": len(of.items),
        "by": (of.choice.by or "task") if of.found.groups else None,
        "groups": {
            one.name: {"tasks": list(one.tasks), "weight_by_size": one.weighted}
            for one in of.aggregates
        },
        "cluster": of.choice.cluster,
        "clusters": len(of.items) if clusters is None else int(clusters.max()) + 1,
        "before": {
            "logs": _paths(of.before),
            "mean": float(of.table.before.mean()) if of.found.models else None,
        },
        "gate": None
        if of.choice.margin is None
        else {
            "margin": of.choice.margin,
            "models": {
                held.name: {"verdict": held.verdict, "times_as_many": held.times}
                for held in of.gate()
            },
        },
        "models": models,
        "notes": [note.line for note in of.notes],
    }
    if (samples := of.samples) is not None:
        content["source_samples"] = {
            "k": samples.k,
            "states": samples.sizes,
            "pass_at_k": {str(n): float(samples.pass_at(n)) for n in reported_k(samples.k)},
        }
    return content


def _each(
    found: Mapping[str, Mapping[str, Paired]], model: str, judged: bool
) -> dict[str, dict[str, Any]]:
    """Build one model's figures by group."""
    return {
        group: {"n": by_model[model].items, **paired(by_model[model], judged)}
        for group, by_model in found.items()
    }


def _paths(rows: Logs) -> list[str]:
    return [str(log.path) for log in rows.logs]


def paired(one: Paired, judged: bool) -> dict[str, Any]:
    """Build one model's figures; ``is_judged``: the numbers mean right or wrong."""
    columns = [*LEVELS, *TEST, *ADJUSTED, *_documents(judged)]
    (figures,) = Frame(columns, [Line(one)]).entries()
    return figures


def _rows(of: Comparison) -> Rows:
    """List a row for each model: on all documents, by group of tasks, by group."""
    own = {one.name: of.figures[one.tasks[0]] for one in of.aggregates}
    own |= of.figures if of.choice.by is None else {}
    groups = (*of.found.aggregates.items(), *of.found.groups.items())
    rows = [
        Line(
            *(one, group, name, own.get(group, of.figure)),
            by_state=None if group else of.found.by_state.get(name),
        )
        for group, by_model in [("", of.found.models), *groups]
        for name, one in by_model.items()
    ]
    columns = [
        *(*MODEL, group_by("group"), *METRIC, *DOCUMENTS, *SEEDS, *LEVELS, *TEST, *ADJUSTED),
        *(*_documents(of.judged()), *BY_STATE),
    ]
    return Frame(columns, rows).csv()
