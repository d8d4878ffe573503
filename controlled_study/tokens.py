"""The study's tokenizer: a token a character, but for the families' names and the box."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from controlled_study.families import BY_NAME, Problem
from demo_policies.tokenizer import phrase_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

#: Longest prompt with its response, and some room.
CONTEXT: Final = 96
#: The longest worked response has 29 tokens and the end token.
MAX_NEW_TOKENS: Final = 36
#: The longest worked example, padded.
WIDTH: Final = 56
_BOX: Final = r"\boxed{"


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, padded on the left."""
    return phrase_tokenizer((*BY_NAME, _BOX), CONTEXT, largest=9)


@cache
def _vocabulary() -> dict[str, int]:
    return dict(tokenizer().get_vocab())


def prompt_ids(problem: Problem) -> list[int]:
    """What the tokenizer makes of the question, ten times faster."""
    ids = _vocabulary()
    return [ids[problem.family], *(ids[c] for c in f" {problem.body}=")]


def response_ids(problem: Problem) -> list[int]:
    """What it makes of the worked response, without an end token."""
    ids = _vocabulary()
    steps = (ids[c] for step in problem.steps for c in f"{step};")
    return [*steps, ids[_BOX], *(ids[c] for c in problem.answer), ids["}"]]
