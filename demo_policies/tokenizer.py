r"""The demo policy's tokenizer: words, whole numbers, and every printable ASCII character.

Numbers 0..99 are one token each and so are the phrases of the task, which keeps a response
within 28 tokens. Single characters catch all else, so any ASCII text decodes to itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from demo_policies.phrase_tokenizer import phrase_tokenizer
from demo_policies.problems import SHORTCUT_OPENING, VERBS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

#: Longest prompt with its response, with room for a few worked examples before it.
CONTEXT_TOKENS: Final = 256

_PHRASES: Final = (*VERBS, SHORTCUT_OPENING, r"\boxed{", "; ", " +", " -", " *")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The policy's tokenizer; see ``phrase_tokenizer``."""
    return phrase_tokenizer(_PHRASES, CONTEXT_TOKENS)
