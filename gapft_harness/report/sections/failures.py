"""Why so little passes, in the report and on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from gapft_harness.core.records import GREEDY
from gapft_harness.presentation.explorer import link_problem
from gapft_harness.presentation.visible import make_visible, shorten
from gapft_harness.recipe.sections import Deployment
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.failures import KINDS_SHOWN, FailedResponse, Failures
from gapft_harness.report.rendering.blocks import Block, Code, Text
from gapft_harness.report.rendering.wording import format_count, name_decode, percent

#: Characters of a response that are shown.
_MAX_CHARS = 400


def build_blocks(failures: Sequence[Failures], deployment: Deployment | None = None) -> list[Block]:
    """Build for each group: counts of verdicts, the most frequent reasons, some responses."""
    return [block for group in failures for block in _build_group(group, deployment)]


def build_content(
    failures: Sequence[Failures], deployment: Deployment | None = None
) -> list[dict[str, Any]]:
    """Build the entries for results.json."""
    return [
        {
            "where": group.where,
            "summary": summarize(group),
            "verdicts": dict(sorted(group.statuses.items())),
            "reasons": Frame(REASONS, _list_reasons(group)).entries(),
            "examples": [
                {
                    "heading": _format_heading(example, deployment),
                    "text": _format_text(example),
                    "gold": shorten(example.gold, _MAX_CHARS),
                }
                for example in group.examples
            ],
        }
        for group in failures
    ]


def summarize(failures: Failures) -> str:
    """Summarize the verdicts of a group in a sentence."""
    passed = failures.statuses.get("pass", 0)
    unjudged = failures.statuses.get("error", 0) + failures.statuses.get("timeout", 0)
    count = format_count(passed) if passed else "none"
    opening = f"{failures.where}: {count} of {format_count(failures.total)} responses passed"
    if not unjudged:
        return f"{opening}."
    errors, timeouts = (
        format_count(failures.statuses.get(name, 0)) for name in ("error", "timeout")
    )
    return (
        f"{opening}; {format_count(unjudged)} could not be judged ({errors} errors, {timeouts} "
        "timeouts)."
    )


def _build_group(failures: Failures, deployment: Deployment | None) -> list[Block]:
    rows = _list_reasons(failures)
    if rest := sum(count for _, count in failures.kinds[KINDS_SHOWN:]):
        rows.append(ReasonRow("other reasons", "", rest, Fraction(rest, failures.total)))
    is_cut = any("…" in row.reason for row in rows)
    note = "…: a part of the reason that differs between responses." if is_cut else ""
    group_blocks: list[Block] = [
        Text(summarize(failures), "warning"),
        Frame(REASONS, rows).table(note),
    ]
    for example in failures.examples:
        heading = (
            f"{_format_heading(example, deployment)}; gold: {shorten(example.gold, _MAX_CHARS)}"
        )
        name = example.problem_id
        link = {} if example.where == "pool" else {name: link_problem(name)}
        group_blocks += [Text(heading, "note", link), Code(_format_text(example))]
    return group_blocks


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """A reason why responses of a group did not pass."""

    reason: str
    status: str
    responses: int
    share: Fraction


def _list_reasons(failures: Failures) -> list[ReasonRow]:
    """List the most frequent reasons."""
    return [
        ReasonRow(kind, status, count, Fraction(count, failures.total))
        for (status, kind), count in failures.kinds[:KINDS_SHOWN]
    ]


_REASON = "the verifier's reason and verdict"
_COUNT = "the number of responses, and their share of all"
REASONS: tuple[Column[ReasonRow], ...] = (
    Column("reason", _REASON, lambda row: row.reason, "reason"),
    Column("status", _REASON, lambda row: row.status, "verdict"),
    Column("responses", _COUNT, lambda row: row.responses, "responses", format_count),
    Column("", _COUNT, lambda row: row.share, "share", percent),
)


def _format_heading(response: FailedResponse, deployment: Deployment | None) -> str:
    which = f"sample {response.index}"
    if response.index == GREEDY:
        which = name_decode(deployment)
    reason = shorten(" ".join(response.reason.split()), _MAX_CHARS) or "no reason given"
    return make_visible(
        f"{response.where}, {response.problem_id}, {which}: {response.status}, {reason}"
    )


def _format_text(response: FailedResponse) -> str:
    return shorten(response.text, _MAX_CHARS) if response.text.strip() else "(only white space)"
