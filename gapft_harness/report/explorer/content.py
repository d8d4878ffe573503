"""The explorer's content, from a run or from sample logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gapft_harness.report.reading.texts import Judging as Judging

#: Outcomes of a problem, one letter each.
CORRECTED, REGRESSED, KEPT, MISSED = "crkm"
#: Outcomes under a metric without right and wrong.
HIGHER, LOWER, EQUAL = "hle"


#: Words for verdicts, as in the report's cases.
_WORDS = {"pass": "right", "fail": "wrong"}


def format_verdict(status: str) -> str:
    """Return the page's word for a verdict."""
    return _WORDS.get(status, status)


def classify_outcome(passed_before: bool, passed_after: bool) -> str:
    """Return the outcome letter of a problem by whether it passed before and after."""
    if passed_before:
        return KEPT if passed_after else REGRESSED
    return CORRECTED if passed_after else MISSED


@dataclass(frozen=True, slots=True)
class ExplorerModel:
    """One trained model's results on the problems.

    Attributes:
        condition: the condition's name, used by links and filters.
        label: the condition's name for people.
        seed: the training seed, as text.
        verdicts: P, of its responses: words, or numbers as text.
        outcomes: P letters.
    """

    condition: str
    label: str
    seed: str
    verdicts: Sequence[str]
    outcomes: str


@dataclass(frozen=True, slots=True)
class ProblemTexts:
    """The texts of one problem.

    Attributes:
        prompt: as the model received it.
        gold: the gold answer, for people.
        responses: of the model before training, of each trained model, and of the samples where
            their texts are recorded.
        document: the benchmark's record; fields with few values become filters.
        judged: further details of the first responses, or of all; frequent reasons become filters.
    """

    prompt: str
    gold: str
    responses: Sequence[str]
    document: Mapping[str, Any]
    judged: Sequence[Judging] = ()


@dataclass(frozen=True, slots=True)
class ExplorerContent:
    """P problems, in the order in which they are listed.

    Attributes:
        title: the page's title.
        remark: a sentence that readers should know about these problems; may be empty.
        noun: the word for one of them, such as ``problem``.
        before: the name of the model before training.
        ids: P ids of problems.
        verdicts: P, of the responses of the model before training.
        models: the trained models; the seeds of a condition are adjacent.
        states: P letters, or empty.
        k: samples of each problem; 0: none.
        passing: P, how many samples passed; empty for K = 0.
        samples: P times K verdicts of the samples, or empty.
        fields: more fields to filter by, P values each.
        entries: reads the texts; may be called several times.
        report: whether the report's page is in the same folder.
    """

    title: str
    noun: str
    before: str
    ids: Sequence[str]
    verdicts: Sequence[str]
    models: Sequence[ExplorerModel]
    entries: Callable[[], Iterator[ProblemTexts]]
    remark: str = ""
    states: str = ""
    k: int = 0
    passing: Sequence[int] = ()
    samples: Sequence[Sequence[str]] = ()
    fields: Mapping[str, Sequence[str]] = field(default_factory=dict)
    report: bool = False
