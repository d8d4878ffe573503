"""Episodes: attempts used, and whether executions repeat."""

from __future__ import annotations

from dataclasses import asdict
from fractions import Fraction
from typing import Any

from gapft_harness.presentation.explorer import link_problem
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.episodes import EpisodeCounts, EpisodeFacts, Repeats
from gapft_harness.report.rendering.blocks import Block, Table, Text
from gapft_harness.report.rendering.wording import condition_name, format_count, listed, percent


def build_blocks(facts: EpisodeFacts) -> list[Block]:
    """Build a table of attempts, and a paragraph on repeated executions."""
    content_blocks: list[Block] = [_build_table(facts)] if facts.counts else []
    if facts.repeats is not None:
        content_blocks.append(_describe_repeats(facts.repeats))
    return content_blocks


def build_content(facts: EpisodeFacts) -> dict[str, Any]:
    """Build the entry for results.json."""
    repeats = facts.repeats
    return {
        "attempts": facts.attempts,
        "audit": Frame(EPISODES, facts.counts).entries(),
        "executions": repeats and {k: v for k, v in asdict(repeats).items() if k != "named"},
    }


def _build_table(facts: EpisodeFacts) -> Table:
    ends = [build_ended_column(number) for number in range(1, facts.attempts + 1)]
    place = [column.title for column in EPISODES].index("attempt NUMBER")
    columns = [*EPISODES[:place], *ends, *EPISODES[place + 1 :]]
    return Frame(columns, facts.counts).table(
        f"One decode is an episode of at most {facts.attempts} attempts. After an attempt that "
        "fails a public test, the model sees the outcome of that test and tries again. Attempt: "
        "share of episodes that ended at this attempt, because the public tests passed or no "
        "attempt was left. Passed: the last attempt passed all tests, including hidden tests. "
        "Public tests alone: the episode ended before the last attempt, so the public tests "
        "passed, but a hidden test failed. The seeds of a condition are added.",
    )


def _format_label(counts: EpisodeCounts) -> str:
    return f"source, {counts.kind}" if counts.who == "source" else condition_name(counts.who)


def _compute_share(count: int, counts: EpisodeCounts) -> Fraction:
    return Fraction(count, max(counts.total, 1))


def build_ended_column(attempt: int | str) -> Column[EpisodeCounts]:
    """Build the column of the episodes that ended at an attempt."""
    return Column(
        "",
        "share that ended at this attempt",
        lambda row: _compute_share(row.ended[int(attempt) - 1], row),
        f"attempt {attempt}",
        percent,
    )


_MODEL = "the model and its number of episodes"
_PASSED = "share that passed all tests, or only the public tests"
EPISODES: tuple[Column[EpisodeCounts], ...] = (
    Column("who", "", lambda row: row.who),
    Column("kind", "", lambda row: row.kind),
    Column("", _MODEL, _format_label, "audit"),
    Column("episodes", _MODEL, lambda row: row.total, "episodes", format_count),
    build_ended_column("NUMBER"),
    Column("ended_at_attempt", "", lambda row: row.ended),
    Column("passed", "", lambda row: row.passed),
    Column("", _PASSED, lambda row: _compute_share(row.passed, row), "passed", percent),
    Column("passed_public_tests_alone", "", lambda row: row.public_only),
    Column(
        "", _PASSED, lambda row: _compute_share(row.public_only, row), "public tests alone", percent
    ),
)


def _describe_repeats(repeats: Repeats) -> Text:
    opening = (
        f"The programs of all {format_count(repeats.episodes)} greedy episodes were run "
        f"{repeats.times} times; the verdict is that of the majority."
    )
    if not repeats.named:
        return Text(f"{opening} All verdicts and all outcomes of public tests were the same.")
    # the explorer only has the problems of the audit
    problem_ids = [name for table, name in repeats.named if table != "pool"]
    return Text(
        f"{opening} {format_count(repeats.verdicts_differ)} got different verdicts, and "
        f"{format_count(repeats.feedback_differs)} got different outcomes of a public test; for "
        f"example {listed([': '.join(place) for place in repeats.named])}.",
        "warning",
        {name: link_problem(name) for name in problem_ids},
    )
