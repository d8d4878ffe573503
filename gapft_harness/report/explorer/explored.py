"""What the explorer shows, whether it comes from a run or from sample logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gapft_harness.report.reading.unread import Judging as Judging

#: What became of a problem, as one letter each.
CORRECTED, REGRESSED, KEPT, MISSED = "crkm"
#: The same of a metric that calls nothing right or wrong.
HIGHER, LOWER, EQUAL = "hle"


#: Verdicts as the report's cases call them.
_WORDS = {"pass": "right", "fail": "wrong"}


def word(status: str) -> str:
    """A verdict as the page says it."""
    return _WORDS.get(status, status)


def outcome(before: bool, after: bool) -> str:
    """What became of a problem that was right, or not, before and after."""
    if before:
        return KEPT if after else REGRESSED
    return CORRECTED if after else MISSED


@dataclass(frozen=True, slots=True)
class Model:
    """What one trained model made of the problems.

    Attributes:
        condition: its name, which links and filters go by.
        label: the name that people read.
        verdicts: P, on its responses: words, or numbers as text.
        outcomes: P letters.
    """

    condition: str
    label: str
    seed: str
    verdicts: Sequence[str]
    outcomes: str


@dataclass(frozen=True, slots=True)
class Entry:
    """The texts of one problem.

    Attributes:
        prompt: as the model saw it.
        responses: of the model before, of each model, and of the samples if their texts are there.
        document: the benchmark's record; fields of few values become filters.
        judged: what else is known of the first responses, or of all; reasons that recur become
            filters.
    """

    prompt: str
    gold: str
    responses: Sequence[str]
    document: Mapping[str, Any]
    judged: Sequence[Judging] = ()


@dataclass(frozen=True, slots=True)
class Explored:
    """P problems, in the order in which they are listed.

    Attributes:
        remark: what a reader should know of these problems, in a sentence; may be empty.
        noun: what one of them is called.
        before: the name of the model before.
        verdicts: P, on the responses of the model before.
        models: the trained ones, a condition's seeds beside each other.
        states: P letters, or nothing.
        k: samples of each problem; 0: none.
        passing: P, how many samples passed; empty for K = 0.
        samples: P times K verdicts on the samples, or nothing.
        fields: further fields to filter by, P values each.
        entries: reads the texts, as often as it is called.
        report: whether the report's page lies beside this one.
    """

    title: str
    noun: str
    before: str
    ids: Sequence[str]
    verdicts: Sequence[str]
    models: Sequence[Model]
    entries: Callable[[], Iterator[Entry]]
    remark: str = ""
    states: str = ""
    k: int = 0
    passing: Sequence[int] = ()
    samples: Sequence[Sequence[str]] = ()
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)
    report: bool = False
