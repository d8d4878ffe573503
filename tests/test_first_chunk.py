"""Check of the first responses: cut before an answer, or without an answer."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.records import CONTEXT_EXCEEDED, STOP_STRING, Decoding, Problem, Verdict
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import Generated, Generation
from gapft_harness.stages.generation.chunks import build_single_phase
from gapft_harness.stages.generation.first_chunk import check_first_chunk
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


def build_judge(think_end_token: str | None = None) -> Judge:
    return Judge(AnswerVerifier(), think_end_token=think_end_token)


def check_generations(judge: Judge, *generations: Generation) -> list[str]:
    """Return the notes on one response to each problem."""
    problems = [Problem(f"p{number}", "?", "gold") for number in range(len(generations))]
    answers = [Generated((1,), (generation,)) for generation in generations]
    return list(check_first_chunk(problems, answers, LIMITED, judge))


GOOD = Generation("answer: 4", (1,), "stop")
CUT = Generation("First we note that", (1,), "length")
STOPPED = Generation("First we note that", (1,), STOP_STRING, stop_string="\n\n")
EMPTY = Generation("", (), "stop")
SILENT = Generation("I cannot say.", (1, 2), "stop")
BEYOND = Generation("", (), CONTEXT_EXCEEDED)
ANSWERED = Generation("answer: 4. And so", (1,), "length")
STOPPED_ANSWER = Generation("answer: 4", (1,), STOP_STRING, stop_string="\n\n")
PROGRAM = Generation("```python\n1\n```", (1,), "stop")
OPEN, UNOPENED, CLOSED, ENDED = (
    Generation(text, (1,), "length")
    for text in ("<think>so", "so", "<think>so</think>answer: 4", "so</think>answer: 4")
)
OTHER_END = Generation("so<end>answer: 4", (1,), "length")
REASONING = Generation("", (1,), "length", reasoning="so")
LIMIT, UNTIL, TEMPLATE = "search.max_gen_toks", "generation_kwargs.until", "model.chat_template"
THINKING = "enable_thinking"
ALL = {LIMIT, TEMPLATE, THINKING}

#: A judge, the first responses, and the keys that the notes name together.
ROWS: dict[str, tuple[Judge, list[Generation], set[str]]] = {
    "a tenth cut": (Judge(AnswerVerifier()), [GOOD] * 9 + [CUT], {LIMIT, THINKING}),
    "less than a tenth cut": (Judge(AnswerVerifier()), [GOOD] * 10 + [CUT], set()),
    "a tenth stopped": (Judge(AnswerVerifier()), [GOOD] * 9 + [STOPPED], {UNTIL}),
    "both causes together": (
        Judge(AnswerVerifier()),
        [GOOD] * 16 + [CUT, STOPPED],
        {LIMIT, UNTIL, THINKING},
    ),
    "cut after the answer": (Judge(AnswerVerifier()), [ANSWERED, STOPPED_ANSWER] * 5, set()),
    "half without answer": (Judge(AnswerVerifier()), [GOOD] * 5 + [SILENT] * 5, {LIMIT, TEMPLATE}),
    "less than half": (Judge(AnswerVerifier()), [GOOD] * 6 + [SILENT] * 5, set()),
    "not generated": (Judge(AnswerVerifier()), [GOOD] * 6 + [EMPTY] * 5 + [BEYOND] * 9, set()),
    "has_answer denies": (Judge(FenceVerifier()), [PROGRAM] * 4 + [CUT] * 5, ALL),
    "most reasoning cut": (build_judge(), [OPEN, OPEN, CLOSED], ALL),
    "separate reasoning cut": (build_judge(), [REASONING, GOOD, GOOD], {LIMIT, THINKING}),
    "text without methods": (Judge(SilentVerifier()), [CUT] * 4, set()),
    "reasoning without methods": (Judge(SilentVerifier()), [OPEN, OPEN, CLOSED], ALL),
    "block opened by the prompt": (build_judge(), [UNOPENED, UNOPENED, ENDED], ALL),
    "reasoning ends": (build_judge(), [CLOSED, CLOSED], set()),
    "no end token": (build_judge(), [UNOPENED, UNOPENED, OTHER_END], ALL),
    "own end token": (build_judge("<end>"), [UNOPENED, UNOPENED, OTHER_END], ALL),
}


@pytest.mark.parametrize("row", ROWS)
def test_notes_name_the_keys_of_a_fault(row: str) -> None:
    judge, generations, expected = ROWS[row]
    text = " ".join(check_generations(judge, *generations))
    assert {key for key in (LIMIT, UNTIL, TEMPLATE, THINKING) if key in text} == expected


def test_reports_once_after_first_chunk(tmp_path: Path) -> None:
    problems = [Problem(f"p{number}", "?", "gold") for number in range(10)]
    phase = build_single_phase(LIMITED)
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
            judge=Judge(AnswerVerifier()),
        )

    search()
    assert [done for done, _ in seen] == [4]
    search()
    second = place_chunks(problems, [phase], 4)[1]
    shutil.rmtree(tmp_path / second.place)
    search()
    assert len(seen) == 1, "a continued run has no first chunk"
