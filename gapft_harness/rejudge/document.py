"""Format the results of ``gapft rejudge`` for the terminal and for its files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gapft_harness.compare.choice import REPLICATES
from gapft_harness.compare.document import LEVELS, TEST, Line, paired
from gapft_harness.compare.findings import Paired
from gapft_harness.rejudge.choice import Rule
from gapft_harness.rejudge.flips import Flip, Flips
from gapft_harness.rejudge.logs import LogsJudged
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Bullets, Section, Table, Text
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import (
    percent,
    percent_interval,
    points,
    points_interval,
    whole,
)

#: Characters of a response in a table: its start and its end, where answers usually are.
_START, _END = 60, 160
#: The files that ``--out`` writes, readable ones first.
FILES = ("rejudged.md", "rejudged.html", "results.json", "rejudged.csv", "flips.csv")


def document(of: LogsJudged) -> Document:
    """Build the document, except the flips, which are written while judging."""
    columns = [*LOG, *LEVELS, *TEST] if of.is_graded else [*LOG, *ALONE]
    return Document(
        title="Judged again",
        sections=sections(of),
        names=FILES[:3],
        results=results(of),
        tables={FILES[3]: Frame(columns, _lines(of)).csv()},
    )


def sections(of: LogsJudged) -> list[Section]:
    """Build all sections."""
    now, was = of.choice.now, of.choice.was
    (model,) = of.found().models.values()
    against = f", against {was}" if was else ""
    documents = f"{whole(model.units)} documents"
    if len(of.logs) > 1:
        documents += f" in {whole(len(of.logs))} logs"
    if of.is_graded:
        lead = (
            f"{whole(of.responses)} responses to {documents}, judged again by "
            f"{now}{against}: {whole(of.flips.right)} changed from wrong to right, "
            f"{whole(of.flips.wrong)} from right to wrong"
        )
    else:
        right = of.reasons.statuses["pass"]
        lead = (
            f"{whole(of.responses)} responses to {documents}, judged by {now}: {whole(right)} are "
            "right; the log has no verdicts to compare with"
        )
    return [
        Section(
            "",
            [
                Text(f"{lead}.", "lead"),
                *(
                    Text(f"{rule}: {warning}", "warning")
                    for rule, warning in (
                        (now, of.reasons.warning()),
                        (was, of.was_reasons.warning(hint="")),
                    )
                    if warning
                ),
                Bullets(list(notes(of))),
            ],
        ),
        Section("Both rules" if of.is_graded else str(now), [_accuracies(of)]),
        *_flip_sections(of.flips),
    ]


def notes(of: LogsJudged) -> Iterator[str]:
    """Yield notes on automatic choices."""
    told: dict[str, None] = {}
    for reading in of.readings:
        if reading.golds.chosen:
            told[f"gold answer: {reading.golds.where} (--gold FIELD for another)"] = None
        taken = reading.source.filter
        rest = ", ".join(name for name in reading.source.filters if name != taken)
        if of.choice.filter is None and rest:
            told[f"filter: {taken}, the first in the log; others: {rest} (--filter)"] = None
        if (by_what := reading.criterion) is not None:
            metric = None if by_what.by_verdicts else by_what.metric
            by = f"{metric} of the log" if metric else "the log's verdicts"
            others = [name for name in reading.metrics if name != metric]
            more = f"; --metric: {', '.join(others)}" if others and not of.choice.metric else ""
            told[f"earlier verdicts: {by}{more}"] = None
    yield from told


def _accuracies(of: LogsJudged) -> Table:
    found = of.found()
    name = str(of.choice.now)
    rows = _lines(of)
    if not of.is_graded:
        note = (
            "Mean over documents of the share of right responses. Interval: "
            f"{whole(REPLICATES)} bootstrap replicates of documents."
        )
        return Frame([*LOG, *ALONE], rows).table(note)
    tests = {one[name].test for one in (found.models, *found.groups.values())}
    named = {"mcnemar": "McNemar's exact test", "sign_flip": "sign flips of documents"}
    note = (
        "Mean over documents of the share of right responses. Interval: "
        f"{whole(REPLICATES)} bootstrap replicates of documents. p: "
        f"{' or '.join(sorted(named[test] for test in tests))}, two-sided. Both rules "
        "judged the same responses."
    )
    return Frame([*LOG, *RULES], rows).table(note)


def _lines(of: LogsJudged) -> list[Line]:
    found, name = of.found(), str(of.choice.now)
    return [Line(by[name], group) for group, by in [("", found.models), *found.groups.items()]]


_WHICH = "log, number of documents"
_RULE = "share by the earlier and the new rule"
_CHANGE = "new minus earlier"
LOG: tuple[Column[Line], ...] = (
    Column("log", "", lambda line: line.group),
    Column("", _WHICH, lambda line: line.group or "all", "log"),
    Column("documents", _WHICH, lambda line: line.one.units, "documents", whole),
)
#: For logs without verdicts: the difference to no right response is the share itself.
ALONE: tuple[Column[Line], ...] = (
    Column("after", "", lambda line: line.one.after),
    Column("", "share by the rule", lambda line: line.one.after, "is right", percent),
    Column(
        "", "share by the rule", lambda line: line.one.interval, "95% interval", percent_interval
    ),
)
RULES: tuple[Column[Line], ...] = (
    Column("", _RULE, lambda line: line.one.before, "was right", percent),
    Column("", _RULE, lambda line: line.one.after, "is right", percent),
    Column("", _CHANGE, lambda line: line.one.difference, "difference (points)", points),
    Column("", _CHANGE, lambda line: line.one.interval, "95% interval", points_interval),
    Column("", _CHANGE, lambda line: line.one.p_value, "p", wording.p_value),
)


def _flip_sections(flips: Flips) -> Iterator[Section]:
    """Yield a table of the first flips of each kind."""
    several = len({flip.where.partition(", line")[0] for flip in flips.kept}) > 1
    for right, count, title in (
        (True, flips.right, "Right now, and was wrong"),
        (False, flips.wrong, "Wrong now, and was right"),
    ):
        kept = [flip for flip in flips.kept if flip.right == right]
        if not kept:
            continue
        note = ""
        if count > len(kept):
            note = (
                f"{whole(len(kept))} of {whole(count)}; --show N shows more, and --out writes all "
                "with complete texts to flips.csv."
            )
        rows = [(flip, _format_place(flip, several)) for flip in kept]
        yield Section(title, [Frame(FLIPS, rows).table(note, words=5)])


def _format_place(flip: Flip, several: bool) -> str:
    """Format the number of a flipped response, and its log if there are several."""
    response = "" if flip.index == 0 else f", response {flip.index + 1}"
    return f"{response} ({flip.where})" if several else response


def _cut(text: str) -> str:
    """Return a text on one line; for a long text, its start and its end."""
    line = " ".join(text.split())
    return line if len(line) <= _START + _END else f"{line[:_START]} … {line[-_END:]}"


def _now(row: tuple[Flip, str]) -> str:
    flip = row[0]
    return flip.reason if flip.now_answer is None and flip.reason else _cut(flip.now_answer or "–")


_FLIPPED = "what flipped"
#: A flip with its place.
FLIPS: tuple[Column[tuple[Flip, str]], ...] = (
    Column("", _FLIPPED, lambda row: f"{row[0].document}{row[1]}", "document"),
    Column("", _FLIPPED, lambda row: _cut(row[0].gold), "gold"),
    Column("", _FLIPPED, lambda row: row[0].was_answer, "was read as", _cut),
    Column("", _FLIPPED, _now, "is read as"),
    Column("", _FLIPPED, lambda row: _cut(row[0].text), "response"),
)


def _rule(of: Rule | None) -> dict[str, Any] | None:
    """Build a rule's entry of results.json."""
    return None if of is None else {"verifier": of.name, "params": dict(of.params)}


def results(of: LogsJudged) -> dict[str, Any]:
    """Build the content of results.json (schema 1; keys in docs/comparing.md)."""
    found, name = of.found(), str(of.choice.now)
    figures = _figures if of.is_graded else _figures_alone
    return {
        "schema": 1,
        "logs": [str(log.path) for log in of.logs],
        "now": _rule(of.choice.now),
        "was": _rule(of.choice.was),
        "gold": [reading.golds.where for reading in of.readings],
        "responses": of.responses,
        "verdicts": dict(sorted(of.reasons.statuses.items())),
        "was_verdicts": dict(sorted(of.was_reasons.statuses.items())) if of.choice.was else None,
        "right_now": of.flips.right if of.is_graded else None,
        "wrong_now": of.flips.wrong if of.is_graded else None,
        **figures(found.models[name]),
        "by": {group: figures(by[name]) for group, by in found.groups.items()},
        "notes": list(notes(of)),
    }


def _figures(one: Paired) -> dict[str, Any]:
    return {"n": one.items, "documents": one.units, **paired(one, judged=True)}


def _figures_alone(one: Paired) -> dict[str, Any]:
    """Build the figures for logs without verdicts, with null for those of a change."""
    told = _figures(one)
    return {key: told[key] if key in ("n", "documents", "after") else None for key in told}
