"""Cut responses before and after, and the part of each change that comes from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """How the decodes of the model before, or of a model after over its seeds, ended.

    Attributes:
        model: the model's name in files.
        label: the model's name for people.
        state: the problems' state before; ``all``: every problem.
        summary: the endings, summed over seeds.
        changes: the changes by ending, summed over seeds; None for the model before.
    """

    model: str
    label: str
    state: str
    summary: EndingSummary
    changes: EndingChanges | None = None

    def count_part(self, name: str) -> Fraction | None:
        """Return a part of the change in Pass@1; None for the model before."""
        return None if self.changes is None else self.changes.share(getattr(self.changes, name))

    def share(self, name: str) -> Fraction | None:
        """Return the share of responses that ended in a way; None without responses."""
        count: int = getattr(self.summary, name)
        return Fraction(count, self.summary.n) if self.summary.n else None


_SHARE = "share of responses, over all seeds, that were cut there"
_PART = (
    "part of the change in Pass@1: gains on problems whose response was cut before and not after, "
    "minus losses in the reverse case; other: the rest of the change"
)
_points = partial(points, digits=2)


def _build_part_column(name: str, title: str) -> Column[ModelEndings]:
    return Column(
        f"change_{name}", _PART, lambda row: row.count_part(name), title, _points, missing=""
    )


ENDINGS: tuple[Column[ModelEndings], ...] = (
    Column("model", "", lambda row: row.model),
    Column("", "the model", lambda row: row.label, "responses of"),
    Column("state", "the problems' state before, or all", lambda row: row.state),
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
    models = {
        name: [inputs.decodes[trained.arm.name] for trained in inputs.find_arms(name)]
        for name in inputs.conditions
    }
    labels = {SOURCE: name_source(inputs.deployment)} | {n: condition_name(n) for n in models}
    yield from list_model_endings(
        (SOURCE, inputs.decodes[SOURCE]), models, labels, inputs.audit.states
    )


def list_model_endings(
    before: tuple[str, Decodes],
    after: Mapping[str, Sequence[Decodes]],
    labels: Mapping[str, str],
    states: NDArray[np.str_] | None = None,
) -> Iterator[ModelEndings]:
    """Yield the endings of the model before and of each model after, on all problems and by state.

    Args:
        before: the name of the model before, and its responses.
        after: by name of a model after, the responses of each of its seeds to the same problems.
        labels: the names for people.
        states: shape (P,), the problems' states before; None: unknown.
    """
    name, source = before
    everything = np.ones(len(source.passed), dtype=np.bool_)
    masks = {_ALL_STATES: everything}
    if states is not None:
        masks |= {state: states == state for state in ("G", "S", "U")}
    for state, mask in masks.items():
        chosen = source.select(mask)
        yield ModelEndings(name, labels[name], state, summarize_endings(chosen))
        for model, seeds in after.items():
            selected = [decodes.select(mask) for decodes in seeds]
            yield ModelEndings(
                model,
                labels[model],
                state,
                reduce(add, map(summarize_endings, selected)),
                reduce(add, (compare_endings(chosen, decodes) for decodes in selected)),
            )


def build_blocks(inputs: ReportInputs) -> list[Block]:
    """Build the folded table of cut responses; empty if no response was cut."""
    return build_table(list_endings(inputs))


def build_table(endings: Iterator[ModelEndings]) -> list[Block]:
    """Build the folded table of all problems; empty if no response was cut."""
    rows = [row for row in endings if row.state == _ALL_STATES]
    if not any(row.summary.limit or row.summary.stop_string for row in rows):
        return []
    return [
        Frame(ENDINGS, rows).table(
            "Cut: at the token limit or at a stop string of the task; complete: at an end token. "
            "Change: gains on problems whose response was cut before and not after, minus losses "
            "in the reverse case, in points; the parts add up to the change.",
            summary="Cut responses, and the part of the change that comes from them",
        )
    ]


def build_content(inputs: ReportInputs) -> list[dict[str, Any]]:
    """Build the entries for results.json: every model with all problems, and by state."""
    return Frame(ENDINGS, [*list_endings(inputs)]).entries()
