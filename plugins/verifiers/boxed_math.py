"""``boxed_math``: compares the last box of a response with the gold answer, by math-verify."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from gapft_harness.api import (
    Closing,
    Gold,
    Outcome,
    RegisterVerifier,
    UserError,
    Verdict,
    WorkerPool,
    hookimpl,
    judge_once_each,
    last_box,
    tidy_answer,
)

#: A verdict with the answer that was judged, if any.
Judgement = tuple[Verdict, str | None]
#: Input of math-verify: gold and answer; or gold, complete response and ``anywhere``.
Pair = tuple[str, ...]

_INTEGER = re.compile(r"(-?)([0-9]+)")
_MAX_SHOWN = 60
#: Incremented when the comparison of any two answers changes, to explain verdicts that differ.
_RULES = 3


class BoxedMath(Closing):
    """The last box of the response must equal the gold answer as mathematics.

    Args:
        timeout_s: time limit of one comparison in s; a slower one gets the verdict ``timeout``.
        workers: maximum number of worker processes; default: one per core, at most 8. They start
            when first needed, and end with ``close``, at the end of a ``with`` block, or with the
            program.
        memory_bytes: address space of one worker in bytes.
        shortcuts: decide identical answers and pairs of plain integers without math-verify. If
            false, every pair with a box goes through the library.

    Raises:
        UserError: a parameter is out of range.
    """

    def __init__(
        self,
        timeout_s: float = 5.0,
        workers: int | None = None,
        memory_bytes: int = 4 << 30,
        shortcuts: bool = True,
    ) -> None:
        count = workers if workers is not None else min(8, os.cpu_count() or 1)
        for key, value in (
            ("timeout_s", timeout_s),
            ("workers", count),
            ("memory_bytes", memory_bytes),
        ):
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise UserError(f"boxed_math: {key} must be a positive number, found {value!r}")
        self._shortcuts = shortcuts
        self._pool = WorkerPool(
            "gapft_harness.api:compare_math",
            workers=int(count),
            timeout_s=timeout_s,
            memory_bytes=int(memory_bytes),
            setup="gapft_harness.api:prepare_math",
        )

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judge each response; ``golds`` are LaTeX answers (or numbers), not boxes."""
        return [verdict for verdict, _ in judge_once_each(self.judge, responses, golds)]

    def check_gold(self, gold: Gold) -> str:
        """Describe the fault of a gold answer; return ``""`` if it is valid."""
        if isinstance(gold, bool) or not isinstance(gold, str | int | float):
            return f"the gold answer is {type(gold).__name__}, expected a string"
        return "" if self.find_gold_answer(gold) else "the gold answer is empty"

    def answer(self, text: str) -> str | None:
        """Return the content of a response's last box; None if there is none, or it is empty."""
        box = last_box(text)
        return (tidy_answer(box) or None) if box is not None else None

    def describe(self) -> dict[str, Any]:
        """Return the version of the comparison rules."""
        return {"rules": _RULES}

    def close(self) -> None:
        """Stop the worker processes."""
        self._pool.close()

    def find_gold_answer(self, gold: Gold) -> str:
        """Return the answer in a gold."""
        return tidy_answer(str(gold))

    def judge(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Judgement]:
        """Return each response's verdict with the answer that was compared, if any."""
        judgements: dict[int, Judgement] = {}
        open_pairs: dict[int, Pair] = {}
        for i, (response, gold) in enumerate(zip(responses, golds, strict=True)):
            direct = self.judge_directly(response, gold)
            if isinstance(direct[0], Verdict):
                judgements[i] = direct
            else:
                open_pairs[i] = direct
        # Many responses have the same boxed answer: compare it with the gold once.
        pairs = sorted(set(open_pairs.values()))
        outcomes = dict(zip(pairs, self._pool.map(pairs), strict=True))
        for i, pair in open_pairs.items():
            judgements[i] = build_judgement(outcomes[pair], pair)
        return [judgements[i] for i in range(len(responses))]

    def judge_directly(self, response: str, gold: Gold) -> Judgement | Pair:
        """Return a verdict that needs no library, or the pair to compare."""
        if fault := self.check_gold(gold):
            return Verdict("error", fault), None
        gold_answer = self.find_gold_answer(gold)
        answer = last_box(response)
        if answer is None:
            return Verdict("fail", "no box"), None
        answer = tidy_answer(answer)
        if not answer:
            return Verdict("fail", "the last box is empty or never closed"), None
        verdict = compare_directly(gold_answer, answer) if self._shortcuts else None
        return (verdict, answer) if verdict else (gold_answer, answer)


def compare_directly(gold: str, answer: str) -> Verdict | None:
    """Compare the certain cases: equal texts, or two plain integers. Otherwise return None."""
    if gold == answer:
        return Verdict("pass")
    integers = _INTEGER.fullmatch(gold), _INTEGER.fullmatch(answer)
    if not (integers[0] and integers[1]):
        return None
    # Text, not int(): Python refuses to read more than 4,300 digits.
    signed = [(m[2].lstrip("0"), m[1] if m[2].strip("0") else "") for m in integers if m]
    return Verdict("pass") if signed[0] == signed[1] else Verdict("fail", _describe_answer(answer))


def _describe_answer(answer: str) -> str:
    return f"said {answer}" if len(answer) <= _MAX_SHOWN else f"said {answer[:_MAX_SHOWN]}…"


def build_judgement(outcome: Outcome, pair: Pair) -> Judgement:
    """Convert a worker's outcome for a pair to a verdict and an answer."""
    answer = pair[1] if len(pair) == 2 else (outcome.value or {}).get("answer")
    answer_text = "" if answer is None else _describe_answer(answer)
    if outcome.status == "done":
        status, reason = outcome.value["status"], outcome.value["reason"]
        reason = "; ".join(filter(None, (reason, answer_text)))
        return Verdict(status, "" if status == "pass" else reason), answer
    reason = "; ".join(filter(None, (outcome.reason, answer_text)))
    return Verdict("timeout" if outcome.status == "timeout" else "error", reason), answer


@hookimpl
def register_verifiers(register: RegisterVerifier) -> None:
    """Register the verifier."""
    register("boxed_math", BoxedMath, own_workers=True, permissive=lambda params: ("math", params))
