r"""The programming policy's tokenizer: phrases of questions and feedback, pieces of code, numbers.

Numbers 0..99 are one token each. Phrases keep a conversation short: a question takes about 25
tokens, a program about 20 and feedback about 15. Single characters catch all else, so any
ASCII text decodes to itself.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING, Final

from gapft_harness.demo.code_problems import OPENINGS
from gapft_harness.demo.code_steps import ENDINGS, READINGS, STEPS
from gapft_harness.demo.tokenizer import BOS, EOS, PAD, UNKNOWN
from gapft_harness.program_feedback import NO_PROGRAM, failure_feedback
from gapft_harness.sandbox import Test, TestResult

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

#: Three attempts take at most about 250 tokens.
CONTEXT_TOKENS: Final = 512

_LARGEST: Final = 99
_CODE: Final = (
    *("```python\n", "```", *(f"{reading.code}\n" for reading in READINGS.values())),
    *("x = [v", " for v in x", " if v", "]\n", "x = x[", "x = sorted(x)"),
    *("x = list(dict.fromkeys(x))", "for i in range(", "1, len(x)", "x[i]", "x[i - 1]", "): "),
    *("while a", "if a", ": ", "a //= 2", "a, b = b, a"),
    *(" % ", " == ", " > ", " < ", " + ", " - ", " * ", " += ", " -= ", " *= ", " %= "),
    *("print(", ")\n", "sum(x)", "len(x)", "max(", "min(", "x, default=0)", "a, b)"),
)


def phrases() -> list[str]:
    """The phrases with a token of their own, the longest first."""
    found = {*_CODE, ", ", "\n\n", "\nExample: ", " gives ", NO_PROGRAM}
    found |= {f"{opening}: " for opening in OPENINGS}
    found |= {reading.words for reading in READINGS.values()}
    for kinds in STEPS.values():
        found |= {part for kind in kinds for part in kind.words.split("{n}") if part}
    found |= {f"{ending.words}." for endings in ENDINGS.values() for ending in endings}
    # Whatever stands between the numbers of real feedback.
    for told in (TestResult("wrong_answer", output="4"), TestResult("runtime_error", error="4")):
        text = failure_feedback("stdin", 1, 2, Test("3", "4"), told)
        found |= {part for part in re.split(r"\d+", text) if part}
    return sorted(found, key=lambda phrase: (-len(phrase), phrase))


def build_tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer, padded on the left, that adds no token of its own to a text.

    No start token is added: a text is exactly its own tokens, ``decode(encode(text))`` is
    the text, and a prompt with a response has the tokens of both, one after the other.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = phrases()
    numbers = [str(number) for number in range(_LARGEST + 1)]
    characters = [*string.ascii_letters, *string.punctuation, " ", "\n"]
    words = list(dict.fromkeys([PAD, BOS, EOS, UNKNOWN, *known, *numbers, *characters]))
    tokenizer = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN)
    )
    alternatives = "|".join(_escape(phrase) for phrase in known)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(rf"{alternatives}|[1-9][0-9]|[\s\S]"), behavior="isolated"
    )
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNKNOWN,
        padding_side="left",
        model_max_length=CONTEXT_TOKENS,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


def _escape(phrase: str) -> str:
    """A phrase as a regular expression; ``re.escape`` writes spaces in a way Oniguruma may not."""
    return "".join(c if c.isalnum() or c in " \n,:;`" else f"\\{c}" for c in phrase)
