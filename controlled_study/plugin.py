r"""What the study adds to the harness: a verifier of exact answers, and worked gold answers.

``gapft run RECIPE --plugin controlled_study/plugin.py`` gives them to a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gapft_harness.api import (
    Evidence,
    Gold,
    Pool,
    RegisterSelector,
    RegisterVerifier,
    Response,
    Stream,
    Verdict,
    hookimpl,
    last_box,
    once_each,
)


class ExactBox:
    r"""A response passes if its last ``\boxed{}`` holds the gold answer, letter for letter."""

    def verify(self, responses: Sequence[str], golds: Sequence[Gold]) -> list[Verdict]:
        """Judges each response; each gold is the answer's text."""
        return once_each(
            lambda texts, answers: [
                Verdict("pass") if last_box(text) == answer else Verdict("fail", "another answer")
                for text, answer in zip(texts, answers, strict=True)
            ],
            responses,
            golds,
        )

    def check_gold(self, gold: Gold) -> str:
        """What is wrong with a gold answer, or ``""``."""
        return "" if isinstance(gold, str) else f"is {type(gold).__name__}, expected a text"

    def answer(self, text: str) -> str | None:
        """The content of the last box."""
        return last_box(text)


def worked_gold(pool: Pool, n: int, rng: Stream) -> Sequence[Evidence]:
    """Gold labels: failures that search missed (U), each with its worked solution."""
    return [
        replace(
            missed,
            response=Response(
                missed.problem_id,
                0,
                str(missed.document["solution"]),
                tuple(missed.document["solution_ids"]),
                "stop",
                rng.seed,
            ),
        )
        for missed in pool.draw(pool.missed, n, rng)
    ]


@hookimpl
def register_verifiers(register: RegisterVerifier) -> None:
    """Registers the verifier."""
    register("exact_box", ExactBox)


@hookimpl
def register_selectors(register: RegisterSelector) -> None:
    """Registers the selector."""
    register("worked_gold", worked_gold, gold=True)
