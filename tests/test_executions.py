"""Repeated executions of greedy episodes: the majority labels, disagreement is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.records import CONTEXT_EXCEEDED, GREEDY, Attempt, Response, Verdict
from gapft_harness.hooks.judge import Judge
from gapft_harness.stages.generation.episodes import build_episodes
from gapft_harness.stages.generation.judging import find_majority, label_repeated
from gapft_harness.stages.generation.table import describe_executions

STATUSES = ("pass", "fail", "timeout", "error")


@given(st.lists(st.sampled_from(STATUSES), min_size=1, max_size=9).filter(lambda s: len(s) % 2))
def test_majority_decides_in_any_order(statuses: list[Any]) -> None:
    label = find_majority([Verdict(status) for status in statuses])
    assert label.passed == (2 * statuses.count("pass") > len(statuses))
    assert label.status in statuses
    assert bool(label.reason) == (len(set(statuses)) > 1)
    if len(statuses) == 3:
        labels = {find_majority([Verdict(s) for s in p]).passed for p in permutations(statuses)}
        assert labels == {label.passed}


class FlakyVerifier:
    """Returns a different verdict and feedback for a text on each call."""

    def __init__(self, verdicts: dict[str, str], feedback: dict[str, list[str | None]]) -> None:
        self._verdicts = {text: list(marks) for text, marks in verdicts.items()}
        self._feedback = {text: list(answers) for text, answers in feedback.items()}

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        marks = [self._verdicts[text].pop(0) for text in responses]
        return [Verdict("pass") if mark == "+" else Verdict("fail", "wrong") for mark in marks]

    def feedback(self, responses: Sequence[str], golds: Sequence[Any]) -> list[str | None]:
        return [self._feedback[text].pop(0) for text in responses]


def build_episode(problem: str, *texts: str) -> Response:
    earlier = tuple(Attempt(text, (1,), "stop", f"no {text}") for text in texts[:-1])
    return Response(problem, GREEDY, texts[-1], (1,), "stop", 0, attempts=earlier)


def test_replays_each_attempt() -> None:
    verifier = FlakyVerifier(
        {"a2": "+++", "b1": "+-+", "c1": "---"},
        {
            # Replayed twice: first with the same feedback, then with different words.
            "a1": ["no a1", "other"],
            "a2": [None, None],
            "b1": [None, None],
            # Passed the public tests before, and fails them once.
            "c1": [None, "no c1"],
            # Its second prompt did not fit into the context, so nothing is asked about it.
            "d1": ["no d1", "no d1"],
        },
    )
    too_long = replace(build_episode("d", "d1", ""), finish_reason=CONTEXT_EXCEEDED)
    episodes = [
        build_episode("a", "a1", "a2"), build_episode("b", "b1"), build_episode("c", "c1"),
        too_long,
    ]  # fmt: skip
    first = [v for text in ("a2", "b1", "c1") for v in verifier.verify([text], ["g"])]
    labelled = label_repeated(
        episodes,
        ["g"] * 4,
        [*first, Verdict("fail")],
        3,
        Judge(verifier),
        build_episodes(Judge(verifier), 3, "flaky"),
    )
    assert [label.passed for label, _ in labelled] == [True, True, False, False]
    assert labelled[1][0].reason == "2 of 3 executions passed"
    facts = describe_executions(
        3, {name: row[1] for name, row in zip("abcd", labelled, strict=True)}
    )
    assert facts == {
        "times": 3,
        "episodes": 4,
        "verdicts_differ": ["b"],
        "feedback_differs": ["a", "c"],
    }
