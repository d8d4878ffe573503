"""The page of ``gapft gap``: whether to train, the curve of Pass@k, and the states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import groupby

from gapft_harness.analysis.decomposition import STABLE_ITEMS
from gapft_harness.analysis.pass_at_k import list_reported_k
from gapft_harness.gap.logs import GREEDY_LOG, SAMPLES_LOG
from gapft_harness.gap.prospects import Advice
from gapft_harness.gap.searched import Search
from gapft_harness.outcomes.logs import open_log
from gapft_harness.outcomes.samples import VERDICT, Sample, name_score, select_samples
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
from gapft_harness.report.names import STATE_NAMES

#: The responses to a problem under one filter: the greedy one, and the samples.
_Pair = tuple[list[Sample], list[Sample]]

_CURVE_NOTE = (
    "Unbiased Pass@k over problems, with 95% intervals: Wilson where a problem counts 0 or 1, else "
    "the bootstrap. Sampled Pass@1: Pass@k at k = 1, the share of samples that pass. maj@K: the "
    "most frequent answer of K samples, without a verifier."
)
_STATES_NOTE = "p_S, the share of S, is the largest gain from correcting recovered problems."
_DETECTABLE_NOTE = (
    "The smallest difference that a two-sided paired test at level 5% finds with probability 80%. "
    "Assumed: two trained models differ on 331 of 1,367 problems, as in the paper, and seeds are "
    "independent."
)


def build_page(search: Search, findings: Mapping[str, SearchFindings], advice: Advice) -> Page:
    """Build the page; that of a judged task has every problem.

    Args:
        search: the search.
        findings: by split or filter; see ``Search.compute_findings``.
        advice: whether to train.
    """
    # The answer, the curve and the states
    ordered = {name: findings[name] for name in sorted(findings, key=lambda n: n != search.chosen)}
    first = findings[search.chosen]
    k = first.verdicts.k
    problems = len(first.verdicts.passing)
    few = [
        f"{name}: {len(item.verdicts.passing)} problems, fewer than {STABLE_ITEMS}; "
        "shares are unstable"
        for name, item in ordered.items()
        if len(item.verdicts.passing) < STABLE_ITEMS
    ]
    opening = Section(
        "",
        [
            f"{advice.answer.capitalize()}. {advice.reason}",
            f"{problems:,} problems of the {search.split}, one greedy decode and {k} samples of "
            f"each; {search.judge}.",
        ],
        [_build_curve(first), _build_states(first)],
        [_draw_curve(first)],
        [*search.warnings, *few],
    )
    # Other views and details
    sections = [opening]
    if len(findings) > 1:
        sections.append(Section(f"By {search.view}", tables=[_build_views(search.view, ordered)]))
    notes = [*search.notes, *_note_findings(search.view, findings)]
    details = _build_details(search, ordered)
    tables = [table for table in (_build_detectable(advice), *details) if table.rows]
    sections.append(Section("How this was measured", notes, tables))
    # Content of the files alone
    answer = {"answer": advice.answer, "reason": advice.reason}
    facts = {
        "task": search.task,
        "split": search.split,
        "problems": problems,
        "k": k,
        "judge": search.judge,
        **search.facts,
    }
    files = [
        _build_hidden("advice", answer),
        _build_hidden("search", facts),
        Table("notes", [Column("note")], [{"note": note} for note in notes]),
    ]
    explorer_page = ""
    if search.logs:
        files.append(_build_items(search))
        explorer_page = render_explorer(build_explored(search))
    return Page("gap", f"The gap of {search.task}", sections, files, explorer_page)


def _note_findings(view: str, findings: Mapping[str, SearchFindings]) -> Iterator[str]:
    for name, item in findings.items():
        if item.endings.errors:
            yield (
                f"{item.endings.errors:,} of {item.endings.responses:,} responses could not be "
                f"judged ({view} {name}); they count as not passed."
            )
    faults: dict[str, list[str]] = {}
    for name, item in findings.items():
        if fault := item.verdicts.voting_fault:
            faults.setdefault(fault, []).append(name)
    for fault, names in faults.items():
        yield f"maj@K is not shown ({view} {', '.join(names)}): {fault}."


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


def _build_curve(first: SearchFindings) -> Table:
    shown_k = (0, *list_reported_k(first.verdicts.k))
    shown = [row for row in first.list_rates() if row["k"] in shown_k]
    columns = [
        Column("label", ""),
        Column("rate", "passes", "share"),
        Column("gain", "− sampled Pass@1 (points)", "points"),
    ]
    return Table("", columns, shown, _CURVE_NOTE)


def _build_states(first: SearchFindings) -> Table:
    columns = [
        Column("state", "state"),
        Column("problems", "problems", "count"),
        Column("share", "share", "share"),
    ]
    rows = [
        {
            "state": f"{state}: {STATE_NAMES[state]}",
            "problems": first.verdicts.sizes[state],
            "share": share,
        }
        for state, share in first.shares.items()
    ]
    return Table("", columns, rows, _STATES_NOTE)


def _build_views(view: str, findings: Mapping[str, SearchFindings]) -> Table:
    k = next(iter(findings.values())).verdicts.k
    columns = [
        Column("view", view),
        Column("greedy", "greedy", "share"),
        Column("pass_at_k", f"Pass@{k}", "share"),
        Column("gap", "gap (points)", "points"),
    ]
    rows = [
        {"view": name, "greedy": i.greedy, "pass_at_k": i.pass_at[-1], "gap": i.gains[-1]}
        for name, i in findings.items()
    ]
    note = f"Gap: Pass@{k} − sampled Pass@1."
    return Table(f"{view}s", columns, rows, note)


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


def _build_details(search: Search, findings: Mapping[str, SearchFindings]) -> Iterator[Table]:
    """Build the tables with all rows, of which the opening shows some, and the settings."""
    rates = [{"view": name, **row} for name, item in findings.items() for row in item.list_rates()]
    yield Table("curve", [Column(key) for key in ("view", "label", "k", "rate", "gain")], rates)
    states = [
        {"view": name, "state": state, "problems": item.verdicts.sizes[state], "share": share}
        for name, item in findings.items()
        for state, share in item.shares.items()
    ]
    yield Table("states", [Column(key) for key in ("view", "state", "problems", "share")], states)
    endings = [{"view": name, **asdict(item.endings)} for name, item in findings.items()]
    titles = {"view": search.view, "responses": "responses", "cut": "cut at the limit"}
    titles |= {"unanswered": "without an answer", "errors": "not judged"}
    columns = [
        Column(key, title, "text" if key == "view" else "count") for key, title in titles.items()
    ]
    yield Table("endings", columns, endings)
    settings = [{"setting": name, "value": value} for name, value in search.settings.items()]
    columns = [Column("setting", "setting"), Column("value", "value")]
    yield Table("settings", columns, settings, folded="Settings of the search")


def _build_items(search: Search) -> Table:
    """Build the table of files alone: a row for each filter and problem."""
    rows = [
        {
            "filter": name,
            "problem_id": problem,
            "doc_id": row,
            "state": state,
            "greedy": int(greedy),
            "passing": passing,
            "samples": verdicts.k,
        }
        for name, verdicts in search.verdicts.items()
        for (problem, row), state, greedy, passing in zip(
            search.rows_by_id.items(),
            verdicts.states.tolist(),
            verdicts.deployed.tolist(),
            verdicts.passing.tolist(),
            strict=True,
        )
    ]
    return Table("items", [Column(key) for key in rows[0]], rows, csv_only=True)


def build_explored(search: Search) -> Explored:
    """Build the content of explorer.html from both logs, with the chosen filter's verdicts.

    The states under the other filters are facts to filter by.
    """
    chosen = search.chosen
    chosen_verdicts = search.verdicts[chosen]
    states = {
        "state" if name == chosen else f"state by {name}": verdicts.states.tolist()
        for name, verdicts in search.verdicts.items()
    }

    def read() -> Iterator[ExploredProblem]:
        pairs = zip(search.rows_by_id, _read_pairs(search), strict=True)
        for position, (problem_id, (greedy, samples)) in enumerate(pairs):
            facts = {name: column[position] for name, column in states.items()}
            passing = chosen_verdicts.passing[position]
            yield ExploredProblem(
                problem_id,
                {**facts, "samples": f"{passing}/{chosen_verdicts.k}"},
                greedy[0].question,
                str(greedy[0].gold),
                [_explore_sample(sample, chosen) for sample in greedy],
                [_explore_sample(sample, chosen) for sample in samples],
            )

    return Explored(
        f"The gap of {search.task}",
        [ExploredModel("greedy")],
        read,
        f"Split {search.split}, {chosen_verdicts.k} samples of each problem; {search.judge}.",
    )


def _read_pairs(search: Search) -> Iterator[_Pair]:
    """Read the rows under the chosen filter, in the order of the problems."""
    groups = [
        groupby(
            select_samples(open_log(search.logs[kind]).read_samples(), search.chosen),
            key=lambda sample: sample.line,
        )
        for kind in (GREEDY_LOG, SAMPLES_LOG)
    ]
    for (_, greedy), (_, samples) in zip(*groups, strict=True):
        yield [*greedy], [*samples]


def _explore_sample(sample: Sample, chosen: str) -> ExploredResponse:
    status = sample.reason.partition(":")[0]
    if status not in ("error", "timeout"):
        status = "pass" if sample.scores[name_score(VERDICT, chosen)] else "fail"
    return ExploredResponse(
        str(sample.text), name_verdict(status), sample.reason, sample.answer or ""
    )
