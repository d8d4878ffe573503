"""What ``gapft gap`` found, for the terminal and for the files that it writes beside the logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.analysis.pass_at_k import reported_k
from gapft_harness.gap.findings import REPLICATES, GapFindings, Share
from gapft_harness.gap.logs import GREEDY_LOG, SAMPLES_LOG
from gapft_harness.gap.measuring import Measured
from gapft_harness.report.explorer import packing as explorer
from gapft_harness.report.explorer.explored import Entry, Explored, word
from gapft_harness.report.rendering.blocks import Block, Section, Table, Text, remarks
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import (
    STATE_NAMES,
    listed,
    percent,
    percent_interval,
    points,
    points_interval,
    whole,
)
from gapft_harness.verdicts.places import log_at
from gapft_harness.verdicts.sample_logs import LogRow, SampleLog

#: Every k up to this many has a row on the page; beyond, powers of two. gap.csv has them all.
_ALL_ROWS = 8
#: A row of each log: the same document under the same filter.
_Pair = tuple[LogRow, LogRow]


def document(of: Measured, found: Mapping[str, GapFindings]) -> Document:
    """All of it, with a page of every problem."""
    return Document(
        title=f"The gap of {of.task}",
        sections=sections(of, found),
        names=("gap.html", "gap.md", "results.json"),
        results=results(of, found),
        tables={"gap.csv": _rates(found), "items.csv": _items(of, found)},
        explorers={"": explorer.render(explored(of, found))},
    )


def notes(of: Measured, found: Mapping[str, GapFindings]) -> Iterator[Text]:
    """What to know of the figures, a sentence each."""
    if (repeats := of.facts["repeats"]) > 1:
        drawn = f"{of.k} samples were drawn (--k)"
        yield Text(f"the task's own repeats ({repeats}) are not used: {drawn}")
    if of.voting:
        which = f"judge no single one, and are left out: {listed(list(of.voting))}"
        yield Text(f"filters that take several responses {which}")
    for name, one in found.items():
        if one.errors:
            yield Text(
                f"filter {name}: {whole(one.errors)} of {whole(len(of.ids) * (of.k + 1))} "
                "responses could not be judged, and count as not passed; the logs have the reasons"
            )
    if of.changed:
        yield Text(
            f"filter {next(iter(found))}: {whole(of.changed)} verdicts were others when judged "
            "again; the figures are those of the search",
            "warning",
        )


def sections(of: Measured, found: Mapping[str, GapFindings]) -> list[Section]:
    """The page's sections."""
    first = next(iter(found.values()))
    gap, p_s = first.gains[-1], first.shares["S"]
    told = (
        f"{of.task}, {of.split}: {whole(len(of.ids))} problems, one greedy decode and {of.k} "
        f"samples of each; {of.judge}."
    )
    bound = Text(
        f"On {_percent(p_s)} of all problems the greedy decode fails and one of {of.k} samples "
        "passes. This is p_S, the most that making recovered problems right can add to the greedy "
        f"accuracy. Pass@{of.k} − Pass@1 is {_points(gap)} points."
    )
    blocks: list[Block] = [_curve(of, first), _states(first), bound]
    result = [Section("The gap", [Text(told, "lead"), *remarks(notes(of, found)), *blocks])]
    if len(found) > 1:
        result.append(Section("By filter", [_filters(of, found)]))
    return result


def _curve(of: Measured, found: GapFindings) -> Table:
    rows = [["greedy", percent(found.greedy.value), _interval(found.greedy.interval), "", ""]]
    for k in range(1, of.k + 1) if of.k <= _ALL_ROWS else reported_k(of.k):
        rate, gain = found.pass_at[k - 1], found.gains[k - 1]
        change = ["", ""] if k == 1 else [points(gain.value), _change(gain.interval)]
        rows.append([f"Pass@{k}", percent(rate.value), _interval(rate.interval), *change])
    columns = ["", "passes", "95% interval", "− Pass@1 (points)", "95% interval"]
    note = f"Unbiased, over problems; intervals from {whole(REPLICATES)} bootstrap replicates."
    return Table(columns, rows, note=note)


def _states(found: GapFindings) -> Table:
    rows = [
        [
            f"{state}: {STATE_NAMES[state]}",
            whole(found.verdicts.sizes[state]),
            percent(share.value),
            _interval(share.interval),
        ]
        for state, share in found.shares.items()
    ]
    return Table(["state", "problems", "share", "95% interval"], rows)


def _filters(of: Measured, found: Mapping[str, GapFindings]) -> Table:
    rows = []
    for name, one in found.items():
        gap = one.gains[-1]
        counts = map(whole, one.verdicts.sizes.values())
        rows.append(
            [
                name,
                *(percent(share.value) for share in (one.greedy, one.pass_at[0], one.pass_at[-1])),
                points(gap.value),
                _change(gap.interval),
                *counts,
            ]
        )
    columns = [
        "filter", "greedy", "Pass@1", f"Pass@{of.k}", "gap (points)", "95% interval", "G", "S", "U",
    ]  # fmt: skip
    return Table(columns, rows, note="The first is the chosen one. Gap: Pass@K − Pass@1.")


def _percent(share: Share) -> str:
    return f"{percent(share.value)} {_interval(share.interval)}".strip()


def _points(share: Share) -> str:
    return f"{points(share.value)} {_change(share.interval)}".strip()


def _interval(interval: Interval | None) -> str:
    return "" if interval is None else percent_interval(interval)


def _change(interval: Interval | None) -> str:
    return "" if interval is None else points_interval(interval)


def results(of: Measured, found: Mapping[str, GapFindings]) -> dict[str, Any]:
    """The content of results.json (schema 1; keys in docs/gap.md)."""
    return {
        "schema": 1,
        "task": of.task,
        "version": of.facts["version"],
        "split": of.split,
        "n": len(of.ids),
        "k": of.k,
        "metric": of.metric,
        "judge": of.judge,
        "filter": next(iter(found)),
        "filters": {name: _filter(one) for name, one in found.items()},
        "search": of.facts["config"]["search"],
        "source": of.facts["source"],
        "notes": [note.line for note in notes(of, found)],
    }


def _filter(one: GapFindings) -> dict[str, Any]:
    return {
        "greedy": _share(one.greedy),
        "pass_at_k": {str(k): _share(share) for k, share in enumerate(one.pass_at, 1)},
        "gap": _share(one.gains[-1]),
        "states": one.verdicts.sizes,
        "p_S": _share(one.shares["S"]),
        "errors": one.errors,
    }


def _share(share: Share) -> dict[str, Any]:
    interval = share.interval
    ci95 = None if interval is None else [interval.low, interval.high]
    return {"value": float(share.value), "ci95": ci95}


def _rates(found: Mapping[str, GapFindings]) -> Iterator[tuple[object, ...]]:
    """A row for each filter and k, and for the greedy decode."""
    yield "filter", "k", "rate", "ci95_low", "ci95_high", "gain", "gain_low", "gain_high"
    for name, one in found.items():
        yield name, "greedy", *_cells(one.greedy), "", "", ""
        for k, (share, gain) in enumerate(zip(one.pass_at, one.gains, strict=True), 1):
            yield name, k, *_cells(share), *_cells(gain)


def _cells(share: Share) -> tuple[object, ...]:
    interval = share.interval
    return float(share.value), *(("", "") if interval is None else (interval.low, interval.high))


def _items(of: Measured, found: Mapping[str, GapFindings]) -> Iterator[tuple[object, ...]]:
    """A row for each filter and problem."""
    yield "filter", "problem_id", "doc_id", "state", "greedy", "passing", "samples"
    for name, one in found.items():
        verdicts = of.verdicts[name]
        columns = one.verdicts.states.tolist(), verdicts.greedy.tolist(), verdicts.passing.tolist()
        for (problem, row), state, greedy, passing in zip(of.ids.items(), *columns, strict=True):
            yield name, problem, row, state, int(greedy), passing, of.k


def explored(of: Measured, found: Mapping[str, GapFindings]) -> Explored:
    """The page's content, read from both logs; verdicts are the chosen filter's.

    The states under the other filters are fields to filter by.
    """
    (chosen, first), *others = found.items()
    words = [[_words(row) for row in pair] for pair in _pairs(of, chosen)]
    return Explored(
        title=f"The gap of {of.task}",
        remark=f"Split {of.split}, {of.k} samples of each problem; {of.judge}.",
        noun="problem",
        before="greedy",
        ids=list(of.ids),
        verdicts=[greedy[0] for greedy, _ in words],
        models=[],
        states="".join(first.verdicts.states.tolist()),
        k=of.k,
        passing=of.verdicts[chosen].passing.tolist(),
        samples=[samples for _, samples in words],
        fields={f"state by {name}": one.verdicts.states.tolist() for name, one in others},
        entries=lambda: (_entry(pair) for pair in _pairs(of, chosen)),
    )


def _pairs(of: Measured, chosen: str) -> Iterator[_Pair]:
    """The rows under the chosen filter, in the order of the problems."""
    logs = (SampleLog(log_at(of.logs[kind]), chosen) for kind in (GREEDY_LOG, SAMPLES_LOG))
    return zip(*logs, strict=True)


def _words(row: LogRow) -> list[str]:
    return [word(status) for status in row.statuses or ()]


def _entry(pair: _Pair) -> Entry:
    greedy, samples = pair
    return Entry(
        prompt=greedy.prompt,
        gold=greedy.gold,
        responses=[*greedy.texts, *samples.texts],
        document=greedy.document,
    )
