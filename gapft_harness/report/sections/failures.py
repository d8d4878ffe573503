"""Why so little passes, in the report and on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from gapft_harness.core.records import GREEDY
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.failures import KINDS_SHOWN, Failed, Failures
from gapft_harness.report.rendering import page
from gapft_harness.report.rendering.blocks import Block, Code, Text
from gapft_harness.report.rendering.visible import shortened, visible
from gapft_harness.report.rendering.wording import percent, whole

#: Characters of a response that are shown.
_SHOWN = 400


def blocks(failures: Sequence[Failures]) -> list[Block]:
    """Build for each group: counts of verdicts, the most frequent reasons, some responses."""
    return [block for of in failures for block in _of_one(of)]


def content(failures: Sequence[Failures]) -> list[dict[str, Any]]:
    """Build the entries for results.json."""
    return [
        {
            "where": of.where,
            "summary": summary(of),
            "verdicts": dict(sorted(of.statuses.items())),
            "reasons": Frame(REASONS, _reasons(of)).entries(),
            "examples": [
                {"heading": _heading(e), "text": _text(e), "gold": shortened(e.gold, _SHOWN)}
                for e in of.examples
            ],
        }
        for of in failures
    ]


def summary(failures: Failures) -> str:
    """Summarize the verdicts of a group in a sentence."""
    passed = failures.statuses.get("pass", 0)
    unjudged = failures.statuses.get("error", 0) + failures.statuses.get("timeout", 0)
    count = whole(passed) if passed else "none"
    told = f"{failures.where}: {count} of {whole(failures.total)} responses passed"
    if not unjudged:
        return f"{told}."
    errors, timeouts = (whole(failures.statuses.get(name, 0)) for name in ("error", "timeout"))
    return f"{told}; {whole(unjudged)} could not be judged ({errors} errors, {timeouts} timeouts)."


def _of_one(failures: Failures) -> list[Block]:
    rows = _reasons(failures)
    if rest := sum(count for _, count in failures.kinds[KINDS_SHOWN:]):
        rows.append(Reason("other reasons", "", rest, Fraction(rest, failures.total)))
    cut = any("…" in row.reason for row in rows)
    note = "…: a part of the reason that differs between responses." if cut else ""
    found: list[Block] = [
        Text(summary(failures), "warning"),
        Frame(REASONS, rows).table(note),
    ]
    for example in failures.examples:
        heading = f"{_heading(example)}; gold: {shortened(example.gold, _SHOWN)}"
        name = example.problem_id
        link = {} if example.where == "pool" else {name: page.problem_link(name)}
        found += [Text(heading, "note", link), Code(_text(example))]
    return found


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason why responses of a group did not pass."""

    reason: str
    status: str
    responses: int
    share: Fraction


def _reasons(failures: Failures) -> list[Reason]:
    """List the most frequent reasons."""
    return [
        Reason(kind, status, count, Fraction(count, failures.total))
        for (status, kind), count in failures.kinds[:KINDS_SHOWN]
    ]


_SAID = "the verifier's reason and verdict"
_MANY = "the number of responses, and their share of all"
REASONS: tuple[Column[Reason], ...] = (
    Column("reason", _SAID, lambda row: row.reason, "reason"),
    Column("status", _SAID, lambda row: row.status, "verdict"),
    Column("responses", _MANY, lambda row: row.responses, "responses", whole),
    Column("", _MANY, lambda row: row.share, "share", percent),
)


def _heading(response: Failed) -> str:
    which = "greedy decode" if response.index == GREEDY else f"sample {response.index}"
    reason = shortened(" ".join(response.reason.split()), _SHOWN) or "no reason given"
    return visible(f"{response.where}, {response.problem_id}, {which}: {response.status}, {reason}")


def _text(response: Failed) -> str:
    return shortened(response.text, _SHOWN) if response.text.strip() else "(only white space)"
