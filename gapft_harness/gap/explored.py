"""What explorer.html shows of a gap: every problem with its greedy response and its K samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gapft_harness.gap.findings import GapFindings
from gapft_harness.gap.logs import GREEDY_LOG, SAMPLES_LOG
from gapft_harness.gap.measuring import Measured
from gapft_harness.report.explorer.explored import Entry, Explored, word
from gapft_harness.verdicts.places import log_at
from gapft_harness.verdicts.sample_logs import LogRow, SampleLog

#: A row of each log: the same document under the same filter.
_Pair = tuple[LogRow, LogRow]


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
        states="".join(first.states.tolist()),
        k=of.k,
        passing=of.verdicts[chosen].passing.tolist(),
        samples=[samples for _, samples in words],
        fields={f"state by {name}": one.states.tolist() for name, one in others},
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
