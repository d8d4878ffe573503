"""The page of ``gapft gap``: whether to train, the curve of Pass@k, and the states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.pass_at_k import list_reported_k
from gapft_harness.gap.logs import GREEDY_LOG, SAMPLES_LOG
from gapft_harness.gap.measuring import MeasuredSearch
from gapft_harness.gap.prospects import Advice
from gapft_harness.gap.searched import SearchedRun
from gapft_harness.outcomes.logs import Log, open_log
from gapft_harness.outcomes.samples import VERDICT, Sample, list_filters, name_score
from gapft_harness.outcomes.searches import SearchFindings
from gapft_harness.presentation.content import Column, Figure, Row, Section, Table, format_value
from gapft_harness.presentation.explorer import (
    Explored,
    ExploredModel,
    ExploredProblem,
    ExploredResponse,
    name_verdict,
    render_explorer,
)
from gapft_harness.presentation.figures import lines
from gapft_harness.presentation.page import Page
from gapft_harness.report.names import STATE_NAMES, describe_deployment
from gapft_harness.report.reading.audits import find_deployment

#: The responses to a problem under one filter: the greedy one, and the samples.
_Pair = tuple[list[Sample], list[Sample]]

_CURVE_NOTE = (
    "Unbiased Pass@k over problems, with 95% intervals: Wilson where a problem counts 0 or 1, else "
    "the bootstrap. maj@K: the most frequent answer of K samples, without a verifier."
)
_STATES_NOTE = "p_S, the share of S, is the largest gain from correcting recovered problems."
_DETECTABLE_NOTE = (
    "The smallest difference that a two-sided paired test at level 5% finds with probability 80%. "
    "Assumed: two trained models differ on 331 of 1,367 problems, as in the paper, and seeds are "
    "independent."
)


@dataclass(frozen=True, slots=True)
class _Subject:
    """What was searched, from a task or a run.

    Attributes:
        task: the task's name.
        view: what distinguishes the findings: ``filter`` or ``split``.
        findings: by filter or split; the first is shown in full.
        split: the split of the first findings.
        judge: the verifier or metric, in words.
        facts: further values of the row ``search`` in results.json.
        settings: the settings of the search and the model.
        warnings: what makes the numbers doubtful.
        notes: remarks on how they were made.
    """

    task: str
    view: str
    findings: Mapping[str, SearchFindings]
    split: str
    judge: str
    facts: Mapping[str, Any]
    settings: Mapping[str, Any]
    warnings: Sequence[str]
    notes: Sequence[str] = field(default_factory=list)

    @property
    def first(self) -> SearchFindings:
        return next(iter(self.findings.values()))


def build_task_page(
    search: MeasuredSearch, findings: Mapping[str, SearchFindings], advice: Advice
) -> Page:
    """Build the page of a searched task, with a page of every problem.

    Args:
        search: the judged search.
        findings: by filter, the chosen one first.
        advice: whether to train.
    """
    config = search.facts["config"]
    notes = list(_note_deployment(config))
    if (repeats := search.facts["repeats"]) > 1:
        used = f"{search.k} samples were drawn (--k)"
        notes.append(f"The task's own repeats ({repeats}) are not used: {used}.")
    if search.voting:
        filters = ", ".join(search.voting)
        notes.append(f"Filters that need several responses are left out: {filters}.")
    notes += _note_findings("filter", findings)
    subject = _Subject(
        search.task,
        "filter",
        findings,
        search.split,
        search.judge,
        {
            "version": search.facts["version"],
            "metric": search.metric,
            "filter": next(iter(findings)),
        },
        {**config["search"], **config, "source": search.facts["source"]},
        search.warnings,
        notes,
    )
    columns = ("filter", "problem_id", "doc_id", "state", "greedy", "passing", "samples")
    items = Table(
        "items",
        [Column(name) for name in columns],
        [dict(zip(columns, row, strict=True)) for row in _list_item_rows(search, findings)],
        csv_only=True,
    )
    explorer_page = render_explorer(build_explored(search, findings))
    return _build_page(subject, advice, [items], explorer_page)


def build_run_page(
    run: SearchedRun, findings: Mapping[str, SearchFindings], advice: Advice
) -> Page:
    """Build the page of a run's search.

    Args:
        run: the run.
        findings: by split.
        advice: whether to train.
    """
    split = "audit" if "audit" in findings else "pool"
    ordered = {name: findings[name] for name in sorted(findings, key=lambda name: name != split)}
    subject = _Subject(
        run.task,
        "split",
        ordered,
        split,
        f"verifier {run.verifier}",
        {},
        run.recipe["search"],
        run.warnings,
        [*_note_deployment(run.recipe), *_note_findings("split", findings)],
    )
    return _build_page(subject, advice)


def _note_deployment(recipe: Mapping[str, Any]) -> Iterator[str]:
    if deployment := find_deployment(recipe):
        yield f"{describe_deployment(deployment)} It is named greedy here."


def _note_findings(view: str, findings: Mapping[str, SearchFindings]) -> Iterator[str]:
    for name, item in findings.items():
        if item.endings.errors:
            yield (
                f"{item.endings.errors:,} of {item.endings.responses:,} responses could not be "
                f"judged ({view} {name}); they count as not passed, and the logs have the reasons."
            )
    faults: dict[str, list[str]] = {}
    for name, item in findings.items():
        if fault := item.verdicts.voting_fault:
            faults.setdefault(fault, []).append(name)
    for fault, names in faults.items():
        yield f"maj@K is not shown ({view} {', '.join(names)}): {fault}."


def _build_page(
    subject: _Subject, advice: Advice, files: Sequence[Table] = (), explorer_page: str = ""
) -> Page:
    first = subject.first
    k = first.verdicts.k
    problems = len(first.verdicts.passing)
    few = [
        f"{name}: {len(item.verdicts.passing)} problems, fewer than {STABLE_ITEMS}; "
        "shares are unstable"
        for name, item in subject.findings.items()
        if len(item.verdicts.passing) < STABLE_ITEMS
    ]
    opening = Section(
        "",
        [
            f"{advice.answer.capitalize()}. {advice.reason}",
            f"{problems:,} problems of the {subject.split}, one greedy decode and {k} samples of "
            f"each; {subject.judge}.",
        ],
        [_build_curve(subject), _build_states(subject)],
        [_draw_curve(first)],
        [*subject.warnings, *few],
    )
    sections = [opening]
    if len(subject.findings) > 1:
        sections.append(Section(f"By {subject.view}", tables=[_build_views(subject)]))
    tables = [
        table for table in (_build_detectable(advice), *_build_details(subject)) if table.rows
    ]
    sections.append(Section("How this was measured", subject.notes, tables))
    answer = {"answer": advice.answer, "reason": advice.reason}
    facts = {
        "task": subject.task,
        "split": subject.split,
        "problems": problems,
        "k": k,
        "judge": subject.judge,
        **subject.facts,
    }
    hidden = [
        _build_hidden("advice", answer),
        _build_hidden("search", facts),
        Table("notes", [Column("note")], [{"note": note} for note in subject.notes]),
    ]
    name = f"The gap of {subject.task}"
    return Page("gap", name, sections, [*hidden, *files], explorer_page)


def _build_hidden(name: str, row: Row) -> Table:
    return Table(name, [Column(key) for key in row], [row])


def _draw_curve(findings: SearchFindings) -> Figure:
    curve = dict(enumerate(findings.pass_at, 1))
    k = findings.verdicts.k
    largest = format_value(findings.pass_at[-1], "share")
    return Figure(
        "pass_at_k",
        lines("Pass@k", curve, "samples of each problem, k", {"greedy": findings.greedy}),
        f"Pass@k from k = 1 to {k}: {largest} at the end; "
        f"greedy {format_value(findings.greedy, 'share')}",
        "Share of problems that at least one of k samples solves, with its 95% interval. Dashed: "
        "the greedy decode.",
    )


def _build_curve(subject: _Subject) -> Table:
    shown = [
        row
        for row in _list_rates({"": subject.first})
        if row["k"] in (0, *list_reported_k(subject.first.verdicts.k))
    ]
    columns = [
        Column("label", ""),
        Column("rate", "passes", "share"),
        Column("gain", "− Pass@1 (points)", "points"),
    ]
    return Table("", columns, shown, _CURVE_NOTE)


def _list_rates(findings: Mapping[str, SearchFindings]) -> Iterator[Row]:
    """Yield the rates of each filter or split."""
    for view, item in findings.items():
        for row in item.list_rates():
            yield {"view": view, **row}


def _build_states(subject: _Subject) -> Table:
    columns = [
        Column("state", "state"),
        Column("problems", "problems", "count"),
        Column("share", "share", "share"),
    ]
    rows = [
        {
            "state": f"{state}: {STATE_NAMES[state]}",
            "problems": subject.first.verdicts.sizes[state],
            "share": share,
        }
        for state, share in subject.first.shares.items()
    ]
    return Table("", columns, rows, _STATES_NOTE)


def _build_views(subject: _Subject) -> Table:
    k = subject.first.verdicts.k
    columns = [
        Column("view", subject.view),
        Column("greedy", "greedy", "share"),
        Column("pass_at_k", f"Pass@{k}", "share"),
        Column("gap", "gap (points)", "points"),
    ]
    rows = [
        {"view": name, "greedy": i.greedy, "pass_at_k": i.pass_at[-1], "gap": i.gains[-1]}
        for name, i in subject.findings.items()
    ]
    note = f"Gap: Pass@{k} − Pass@1."
    return Table(f"{subject.view}s", columns, rows, note)


def _build_detectable(advice: Advice) -> Table:
    columns = [
        Column("seeds", "training seeds", "count"),
        Column("items", "audit items", "count"),
        Column("effect", "detectable (points)", "points"),
    ]
    rows = [
        {"seeds": seeds, "items": advice.items, "effect": effect}
        for seeds, effect in advice.detectable.items()
    ]
    return Table("detectable", columns, rows, _DETECTABLE_NOTE, "What training seeds can show")


def _build_details(subject: _Subject) -> Iterator[Table]:
    """Build the tables with all rows, of which the opening shows some, and the settings."""
    rates = list(_list_rates(subject.findings))
    yield Table("curve", [Column(key) for key in ("view", "label", "k", "rate", "gain")], rates)
    states = [
        {"view": name, "state": state, "problems": item.verdicts.sizes[state], "share": share}
        for name, item in subject.findings.items()
        for state, share in item.shares.items()
    ]
    yield Table("states", [Column(key) for key in ("view", "state", "problems", "share")], states)
    endings = [
        {
            "view": name,
            "responses": item.endings.responses,
            "cut": item.endings.cut,
            "unanswered": item.endings.unanswered,
            "errors": item.endings.errors,
        }
        for name, item in subject.findings.items()
    ]
    titles = {"view": subject.view, "responses": "responses", "cut": "cut at the limit"}
    titles |= {"unanswered": "without an answer", "errors": "not judged"}
    columns = [
        Column(key, title, "text" if key == "view" else "count") for key, title in titles.items()
    ]
    yield Table("endings", columns, endings)
    settings = [{"setting": name, "value": value} for name, value in subject.settings.items()]
    columns = [Column("setting", "setting"), Column("value", "value")]
    yield Table("settings", columns, settings, folded="Settings of the search")


def _list_item_rows(
    search: MeasuredSearch, findings: Mapping[str, SearchFindings]
) -> Iterator[tuple[object, ...]]:
    """Yield a row for each filter and problem."""
    for name, filter_findings in findings.items():
        verdicts = search.verdicts[name]
        columns = (
            filter_findings.verdicts.states.tolist(),
            verdicts.deployed.tolist(),
            verdicts.passing.tolist(),
        )
        for (problem, row), state, greedy, passing in zip(
            search.rows_by_id.items(), *columns, strict=True
        ):
            yield name, problem, row, state, int(greedy), passing, search.k


def build_explored(search: MeasuredSearch, findings: Mapping[str, SearchFindings]) -> Explored:
    """Build the content of explorer.html from both logs, with the chosen filter's verdicts.

    The states under the other filters are facts to filter by.
    """
    chosen, *others = findings
    states = {
        "state" if name == chosen else f"state by {name}": findings[name].verdicts.states.tolist()
        for name in (chosen, *others)
    }

    def read() -> Iterator[ExploredProblem]:
        pairs = zip(search.rows_by_id, _read_pairs(search, chosen), strict=True)
        for position, (problem_id, (greedy, samples)) in enumerate(pairs):
            facts = {name: column[position] for name, column in states.items()}
            passing = search.verdicts[chosen].passing[position]
            yield ExploredProblem(
                problem_id,
                {**facts, "samples": f"{passing}/{search.k}"},
                greedy[0].question,
                str(greedy[0].gold),
                [_explore_sample(sample, chosen) for sample in greedy],
                [_explore_sample(sample, chosen) for sample in samples],
            )

    return Explored(
        f"The gap of {search.task}",
        [ExploredModel("greedy")],
        read,
        f"Split {search.split}, {search.k} samples of each problem; {search.judge}.",
    )


def _read_pairs(search: MeasuredSearch, chosen: str) -> Iterator[_Pair]:
    """Read the rows under the chosen filter, in the order of the problems."""
    groups = [
        groupby(
            _select_samples(open_log(search.logs[kind]), chosen), key=lambda sample: sample.line
        )
        for kind in (GREEDY_LOG, SAMPLES_LOG)
    ]
    for (_, greedy), (_, samples) in zip(*groups, strict=True):
        yield [*greedy], [*samples]


def _select_samples(log: Log, chosen: str) -> Iterator[Sample]:
    return (sample for sample in log.read_samples() if chosen in list_filters(sample))


def _explore_sample(sample: Sample, chosen: str) -> ExploredResponse:
    status = sample.reason.partition(":")[0]
    if status not in ("error", "timeout"):
        status = "pass" if sample.scores[name_score(VERDICT, chosen)] else "fail"
    return ExploredResponse(
        str(sample.text), name_verdict(status), sample.reason, sample.answer or ""
    )
