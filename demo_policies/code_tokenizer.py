r"""The programming policy's tokenizer: phrases of questions and feedback, pieces of code, numbers.

Numbers 0..99 are one token each. Phrases keep a conversation short: a question takes about 25
tokens, a program about 20 and feedback about 15. Single characters cover the rest, so any
ASCII text decodes to itself.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from demo_policies.code_problems import OPENINGS
from demo_policies.code_steps import ENDINGS, READINGS, STEPS
from demo_policies.tokenizer import phrase_tokenizer
from gapft_harness.sandbox import Test, TestResult
from gapft_harness.verification.feedback import NO_PROGRAM, failure_feedback

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

#: Three attempts take at most about 250 tokens.
CONTEXT_TOKENS: Final = 512

_CODE: Final = (
    *("```python\n", "```", *(f"{reading.code}\n" for reading in READINGS.values())),
    *("x = [v", " for v in x", " if v", "]\n", "x = x[", "x = sorted(x)"),
    *("x = list(dict.fromkeys(x))", "for i in range(", "1, len(x)", "x[i]", "x[i - 1]", "): "),
    *("while a", "if a", ": ", "a //= 2", "a, b = b, a"),
    *(" % ", " == ", " > ", " < ", " + ", " - ", " * ", " += ", " -= ", " *= ", " %= "),
    *("print(", ")\n", "sum(x)", "len(x)", "max(", "min(", "x, default=0)", "a, b)"),
)


def phrases() -> list[str]:
    """List the phrases that are single tokens, the longest first."""
    texts = {*_CODE, ", ", "\n\n", "\nExample: ", " gives ", NO_PROGRAM}
    texts |= {f"{opening}: " for opening in OPENINGS}
    texts |= {reading.words for reading in READINGS.values()}
    for kinds in STEPS.values():
        texts |= {part for kind in kinds for part in kind.words.split("{n}") if part}
    texts |= {f"{ending.words}." for endings in ENDINGS.values() for ending in endings}
    # The texts between the numbers of real feedback.
    for result in (TestResult("wrong_answer", output="4"), TestResult("runtime_error", error="4")):
        text = failure_feedback("stdin", 1, 2, Test("3", "4"), result)
        texts |= {part for part in re.split(r"\d+", text) if part}
    return sorted(texts, key=lambda phrase: (-len(phrase), phrase))


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the policy's tokenizer; see ``phrase_tokenizer``."""
    return phrase_tokenizer(phrases(), CONTEXT_TOKENS)
