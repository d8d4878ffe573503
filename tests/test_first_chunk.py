"""The first responses are checked at once: cut before an answer, or without one at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.records import CONTEXT_EXCEEDED, STOP_STRING, Decoding, Problem, Verdict
from gapft_harness.hooks.protocols import Generated, Generation
from gapft_harness.stages.generation.first_chunk import check_first_chunk
from gapft_harness.stages.generation.generation import build_greedy_phase
from tests.generated import chunks_in, generated
from tests.test_generation import SeededSampler

LIMITED = Decoding(do_sample=False, max_gen_toks=77, until=("\n\n",))


class Boxes:
    """Its answer is what follows "answer:"."""

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        return [Verdict("pass")] * len(responses)

    def answer(self, text: str) -> str | None:
        return text.partition("answer:")[2] or None


class Fences:
    """Gives no answers, but knows which responses have one."""

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        return [Verdict("fail")] * len(responses)

    def has_answer(self, text: str, gold: Any) -> bool:
        return "```" in text and gold == "gold"


class Silent:
    """Says nothing of answers."""

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        return [Verdict("fail")] * len(responses)


def notes(verifier: Any, *generations: Generation) -> list[str]:
    """What is said of one response to each problem."""
    of = [Problem(f"p{number}", "?", "gold") for number in range(len(generations))]
    answers = [Generated((1,), (generation,)) for generation in generations]
    return list(check_first_chunk(of, answers, LIMITED, verifier))


GOOD = Generation("answer: 4", (1,), "stop")
CUT = Generation("First we note that", (1,), "length")
STOPPED = Generation("First we note that", (1,), STOP_STRING, stop_string="\n\n")
EMPTY = Generation("", (), "stop")
BEYOND = Generation("", (), CONTEXT_EXCEEDED)


@pytest.mark.parametrize(
    ("cut", "setting"), [(CUT, "search.max_gen_toks"), (STOPPED, "generation_kwargs.until")]
)
def test_a_tenth_cut_without_an_answer_is_reported(cut: Generation, setting: str) -> None:
    (note,) = notes(Boxes(), *[GOOD] * 9, cut)
    assert setting in note
    assert "10%" in note
    assert "p9" in note
    assert "First we note that" in note
    assert (r"'\n\n'" in note) == (cut is STOPPED)
    assert ("77" in note) == (cut is CUT)
    assert not notes(Boxes(), *[GOOD] * 10, cut), "less than a tenth"


def test_cut_responses_that_have_an_answer_are_no_fault() -> None:
    answered = Generation("answer: 4. And so", (1,), "length")
    stopped = Generation("answer: 4", (1,), STOP_STRING, stop_string="\n\n")
    assert not notes(Boxes(), *[answered, stopped] * 5)


def test_both_causes_are_counted_together_and_named_apart() -> None:
    (note,) = notes(Boxes(), *[GOOD] * 16, CUT, STOPPED)
    assert "1 at the token limit" in note
    assert "search.max_gen_toks" in note
    assert "generation_kwargs.until" in note


@pytest.mark.parametrize("without", [EMPTY, Generation("I cannot say.", (1, 2), "stop")])
def test_half_without_an_answer_is_reported_with_three_examples(without: Generation) -> None:
    (note,) = notes(Boxes(), *[GOOD] * 5, *[without] * 5)
    assert "50%" in note
    assert "model.chat_template" in note
    assert [f"p{number}" in note for number in range(5, 10)] == [True] * 3 + [False] * 2
    assert not notes(Boxes(), *[GOOD] * 6, *[without] * 5)


def test_a_response_that_was_not_generated_is_not_counted() -> None:
    assert not notes(Boxes(), *[GOOD] * 6, *[EMPTY] * 5, *[BEYOND] * 9)
    assert not notes(Boxes(), BEYOND)


def test_a_verifier_without_answers_says_itself_whether_there_is_one() -> None:
    program = Generation("```python\n1\n```", (1,), "stop")
    assert len(notes(Fences(), *[program] * 4, *[CUT] * 5)) == 2
    assert not notes(Fences(), *[program] * 10)


def test_of_any_other_verifier_white_space_is_no_answer() -> None:
    assert not notes(Silent(), *[CUT] * 4)
    assert len(notes(Silent(), Generation(" \n", (1,), "stop"))) == 1


def test_it_is_said_once_and_right_after_the_first_chunk(tmp_path: Path) -> None:
    of = [Problem(f"p{number}", "?", "gold") for number in range(10)]
    phase = build_greedy_phase(LIMITED)
    seen: list[tuple[int, str]] = []

    def progress(done: int, total: int, tokens: int = 0, note: str = "") -> None:
        if note:
            seen.append((done, note))

    def search() -> None:
        generated(
            tmp_path, of, [phase], SeededSampler(), chunk=4, progress=progress, verifier=Boxes()
        )

    search()
    assert [done for done, _ in seen] == [4]
    search()
    chunks_in(tmp_path, of, [phase], 4)[1].find_path(phase).unlink()
    search()
    assert len(seen) == 1, "a run that goes on has no first chunk"
