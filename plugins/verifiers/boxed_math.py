"""``boxed_math`` and ``math``: compare the answer of a response with the gold answer exactly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gapft_harness.api import (
    Gold,
    Register,
    Verdict,
    WorkerPool,
    hookimpl,
)
from gapft_harness.core.processes import Closing
from gapft_harness.verification.mathematics.notation import tidy_answer
from gapft_harness.verification.mathematics.responses import find_boxed_answer, find_written_answer
from gapft_harness.verification.pool import Count, Outcome, Seconds
from gapft_harness.verification.reasons import show_answer

_INTEGER = re.compile(r"(-?)([0-9]+)")
#: Incremented when answers are read or compared differently, to explain verdicts that differ.
_RULES = 11
#: The mark before the final answer of a solution in GSM8K's gold answers.
_FINAL = "####"


class BoxedMath(Closing):
    """The last box of the response must equal the gold answer as mathematics.

    Boxes that "or", "and" or a comma joins are one list.

    Args:
        timeout_s: time limit of one comparison in s; a slower one gets the verdict ``timeout``.
        workers: maximum number of worker processes; default: one per core, at most 8. They start
            when first needed, and end with ``close``, at the end of a ``with`` block, or with the
            program.
        memory_bytes: address space of one worker in bytes.
    """

    def __init__(
        self,
        timeout_s: Seconds = 5.0,
        workers: Count | None = None,
        memory_bytes: Count = 4 << 30,
    ) -> None:
        self._pool = WorkerPool(
            "gapft_harness.verification.mathematics.comparing:compare_answers",
            workers=workers,
            timeout_s=timeout_s,
            memory_bytes=memory_bytes,
            setup="gapft_harness.verification.mathematics.comparing:prepare_math",
        )

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judge each response; ``golds`` are LaTeX answers (or numbers), not boxes."""
        verdicts: dict[int, Verdict] = {}
        open_pairs: dict[int, tuple[str, str]] = {}
        for i, (response, gold) in enumerate(zip(responses, golds, strict=True)):
            if fault := self.check_gold(gold):
                verdicts[i] = Verdict("error", fault)
                continue
            answer = self.answer(response)
            if answer is None:
                verdicts[i] = Verdict("fail", self.describe_missing(response))
                continue
            gold_answer = self.find_gold_answer(gold)
            verdict = compare_directly(gold_answer, answer)
            if verdict:
                verdicts[i] = verdict
            else:
                open_pairs[i] = gold_answer, answer
        # Many responses have the same answer: compare it with the gold once.
        pairs = sorted(set(open_pairs.values()))
        outcomes = dict(zip(pairs, self._pool.map(pairs), strict=True))
        for i, pair in open_pairs.items():
            verdicts[i] = _make_verdict(outcomes[pair], pair[1])
        return [verdicts[i] for i in range(len(responses))]

    def check_gold(self, gold: Gold) -> str:
        """Describe the fault of a gold answer; return ``""`` if it is valid."""
        if isinstance(gold, bool) or not isinstance(gold, str | int | float):
            return f"the gold answer is {type(gold).__name__}, expected a string"
        answer = self.find_gold_answer(gold)
        if not answer:
            return "the gold answer is empty"
        if _INTEGER.fullmatch(answer):
            return ""
        # Imported here: it imports sympy, which would delay every command.
        from gapft_harness.verification.mathematics.comparing import find_gold_fault

        fault = find_gold_fault(answer)
        return f"the gold answer {answer!r:.80} cannot be read: {fault}" if fault else ""

    def answer(self, text: str) -> str | None:
        """Return the content of a response's last box; None if there is none, or it is empty."""
        return find_boxed_answer(text) or None

    def describe(self) -> dict[str, Any]:
        """Return the version of the comparison rules."""
        return {"rules": _RULES}

    def close(self) -> None:
        """Stop the worker processes."""
        self._pool.close()

    def find_gold_answer(self, gold: Gold) -> str:
        """Return the answer in a gold."""
        return tidy_answer(str(gold))

    def describe_missing(self, text: str) -> str:
        """Describe why a response has no answer."""
        return (
            "no box" if find_boxed_answer(text) is None else "the last box is empty or never closed"
        )


class Math(BoxedMath):
    """Judge the last box; without a box, the answer that the words of the response state.

    Every response that ``boxed_math`` passes also passes here. A gold answer may be a complete
    solution: its answer is the last box, or without a box the text after ``####``. The arguments
    are those of ``boxed_math``.
    """

    def answer(self, text: str) -> str | None:
        """Return the content of the last box; without a box, the answer that the text states."""
        return super().answer(text) or find_written_answer(text)

    def find_gold_answer(self, gold: Gold) -> str:
        """Return the answer in a gold: the last box, the text after ``####``, or the full text."""
        text = str(gold)
        return find_boxed_answer(text) or tidy_answer(text.rpartition(_FINAL)[2])

    def describe_missing(self, text: str) -> str:
        """Describe why a response has no answer."""
        return "no answer found"


def compare_directly(gold: str, answer: str) -> Verdict | None:
    """Compare the certain cases: equal texts, or two plain integers. Otherwise return None."""
    if gold == answer:
        return Verdict("pass")
    integers = _INTEGER.fullmatch(gold), _INTEGER.fullmatch(answer)
    if not (integers[0] and integers[1]):
        return None
    # Text, not int(): Python refuses to read more than 4,300 digits.
    signed = [(m[2].lstrip("0"), m[1] if m[2].strip("0") else "") for m in integers if m]
    return Verdict("pass") if signed[0] == signed[1] else Verdict("fail", show_answer(answer))


def _make_verdict(outcome: Outcome, answer: str) -> Verdict:
    """Convert a worker's outcome for an answer to a verdict."""
    said = show_answer(answer)
    if outcome.status == "done":
        return Verdict("pass") if outcome.value else Verdict("fail", said)
    reason = f"{outcome.reason}; {said}"
    return Verdict("timeout" if outcome.status == "timeout" else "error", reason)


@hookimpl
def register_verifiers(register: Register) -> None:
    """Register the verifiers."""
    register("boxed_math", BoxedMath, permissive=lambda params: ("math", params))
    register("math", Math, strict=lambda params: ("boxed_math", params))
