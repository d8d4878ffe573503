"""The findings as people read them: on the terminal, and as ``gap.html`` and ``gap.md``."""

from __future__ import annotations

from collections.abc import Mapping

from gapft_harness.analysis.bootstrap import Interval
from gapft_harness.analysis.pass_at_k import reported_k
from gapft_harness.gap.findings import REPLICATES, GapFindings, Share
from gapft_harness.gap.measuring import Measured
from gapft_harness.report.rendering.blocks import Block, Bullets, Section, Table, Text
from gapft_harness.report.rendering.wording import (
    STATE_NAMES,
    listed,
    percent,
    percent_interval,
    points,
    points_interval,
    whole,
)

#: Every k up to this many has a row on the page; beyond, powers of two. gap.csv has them all.
_ALL_ROWS = 8


def notes(of: Measured, found: Mapping[str, GapFindings]) -> list[str]:
    """What to know of the figures, a sentence each."""
    first = next(iter(found))
    said = []
    repeats = of.facts["repeats"]
    if repeats > 1:
        said.append(
            f"the task's own repeats ({repeats}) are not used: {of.k} samples were drawn (--k)"
        )
    if of.voting:
        said.append(
            f"filters that take several responses judge no single one, and are left out: "
            f"{listed(list(of.voting))}"
        )
    for name, one in found.items():
        if one.errors:
            said.append(
                f"filter {name}: {whole(one.errors)} of {whole(len(of.ids) * (of.k + 1))} "
                "responses could not be judged, and count as not passed; the logs have the reasons"
            )
    if of.changed:
        said.append(
            f"warning: filter {first}: {whole(of.changed)} verdicts were others when judged again; "
            "the figures are those of the search"
        )
    return said


def sections(of: Measured, found: Mapping[str, GapFindings]) -> list[Section]:
    """The page's sections."""
    first = next(iter(found.values()))
    gap, p_s = first.gains[-1], first.shares["S"]
    told = (
        f"{of.task}, {of.split}: {whole(len(of.ids))} problems, one greedy decode and {of.k} "
        f"samples of each; {of.judge}."
    )
    remarks = notes(of, found)
    blocks: list[Block] = [Text(told, "lead")]
    blocks += [
        Text(note.removeprefix("warning: "), "warning")
        for note in remarks
        if note.startswith("warning: ")
    ]
    plain = [note for note in remarks if not note.startswith("warning: ")]
    blocks += [Bullets(plain)] if plain else []
    bound = Text(
        f"On {_percent(p_s)} of all problems the greedy decode fails and one of {of.k} samples "
        "passes. This is p_S, the most that making recovered problems right can add to the greedy "
        f"accuracy. Pass@{of.k} − Pass@1 is {_points(gap)} points."
    )
    blocks += [_curve(of, first), _states(first), bound]
    result = [Section("The gap", blocks)]
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
            whole(int((found.states == state).sum())),
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
        counts = [whole(int((one.states == state).sum())) for state in "GSU"]
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
