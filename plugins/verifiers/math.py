"""``math``: the answer that a response gives, in a box or out of one, compared by math-verify."""

from __future__ import annotations

from collections.abc import Sequence

from gapft_harness.api import (
    Gold,
    RegisterVerifier,
    Verdict,
    hookimpl,
    last_box,
    once_each,
    tidy_answer,
)
from gapft_harness.plugins.verifiers.boxed_math import BoxedMath, Judged, Pair, judged

#: What stands before the final answer of a solution, as GSM8K's golds have it.
_FINAL = "####"


class Math(BoxedMath):
    """The answer of the last box, or without one the last that math-verify finds in the text.

    What ``boxed_math`` passes, it passes too. A gold answer may be a whole solution: of one with a
    box the box counts, of one with ``####`` what follows.

    Args:
        timeout_s: seconds for one comparison; what takes longer gets ``timeout``.
        workers: most worker processes, as of ``boxed_math``.
        memory_bytes: address space of one worker.
        shortcuts: as of ``boxed_math``.

    Raises:
        UserError: a parameter is out of range.
    """

    def verify_with_answers(
        self, responses: Sequence[str], golds: Sequence[Gold]
    ) -> list[tuple[Verdict, str | None]]:
        """What ``verify`` and ``answer`` give, each response read once."""
        return once_each(self.judge, responses, golds)

    def answer(self, text: str) -> str | None:
        """What a response says in its last box, or else what math-verify finds in it."""
        if boxed := super().answer(text):
            return boxed
        return judged(self._pool.map([("", text, "anywhere")])[0], ("", text, "anywhere"))[1]

    def wanted(self, gold: Gold) -> str:
        """The answer of a gold: its last box, or what follows ``####``, or all of it."""
        text = str(gold)
        if box := last_box(text):
            return tidy_answer(box)
        return tidy_answer(text.rpartition(_FINAL)[2])

    def settle(self, response: str, gold: Gold) -> Judged | Pair:
        """A box is judged as ``boxed_math`` does; all else is read by the library."""
        settled = super().settle(response, gold)
        box = last_box(response)
        if self.check_gold(gold) or (box and tidy_answer(box)):
            return settled
        return self.wanted(gold), response, "anywhere"


@hookimpl
def register_verifiers(register: RegisterVerifier) -> None:
    """Registers it."""
    register("math", Math, own_workers=True, strict=lambda of: ("boxed_math", of))
