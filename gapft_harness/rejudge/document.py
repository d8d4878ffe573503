"""Format the results of ``gapft rejudge`` for the terminal and for its files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gapft_harness.compare.choice import REPLICATES
from gapft_harness.compare.document import LEVELS, TEST, ComparisonLine, build_pair_entry
from gapft_harness.compare.findings import Paired
from gapft_harness.rejudge.choice import Rule
from gapft_harness.rejudge.flips import Flip, Flips
from gapft_harness.rejudge.logs import LogsJudged
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Bullets, Section, Table, Text
from gapft_harness.report.rendering.document import Document
from gapft_harness.report.rendering.wording import (
    format_count,
    percent,
    percent_interval,
    points,
    points_interval,
)

#: Characters of a response in a table: its start and its end, where answers usually are.
_START, _END = 60, 160
#: The files that ``--out`` writes, readable ones first.
FILES = ("rejudged.md", "rejudged.html", "results.json", "rejudged.csv", "flips.csv")


def build_document(judged: LogsJudged) -> Document:
    """Build the document, except the flips, which are written while judging."""
    columns = [*LOG, *LEVELS, *TEST] if judged.is_graded else [*LOG, *ALONE]
    return Document(
        title="Judged again",
        sections=build_sections(judged),
        names=FILES[:3],
        results=build_results(judged),
        tables={FILES[3]: Frame(columns, _build_lines(judged)).csv()},
    )


def build_sections(judged: LogsJudged) -> list[Section]:
    """Build all sections."""
    new_rule, old_rule = judged.choice.now, judged.choice.was
    (model,) = judged.compute_findings().models.values()
    against = f", against {old_rule}" if old_rule else ""
    documents = f"{format_count(model.units)} documents"
    if len(judged.logs) > 1:
        documents += f" in {format_count(len(judged.logs))} logs"
    if judged.is_graded:
        lead = (
            f"{format_count(judged.responses)} responses to {documents}, judged again by "
            f"{new_rule}{against}: {format_count(judged.flips.right)} changed from wrong to right, "
            f"{format_count(judged.flips.wrong)} from right to wrong"
        )
    else:
        right = judged.reasons.statuses["pass"]
        lead = (
            f"{format_count(judged.responses)} responses to {documents}, judged by {new_rule}: "
            f"{format_count(right)} are right; the log has no verdicts to compare with"
        )
    return [
        Section(
            "",
            [
                Text(f"{lead}.", "lead"),
                *(
                    Text(f"{rule}: {warning}", "warning")
                    for rule, warning in (
                        (new_rule, judged.reasons.describe_failures()),
                        (old_rule, judged.was_reasons.describe_failures(hint="")),
                    )
                    if warning
                ),
                Bullets(list(list_notes(judged))),
            ],
        ),
        Section(
            "Both rules" if judged.is_graded else str(new_rule), [_build_accuracy_table(judged)]
        ),
        *_flip_sections(judged.flips),
    ]


def list_notes(judged: LogsJudged) -> Iterator[str]:
    """Yield notes on automatic choices."""
    sentences: dict[str, None] = {}
    for reading in judged.readings:
        if reading.golds.chosen:
            sentences[f"gold answer: {reading.golds.where} (--gold FIELD for another)"] = None
        filter_name = reading.source.filter
        rest = ", ".join(name for name in reading.source.filters if name != filter_name)
        if judged.choice.filter is None and rest:
            sentences[f"filter: {filter_name}, the first in the log; others: {rest} (--filter)"] = (
                None
            )
        if (criterion := reading.criterion) is not None:
            metric = None if criterion.uses_verdicts else criterion.metric
            by = f"{metric} of the log" if metric else "the log's verdicts"
            others = [name for name in reading.metrics if name != metric]
            more = f"; --metric: {', '.join(others)}" if others and not judged.choice.metric else ""
            sentences[f"earlier verdicts: {by}{more}"] = None
    yield from sentences


def _build_accuracy_table(judged: LogsJudged) -> Table:
    findings = judged.compute_findings()
    name = str(judged.choice.now)
    rows = _build_lines(judged)
    if not judged.is_graded:
        note = (
            "Mean over documents of the share of right responses. Interval: "
            f"{format_count(REPLICATES)} bootstrap replicates of documents."
        )
        return Frame([*LOG, *ALONE], rows).table(note)
    tests = {pairs[name].test for pairs in (findings.models, *findings.groups.values())}
    test_names = {"mcnemar": "McNemar's exact test", "sign_flip": "sign flips of documents"}
    note = (
        "Mean over documents of the share of right responses. Interval: "
        f"{format_count(REPLICATES)} bootstrap replicates of documents. p: "
        f"{' or '.join(sorted(test_names[test] for test in tests))}, two-sided. Both rules "
        "judged the same responses."
    )
    return Frame([*LOG, *RULES], rows).table(note)


def _build_lines(judged: LogsJudged) -> list[ComparisonLine]:
    findings, name = judged.compute_findings(), str(judged.choice.now)
    return [
        ComparisonLine(by[name], group)
        for group, by in [("", findings.models), *findings.groups.items()]
    ]


_WHICH = "log, number of documents"
_RULE = "share by the earlier and the new rule"
_CHANGE = "new minus earlier"
LOG: tuple[Column[ComparisonLine], ...] = (
    Column("log", "", lambda line: line.group),
    Column("", _WHICH, lambda line: line.group or "all", "log"),
    Column("documents", _WHICH, lambda line: line.pair.units, "documents", format_count),
)
#: For logs without verdicts: the difference to no right response is the share itself.
ALONE: tuple[Column[ComparisonLine], ...] = (
    Column("after", "", lambda line: line.pair.after),
    Column("", "share by the rule", lambda line: line.pair.after, "is right", percent),
    Column(
        "", "share by the rule", lambda line: line.pair.estimate, "95% interval", percent_interval
    ),
)
RULES: tuple[Column[ComparisonLine], ...] = (
    Column("", _RULE, lambda line: line.pair.before, "was right", percent),
    Column("", _RULE, lambda line: line.pair.after, "is right", percent),
    Column("", _CHANGE, lambda line: line.pair.estimate.value, "difference (points)", points),
    Column("", _CHANGE, lambda line: line.pair.estimate, "95% interval", points_interval),
    Column("", _CHANGE, lambda line: line.pair.estimate.p, "p", wording.format_p_value),
)


def _flip_sections(flips: Flips) -> Iterator[Section]:
    """Yield a table of the first flips of each kind."""
    has_logs = len({flip.where.partition(", line")[0] for flip in flips.kept}) > 1
    for right, count, title in (
        (True, flips.right, "Right now, and was wrong"),
        (False, flips.wrong, "Wrong now, and was right"),
    ):
        shown_flips = [flip for flip in flips.kept if flip.is_right == right]
        if not shown_flips:
            continue
        note = ""
        if count > len(shown_flips):
            note = (
                f"{format_count(len(shown_flips))} of {format_count(count)}; --show N shows more, "
                "and --out writes all with complete texts to flips.csv."
            )
        rows = [(flip, _format_place(flip, has_logs)) for flip in shown_flips]
        yield Section(title, [Frame(FLIPS, rows).table(note, words=5)])


def _format_place(flip: Flip, has_logs: bool) -> str:
    """Format the number of a flipped response, and its log if there are several."""
    response = "" if flip.index == 0 else f", response {flip.index + 1}"
    return f"{response} ({flip.where})" if has_logs else response


def _shorten(text: str) -> str:
    """Return a text on one line; for a long text, its start and its end."""
    line = " ".join(text.split())
    return line if len(line) <= _START + _END else f"{line[:_START]} … {line[-_END:]}"


def _format_new_answer(row: tuple[Flip, str]) -> str:
    flip = row[0]
    return (
        flip.reason if flip.now_answer is None and flip.reason else _shorten(flip.now_answer or "–")
    )


_FLIPPED = "what flipped"
#: A flip with its place.
FLIPS: tuple[Column[tuple[Flip, str]], ...] = (
    Column("", _FLIPPED, lambda row: f"{row[0].document}{row[1]}", "document"),
    Column("", _FLIPPED, lambda row: _shorten(row[0].gold), "gold"),
    Column("", _FLIPPED, lambda row: row[0].was_answer, "was read as", _shorten),
    Column("", _FLIPPED, _format_new_answer, "is read as"),
    Column("", _FLIPPED, lambda row: _shorten(row[0].text), "response"),
)


def _build_rule_entry(rule: Rule | None) -> dict[str, Any] | None:
    """Build a rule's entry of results.json."""
    return None if rule is None else {"verifier": rule.name, "params": dict(rule.params)}


def build_results(judged: LogsJudged) -> dict[str, Any]:
    """Build the content of results.json (schema 1; keys in docs/comparing.md)."""
    findings, name = judged.compute_findings(), str(judged.choice.now)
    figures = _build_figures if judged.is_graded else _build_ungraded_figures
    return {
        "schema": 1,
        "logs": [str(log.path) for log in judged.logs],
        "now": _build_rule_entry(judged.choice.now),
        "was": _build_rule_entry(judged.choice.was),
        "gold": [reading.golds.where for reading in judged.readings],
        "responses": judged.responses,
        "verdicts": dict(sorted(judged.reasons.statuses.items())),
        "was_verdicts": dict(sorted(judged.was_reasons.statuses.items()))
        if judged.choice.was
        else None,
        "right_now": judged.flips.right if judged.is_graded else None,
        "wrong_now": judged.flips.wrong if judged.is_graded else None,
        **figures(findings.models[name]),
        "by": {group: figures(by[name]) for group, by in findings.groups.items()},
        "notes": list(list_notes(judged)),
    }


def _build_figures(pair: Paired) -> dict[str, Any]:
    return {"n": pair.items, "documents": pair.units, **build_pair_entry(pair, is_judged=True)}


def _build_ungraded_figures(pair: Paired) -> dict[str, Any]:
    """Build the figures for logs without verdicts, with null for those of a change."""
    figures = _build_figures(pair)
    return {key: figures[key] if key in ("n", "documents", "after") else None for key in figures}
