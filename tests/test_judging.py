"""Each distinct pair of response and gold is judged once, and what the first responses show."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import (
    CONTEXT_EXCEEDED,
    STOP_STRING,
    Decoding,
    Problem,
    Response,
    Verdict,
)
from gapft_harness.hooks.judge import Judge
from gapft_harness.hooks.protocols import Generated, Generation
from gapft_harness.stages.generation.chunks import build_single_phase
from gapft_harness.stages.generation.first_chunk import check_first_chunk
from tests.generated import generate_missing, place_chunks
from tests.kit.scripted import SeededSampler

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
pairs = st.lists(st.tuples(st.text(max_size=2), json_values | st.sampled_from(["a", "b"])))


class Recording:
    """Pass responses that equal their gold, answer with the last word, and record all calls.

    Raise on the response "bad".
    """

    def __init__(self) -> None:
        self.judged: list[tuple[str, Any]] = []
        self.read: list[str] = []

    def verify(self, responses: Sequence[str], golds: Sequence[Any]) -> Any:
        self.judged += zip(responses, golds, strict=True)
        if "bad" in responses:
            raise RuntimeError("bad\nresponse")
        return [
            Verdict("pass" if text == gold else "fail", text)
            for text, gold in zip(responses, golds, strict=True)
        ]

    def answer(self, text: str) -> str | None:
        self.read.append(text)
        return text.split()[-1] if text.split() else None

    def check_gold(self, gold: Any) -> str:
        return ""


def build_response(text: str, finish: str = "stop") -> Response:
    return Response("p", 0, text, (), finish, 0)


@given(pairs, st.randoms(use_true_random=False))
def test_judges_each_pair_once_in_any_order(items: list[tuple[str, Any]], random: Any) -> None:
    verifier = Recording()
    verdicts = Judge(verifier).verify([t for t, _ in items], [g for _, g in items])
    order = [*range(len(items))]
    random.shuffle(order)
    again = Judge(Recording()).verify([items[i][0] for i in order], [items[i][1] for i in order])
    assert again == [verdicts[i] for i in order]
    assert verdicts == [Verdict("pass" if t == g else "fail", t) for t, g in items]
    assert len(verifier.judged) == len({repr(pair) for pair in verifier.judged}) <= len(items)


def test_distinguishes_true_from_1_but_not_key_order() -> None:
    verifier = Recording()
    golds = [True, 1, {"a": 1, "b": 2}, {"b": 2, "a": 1}]
    assert len(Judge(verifier).verify(["x"] * 4, golds)) == 4
    assert len(verifier.judged) == 3


def test_serializes_shared_gold_once() -> None:
    """The gold of a programming problem may have hundreds of megabytes of tests."""

    class Large:
        count = 0

        def __repr__(self) -> str:
            Large.count += 1
            return "large"

    gold = {"tests": Large()}
    Judge(Recording()).verify(["a", "b"], [gold] * 2)
    assert Large.count == 1


def test_exception_is_one_pairs_error() -> None:
    verdicts = Judge(Recording()).verify(["a", "bad", "b", "bad"], ["a", "x", "x", "x"])
    assert [v.status for v in verdicts] == ["pass", "error", "fail", "error"]
    assert "RuntimeError" in verdicts[1].reason
    assert "\n" not in verdicts[1].reason
    (verdict,) = Judge(Recording()).verify(["bad"], ["x"])
    assert verdict.status == "error", "a run whose other verdicts are stored judges one pair"


@pytest.mark.parametrize("gold", [float("nan"), float("inf"), ["a", float("nan")]])
def test_rejects_non_finite_golds(gold: Any) -> None:
    """Like null, it is a missing CSV cell; a document may have such fields."""
    with pytest.raises(UserError, match=r"^line 1: "):
        Judge(Recording()).check_golds([(gold, "line 1")])
    Judge(Recording()).check_golds([({"answer": "A", "other": gold}, "line 1")])


def test_reads_each_text_once_and_skips_ungenerated() -> None:
    verifier = Recording()
    texts = ["it is B", "so B", "it is B", "x \ud83d"]
    responses = [*map(build_response, texts), build_response("", CONTEXT_EXCEEDED)]
    judged = Judge(verifier).judge_responses(responses, [*"BCCCC"])
    assert [answer for _, answer in judged] == ["B", "B", "B", "\ufffd", None]
    assert len(verifier.read) == 3


def test_recorded_verdict_is_kept() -> None:
    """Its response is not judged again, but its answer is read."""
    verifier = Recording()
    texts = ["it is B", "C", "", "C"]
    responses = [build_response(text, "stop" if text else CONTEXT_EXCEEDED) for text in texts]
    timeout = Verdict("timeout", "slow")
    results = Judge(verifier).judge_responses(responses, [*"BCCC"], [timeout, None, None, None])
    assert [answer for _, answer in results] == ["B", "C", None, "C"]
    assert [verdict.status for verdict, _ in results] == ["timeout", "pass", "fail", "pass"]
    assert [text for text, _ in verifier.judged] == ["C"]
    assert verifier.read == ["it is B", "C"]


# The first responses: cut before an answer, or without an answer

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
    "half without answer": (Judge(AnswerVerifier()), [GOOD] * 5 + [SILENT] * 5, {TEMPLATE}),
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
    problems = [Problem(f"p{number}", "?", "gold") for number in range(len(generations))]
    answers = [Generated((1,), (generation,)) for generation in generations]
    text = " ".join(check_first_chunk(problems, answers, LIMITED, judge))
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
