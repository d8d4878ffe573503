"""Cut responses of an audit, and the part of each change that comes from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from operator import add
from typing import Any

from gapft_harness.analysis.truncation import (
    Decodes,
    EndingChanges,
    EndingSummary,
    compare_endings,
    summarize_endings,
)
from gapft_harness.core.records import SOURCE
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Block
from gapft_harness.report.rendering.wording import condition_name, name_source, percent, points

#: The rows of all states together.
_ALL_STATES = "all"


@dataclass(frozen=True, slots=True)
class ModelEndings:
    """How the deployment decodes of the source, or of a condition over its seeds, ended.

    Attributes:
        model: ``SOURCE`` or the condition's name.
        state: the source's state of the problems; ``all``: every problem.
        summary: the endings, summed over seeds.
        changes: the changes from the source by ending, summed over seeds; None for the source.
        source_name: the source's name for people.
    """

    model: str
    state: str
    summary: EndingSummary
    changes: EndingChanges | None = None
    source_name: str = "source, greedy"

    @property
    def label(self) -> str:
        """The model's name for people."""
        return self.source_name if self.model == SOURCE else condition_name(self.model)

    def count_part(self, name: str) -> Fraction | None:
        """Return a part of the change in Pass@1; None for the source."""
        return None if self.changes is None else self.changes.share(getattr(self.changes, name))

    def share(self, name: str) -> Fraction | None:
        """Return the share of responses that ended in a way; None without responses."""
        count: int = getattr(self.summary, name)
        return Fraction(count, self.summary.n) if self.summary.n else None


_SHARE = "share of audit responses, over all seeds, that were cut there"
_PART = (
    "part of the change in Pass@1: gains on problems whose response was cut before training and "
    "not after, minus losses in the reverse case; other: the rest of the change"
)
_points = partial(points, digits=2)


def _build_part_column(name: str, title: str) -> Column[ModelEndings]:
    return Column(
        f"change_{name}", _PART, lambda row: row.count_part(name), title, _points, missing=""
    )


ENDINGS: tuple[Column[ModelEndings], ...] = (
    Column("model", "", lambda row: row.model),
    Column("", "the model", lambda row: row.label, "responses of"),
    Column("state", "the source's state of the problems, or all", lambda row: row.state),
    Column("responses", "", lambda row: row.summary.n),
    Column("limit", _SHARE, lambda row: row.share("limit"), "cut at limit", percent),
    Column(
        "stop_string", _SHARE, lambda row: row.share("stop_string"), "at a stop string", percent
    ),
    Column(
        "complete_accuracy",
        "Pass@1 among the responses that ended at an end token",
        lambda row: row.summary.complete_accuracy,
        "Pass@1, complete",
        percent,
    ),
    Column(
        "mean_tokens",
        "mean length of a response",
        lambda row: row.summary.mean_tokens,
        "tokens",
        lambda tokens: f"{float(tokens):.1f}",
    ),
    _build_part_column("limit", "change: limit"),
    _build_part_column("stop_string", "stop string"),
    _build_part_column("other", "other"),
)


def list_endings(inputs: ReportInputs) -> Iterator[ModelEndings]:
    """Yield the endings of the source and every condition: of all problems, then by state."""
    if not inputs.decodes:
        return
    states = inputs.audit.states
    for state in (_ALL_STATES, "G", "S", "U"):
        chosen = states == state if state != _ALL_STATES else states == states

        def select(name: str, chosen: Any = chosen) -> Decodes:
            return inputs.decodes[name].select(chosen)

        source = select(SOURCE)
        name = name_source(inputs.deployment)
        yield ModelEndings(SOURCE, state, summarize_endings(source), source_name=name)
        for condition in inputs.conditions:
            seeds = [select(trained.arm.name) for trained in inputs.find_arms(condition)]
            yield ModelEndings(
                condition,
                state,
                reduce(add, map(summarize_endings, seeds)),
                reduce(add, (compare_endings(source, decodes) for decodes in seeds)),
            )


def build_blocks(inputs: ReportInputs) -> list[Block]:
    """Build the folded table of cut responses; empty if no response was cut."""
    rows = [row for row in list_endings(inputs) if row.state == _ALL_STATES]
    if not any(row.summary.limit or row.summary.stop_string for row in rows):
        return []
    return [
        Frame(ENDINGS, rows).table(
            "Cut: at the token limit or at a stop string of the task; complete: at an end token. "
            "Change: gains on problems whose response was cut before training and not after, "
            "minus losses in the reverse case, in points of Pass@1; the parts add up to the "
            "change.",
            summary="Cut responses, and the part of the change that comes from them",
        )
    ]


def build_content(inputs: ReportInputs) -> list[dict[str, Any]]:
    """Build the entries for results.json: every model with all problems, and by state."""
    return Frame(ENDINGS, [*list_endings(inputs)]).entries()
