"""``math``: compares the answer of a response, boxed or not, by math-verify."""

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

#: Mark before the final answer of a solution, as in GSM8K's golds.
_FINAL = "####"


class Math(BoxedMath):
    """Judges the last box, or without a box the last answer that math-verify finds in the text.

    It passes everything that ``boxed_math`` passes. A gold may be a complete solution: its answer
    is the last box, or else the text after ``####``.

    Args:
        timeout_s: time limit of one comparison in s; a slower one gets the verdict ``timeout``.
        workers: maximum number of worker processes, see ``boxed_math``.
        memory_bytes: address space of one worker in bytes.
        shortcuts: see ``boxed_math``.

    Raises:
        UserError: a parameter is out of range.
    """

    def verify_with_answers(
        self, responses: Sequence[str], golds: Sequence[Gold]
    ) -> list[tuple[Verdict, str | None]]:
        """Return the results of ``verify`` and ``answer``, reading each response once."""
        return judge_once_each(self.judge, responses, golds)

    def answer(self, text: str) -> str | None:
        """Return the content of the last box, or else the answer that math-verify finds."""
        if boxed := super().answer(text):
            return boxed
        return build_judgement(self._pool.map([("", text, "anywhere")])[0], ("", text, "anywhere"))[
            1
        ]

    def find_gold_answer(self, gold: Gold) -> str:
        """Return the answer in a gold: its last box, or the text after ``####``, or all of it."""
        text = str(gold)
        if box := last_box(text):
            return tidy_answer(box)
        return tidy_answer(text.rpartition(_FINAL)[2])

    def judge_directly(self, response: str, gold: Gold) -> Judgement | Pair:
        """Judge a box as ``boxed_math`` does; leave everything else to the library."""
        judgement = super().judge_directly(response, gold)
        box = last_box(response)
        if self.check_gold(gold) or (box and tidy_answer(box)):
            return judgement
        return self.find_gold_answer(gold), response, "anywhere"


@hookimpl
def register_verifiers(register: RegisterVerifier) -> None:
    """Register the verifier."""
    register("math", Math, own_workers=True, strict=lambda params: ("boxed_math", params))
