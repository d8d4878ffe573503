"""``math``: compares the answer of a response, boxed or not, with math-verify."""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.api import (
    Gold,
    RegisterVerifier,
    Verdict,
    hookimpl,
    judge_once_each,
    last_box,
    tidy_answer,
)
from gapft_harness.plugins.verifiers.boxed_math import BoxedMath, Judgement, Pair, build_judgement

#: The mark before the final answer of a solution in GSM8K's gold answers.
_FINAL = "####"


class Math(BoxedMath):
    """Judge the last box; without a box, the last answer that math-verify finds in the text.

    Every response that ``boxed_math`` passes also passes here. A gold answer may be a complete
    solution: its answer is the last box, or without a box the text after ``####``.

    Args:
        timeout_s: time limit of one comparison in s; a slower one gets the verdict ``timeout``.
        workers: maximum number of worker processes; see ``boxed_math``.
        memory_bytes: address space of one worker in bytes.
        shortcuts: see ``boxed_math``.

    Raises:
        UserError: a parameter is out of range.
    """

    def verify_with_answers(
        self, responses: Sequence[str], golds: Sequence[Gold]
    ) -> list[tuple[Verdict, str | None]]:
        """Return the verdict and the answer of each response; read each response once."""
        return judge_once_each(self.judge, responses, golds)

    def answer(self, text: str) -> str | None:
        """Return the content of the last box; without a box, the answer that math-verify finds."""
        if boxed := super().answer(text):
            return boxed
        pair = ("", text, "anywhere")
        _, answer = build_judgement(self._pool.map([pair])[0], pair)
        return answer

    def find_gold_answer(self, gold: Gold) -> str:
        """Return the answer in a gold: the last box, the text after ``####``, or the full text."""
        text = str(gold)
        if box := last_box(text):
            return tidy_answer(box)
        return tidy_answer(text.rpartition(_FINAL)[2])

    def judge_directly(self, response: str, gold: Gold) -> Judgement | Pair:
        """Judge a box as ``boxed_math`` does; otherwise return the response for math-verify."""
        judgement = super().judge_directly(response, gold)
        box = last_box(response)
        if self.check_gold(gold) or (box and tidy_answer(box)):
            return judgement
        return self.find_gold_answer(gold), response, "anywhere"


@hookimpl
def register_verifiers(register: RegisterVerifier) -> None:
    """Register the verifier."""
    register("math", Math, own_workers=True, strict=lambda params: ("boxed_math", params))
