"""The report's section on episodes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from gapft_harness.report.reading.episodes import EpisodeCounts, EpisodeFacts, Repeats
from gapft_harness.report.rendering import page
from gapft_harness.report.rendering.blocks import Block, Table, Text
from gapft_harness.report.rendering.wording import condition_name, listed, percent, whole


def blocks(facts: EpisodeFacts) -> list[Block]:
    """A table of attempts, and whether the tests repeated."""
    found: list[Block] = [_table(facts)] if facts.counts else []
    if facts.repeats is not None:
        found.append(_repeats(facts.repeats))
    return found


def content(facts: EpisodeFacts) -> dict[str, Any]:
    """For results.json."""
    repeats = facts.repeats
    return {
        "attempts": facts.attempts,
        "audit": [
            {
                "who": of.who,
                "kind": of.kind,
                "episodes": of.total,
                "ended_at_attempt": list(of.ended),
                "passed": of.passed,
                "passed_public_tests_alone": of.public_only,
            }
            for of in facts.counts
        ],
        "executions": repeats
        and {
            "times": repeats.times,
            "episodes": repeats.episodes,
            "verdicts_differ": repeats.verdicts_differ,
            "feedback_differs": repeats.feedback_differs,
        },
    }


def _table(facts: EpisodeFacts) -> Table:
    rows = [
        [
            _label(of),
            whole(of.total),
            *(percent(Fraction(ended, max(of.total, 1))) for ended in of.ended),
            percent(Fraction(of.passed, max(of.total, 1))),
            percent(Fraction(of.public_only, max(of.total, 1))),
        ]
        for of in facts.counts
    ]
    ends = [f"attempt {number}" for number in range(1, facts.attempts + 1)]
    return Table(
        ["audit", "episodes", *ends, "passed", "public tests alone"],
        rows,
        note=f"One decode is an episode of at most {facts.attempts} attempts. After one that "
        "fails a public test, the model sees that test's outcome and tries again. Attempt: share "
        "of episodes that ended there, because the public tests passed or no attempt was left. "
        "Passed: the last attempt passed all tests, the hidden ones too. Public tests alone: it "
        "ended before the last attempt, so the public tests had passed, and a hidden one failed. "
        "A condition's seeds are added up.",
    )


def _label(counts: EpisodeCounts) -> str:
    return f"source, {counts.kind}" if counts.who == "source" else condition_name(counts.who)


def _repeats(repeats: Repeats) -> Text:
    opening = (
        f"The programs of all {whole(repeats.episodes)} greedy episodes were run {repeats.times} "
        "times; a label is the majority's verdict."
    )
    if not repeats.named:
        return Text(f"{opening} Every verdict and every public test came out the same each time.")
    # the explorer has the problems of the audit
    shown = [name for table, name in repeats.named if table != "pool"]
    return Text(
        f"{opening} {whole(repeats.verdicts_differ)} got different verdicts, and of "
        f"{whole(repeats.feedback_differs)} the outcome of a public test differed; among them "
        f"{listed([': '.join(of) for of in repeats.named])}.",
        "warning",
        {name: page.problem_link(name) for name in shown},
    )
