"""What ``gapft gap`` found, for the terminal and for the files that it writes beside the logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.analysis.pass_at_k import reported_k
from gapft_harness.core.records import State
from gapft_harness.gap.findings import REPLICATES, GapFindings, Share
from gapft_harness.gap.logs import GREEDY_LOG, SAMPLES_LOG
from gapft_harness.gap.measuring import Measured
from gapft_harness.report.explorer import packing as explorer
from gapft_harness.report.explorer.explored import Entry, Explored, word
from gapft_harness.report.frame import CI95, Column, Frame
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
        tables={"gap.csv": Frame(CURVE, rates(found)).csv(), "items.csv": _items(of, found)},
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
    shown = range(1, of.k + 1) if of.k <= _ALL_ROWS else reported_k(of.k)
    rows = [rate for rate in rates({"": found}) if rate.k in (0, *shown)]
    note = f"Unbiased, over problems; intervals from {whole(REPLICATES)} bootstrap replicates."
    return Frame(CURVE, rows).table(note)


@dataclass(frozen=True, slots=True)
class Rate:
    """A point of Pass@k; of the greedy decode where k is 0."""

    filter: str
    k: int
    share: Share
    gain: Share | None = None


def rates(found: Mapping[str, GapFindings]) -> list[Rate]:
    """Of each filter the greedy decode and every k."""
    rows = []
    for name, one in found.items():
        rows.append(Rate(name, 0, one.greedy))
        shares = enumerate(zip(one.pass_at, one.gains, strict=True), 1)
        rows += [Rate(name, k, share, gain) for k, (share, gain) in shares]
    return rows


def _gain(shown: Callable[[Share], str]) -> Callable[[Rate], str]:
    """What is said of a gain where there can be one."""
    return lambda rate: "" if rate.gain is None or rate.k == 1 else shown(rate.gain)


def _ends(share: Share | None) -> tuple[float, float] | None:
    interval = None if share is None else share.interval
    return None if interval is None else (interval.low, interval.high)


_PASSES = "of `greedy` and `Pass@k` (Equation 1)"
_GAIN = "Pass@k minus Pass@1, both of samples"
CURVE: tuple[Column[Rate], ...] = (
    Column("filter", "", lambda rate: rate.filter),
    Column("k", "", lambda rate: rate.k or "greedy"),
    Column("", "", lambda rate: f"Pass@{rate.k}" if rate.k else "greedy", ""),
    Column("rate", _PASSES, lambda rate: rate.share.value, "passes", percent),
    Column("ci95", "", lambda rate: _ends(rate.share), names=CI95),
    Column("", _PASSES, lambda rate: _interval(rate.share.interval), "95% interval"),
    Column("gain", "", lambda rate: rate.gain and rate.gain.value),
    Column("gain_ci95", "", lambda rate: _ends(rate.gain), names=("gain_low", "gain_high")),
    Column("", _GAIN, _gain(lambda share: points(share.value)), "− Pass@1 (points)"),
    Column("", _GAIN, _gain(lambda share: _change(share.interval)), "95% interval"),
)


def _states(found: GapFindings) -> Table:
    rows = [(state, found.verdicts.sizes[state], share) for state, share in found.shares.items()]
    return Frame(STATES, rows).table()


_STATE = "G, S and U; the share of S is p_S"
STATES: tuple[Column[tuple[State, int, Share]], ...] = (
    Column("", _STATE, lambda row: f"{row[0]}: {STATE_NAMES[row[0]]}", "state"),
    Column("", _STATE, lambda row: row[1], "problems", whole),
    Column("", _STATE, lambda row: row[2].value, "share", percent),
    Column("", _STATE, lambda row: _interval(row[2].interval), "95% interval"),
)


def _filters(of: Measured, found: Mapping[str, GapFindings]) -> Table:
    columns = [pass_at(of.k) if column.title == "Pass@K" else column for column in FILTERS]
    note = "The first is the chosen one. Gap: Pass@K − Pass@1."
    return Frame(columns, [*found.items()]).table(note)


FilterRow = tuple[str, GapFindings]
_BY = "by this filter"


def pass_at(k: int | str) -> Column[FilterRow]:
    """Pass@k of all samples."""
    return Column("", _BY, lambda row: row[1].pass_at[-1].value, f"Pass@{k}", percent)


FILTERS: tuple[Column[FilterRow], ...] = (
    Column("", "which of the task's reads the answer", lambda row: row[0], "filter"),
    Column("", _BY, lambda row: row[1].greedy.value, "greedy", percent),
    Column("", _BY, lambda row: row[1].pass_at[0].value, "Pass@1", percent),
    pass_at("K"),
    Column("", _BY, lambda row: row[1].gains[-1].value, "gap (points)", points),
    Column("", _BY, lambda row: _change(row[1].gains[-1].interval), "95% interval"),
    Column("", _BY, lambda row: row[1].verdicts.sizes["G"], "G", whole),
    Column("", _BY, lambda row: row[1].verdicts.sizes["S"], "S", whole),
    Column("", _BY, lambda row: row[1].verdicts.sizes["U"], "U", whole),
)


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
