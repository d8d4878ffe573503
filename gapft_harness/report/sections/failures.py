"""The report's section on why so little passes, and the same for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from gapft_harness.core.records import GREEDY
from gapft_harness.report.reading.failures import KINDS_SHOWN, Failed, Failures
from gapft_harness.report.rendering import page
from gapft_harness.report.rendering.blocks import Block, Code, Table, Text
from gapft_harness.report.rendering.visible import shortened, visible
from gapft_harness.report.rendering.wording import percent, whole

#: Characters of a response that are shown.
_SHOWN = 400


def blocks(found: Sequence[Failures]) -> list[Block]:
    """Of each split: what came of its responses, the commonest reasons, and a few responses."""
    return [block for of in found for block in _of_one(of)]


def content(found: Sequence[Failures]) -> list[dict[str, Any]]:
    """For results.json."""
    return [
        {
            "where": of.where,
            "summary": summary(of),
            "verdicts": dict(sorted(of.statuses.items())),
            "reasons": [
                {"status": status, "reason": kind, "responses": count}
                for (status, kind), count in of.kinds[:KINDS_SHOWN]
            ],
            "examples": [
                {"heading": _heading(e), "text": _text(e), "gold": shortened(e.gold, _SHOWN)}
                for e in of.examples
            ],
        }
        for of in found
    ]


def summary(of: Failures) -> str:
    """What came of the responses, in a sentence."""
    passed = of.statuses.get("pass", 0)
    unjudged = of.statuses.get("error", 0) + of.statuses.get("timeout", 0)
    told = (
        f"{of.where}: {whole(passed) if passed else 'none'} of {whole(of.total)} responses passed"
    )
    if not unjudged:
        return f"{told}."
    errors, timeouts = (whole(of.statuses.get(name, 0)) for name in ("error", "timeout"))
    return f"{told}; {whole(unjudged)} could not be judged ({errors} errors, {timeouts} time-outs)."


def _of_one(of: Failures) -> list[Block]:
    rows = [
        [kind, status, whole(count), percent(Fraction(count, of.total))]
        for (status, kind), count in of.kinds[:KINDS_SHOWN]
    ]
    if rest := sum(count for _, count in of.kinds[KINDS_SHOWN:]):
        rows.append(["further reasons", "", whole(rest), percent(Fraction(rest, of.total))])
    cut = any("…" in row[0] for row in rows)
    note = "What differs from response to response is left out of a reason (…)." if cut else ""
    found: list[Block] = [
        Text(summary(of), "warning"),
        Table(["reason", "verdict", "responses", "share"], rows, note=note),
    ]
    for example in of.examples:
        heading = f"{_heading(example)}; gold: {shortened(example.gold, _SHOWN)}"
        name = example.problem_id
        link = {} if example.where == "pool" else {name: page.problem_link(name)}
        found += [Text(heading, "note", link), Code(_text(example))]
    return found


def _heading(of: Failed) -> str:
    which = "greedy decode" if of.index == GREEDY else f"sample {of.index}"
    reason = shortened(" ".join(of.reason.split()), _SHOWN) or "no reason given"
    return visible(f"{of.where}, {of.problem_id}, {which}: {of.status}, {reason}")


def _text(of: Failed) -> str:
    return shortened(of.text, _SHOWN) if of.text.strip() else "(nothing but white space)"
