"""Check of the first responses: cut before an answer, or without an answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.records import CONTEXT_EXCEEDED, STOP_STRING, Decoding, Problem, Verdict
from gapft_harness.hooks.protocols import Generated, Generation
from gapft_harness.hooks.registration import find_owner
from gapft_harness.hooks.thoughts import VerifierWithoutThoughts
from gapft_harness.stages.generation.first_chunk import check_first_chunk
from gapft_harness.stages.generation.generation import build_greedy_phase
from tests.generated import generate_missing, place_chunks
from tests.kit.scripted import SeededSampler

LIMITED = Decoding(do_sample=False, max_gen_toks=77, until=("\n\n",))


class AnswerVerifier:
    """Takes the text after "answer:" as the answer."""

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        return [Verdict("pass")] * len(responses)

    def answer(self, text: str) -> str | None:
        return text.partition("answer:")[2] or None


class FenceVerifier:
    """Returns no answers, but knows which responses have one."""

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        return [Verdict("fail")] * len(responses)

    def has_answer(self, text: str, gold: Any) -> bool:
        return "```" in text and gold == "gold"


class SilentVerifier:
    """Has no methods for answers."""

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> list[Verdict]:
        return [Verdict("fail")] * len(responses)


def check_generations(verifier: Any, *generations: Generation) -> list[str]:
    """Return the notes on one response to each problem."""
    problems = [Problem(f"p{number}", "?", "gold") for number in range(len(generations))]
    answers = [Generated((1,), (generation,)) for generation in generations]
    return list(check_first_chunk(problems, answers, LIMITED, verifier))


GOOD = Generation("answer: 4", (1,), "stop")
CUT = Generation("First we note that", (1,), "length")
STOPPED = Generation("First we note that", (1,), STOP_STRING, stop_string="\n\n")
EMPTY = Generation("", (), "stop")
BEYOND = Generation("", (), CONTEXT_EXCEEDED)


@pytest.mark.parametrize(
    ("cut", "setting"), [(CUT, "search.max_gen_toks"), (STOPPED, "generation_kwargs.until")]
)
def test_reports_tenth_cut_without_answer(cut: Generation, setting: str) -> None:
    (note,) = check_generations(AnswerVerifier(), *[GOOD] * 9, cut)
    assert setting in note
    assert "10%" in note
    assert "p9" in note
    assert "First we note that" in note
    assert (r"'\n\n'" in note) == (cut is STOPPED)
    assert ("77" in note) == (cut is CUT)
    assert not check_generations(AnswerVerifier(), *[GOOD] * 10, cut), "less than a tenth"


def test_ignores_cut_responses_with_answer() -> None:
    answered = Generation("answer: 4. And so", (1,), "length")
    stopped = Generation("answer: 4", (1,), STOP_STRING, stop_string="\n\n")
    assert not check_generations(AnswerVerifier(), *[answered, stopped] * 5)


def test_counts_both_causes_together() -> None:
    (note,) = check_generations(AnswerVerifier(), *[GOOD] * 16, CUT, STOPPED)
    assert "1 at the token limit" in note
    assert "search.max_gen_toks" in note
    assert "generation_kwargs.until" in note


@pytest.mark.parametrize("without", [EMPTY, Generation("I cannot say.", (1, 2), "stop")])
def test_reports_half_without_answer(without: Generation) -> None:
    (note,) = check_generations(AnswerVerifier(), *[GOOD] * 5, *[without] * 5)
    assert "50%" in note
    assert "model.chat_template" in note
    assert [f"p{number}" in note for number in range(5, 10)] == [True] * 3 + [False] * 2
    assert not check_generations(AnswerVerifier(), *[GOOD] * 6, *[without] * 5)


def test_ignores_responses_not_generated() -> None:
    assert not check_generations(AnswerVerifier(), *[GOOD] * 6, *[EMPTY] * 5, *[BEYOND] * 9)
    assert not check_generations(AnswerVerifier(), BEYOND)


def test_uses_has_answer_of_verifier() -> None:
    program = Generation("```python\n1\n```", (1,), "stop")
    assert len(check_generations(FenceVerifier(), *[program] * 4, *[CUT] * 5)) == 2
    assert not check_generations(FenceVerifier(), *[program] * 10)


def test_white_space_is_not_an_answer() -> None:
    assert not check_generations(SilentVerifier(), *[CUT] * 4)
    assert len(check_generations(SilentVerifier(), Generation(" \n", (1,), "stop"))) == 1


def test_reports_once_after_first_chunk(tmp_path: Path) -> None:
    problems = [Problem(f"p{number}", "?", "gold") for number in range(10)]
    phase = build_greedy_phase(LIMITED)
    seen: list[tuple[int, str]] = []

    def progress(done: int, total: int, tokens: int = 0, note: str = "") -> None:
        if note:
            seen.append((done, note))

    def search() -> None:
        generate_missing(
            tmp_path,
            problems,
            [phase],
            SeededSampler(),
            chunk=4,
            progress=progress,
            verifier=AnswerVerifier(),
        )

    search()
    assert [done for done, _ in seen] == [4]
    search()
    place_chunks(tmp_path, problems, [phase], 4)[1].find_path(phase).unlink()
    search()
    assert len(seen) == 1, "a continued run has no first chunk"


# Reasoning cut at the limit


def build_thoughts(*texts: str, finish: str = "length") -> list[Generation]:
    return [Generation(text, (1,), finish) for text in texts]


OPEN, CLOSED = "<think>so", "<think>so</think>answer: 4"


@pytest.mark.parametrize(
    "generations",
    [
        build_thoughts(OPEN, OPEN, CLOSED),
        build_thoughts(OPEN, CLOSED),
        [Generation("", (1,), "length", reasoning="so"), GOOD, GOOD],
        # the prompt opens the block: the others close one that they did not open
        build_thoughts("so", "so", "so</think>answer: 4"),
    ],
)
def test_reports_reasoning_cut_at_limit(generations: list[Generation]) -> None:
    [note] = check_generations(wrap_verifier(), *generations)
    assert "search.max_gen_toks" in note
    assert "77" in note
    assert "reasoning" in note


@pytest.mark.parametrize(
    "generations",
    [
        build_thoughts(CLOSED, CLOSED),
        build_thoughts(OPEN, CLOSED, CLOSED),
        build_thoughts("answer: 4", "answer: 5"),
        [Generation("answer: 4", (1,), "stop", reasoning="so")],
    ],
)
def test_no_note_on_reasoning_that_mostly_ends(generations: list[Generation]) -> None:
    notes = check_generations(wrap_verifier(), *generations)
    assert not any("still reasoning" in note for note in notes)


def test_cut_reasoning_is_found_by_its_end_token() -> None:
    texts = build_thoughts("so", "so", "so<end>answer: 4")
    [note] = check_generations(wrap_verifier("<end>"), *texts)
    assert "still reasoning" in note
    assert not any("still reasoning" in n for n in check_generations(wrap_verifier(), *texts))


def wrap_verifier(think_end_token: str | None = None) -> VerifierWithoutThoughts:
    verifier = AnswerVerifier()
    return VerifierWithoutThoughts(verifier, find_owner("verifier", verifier), think_end_token)
