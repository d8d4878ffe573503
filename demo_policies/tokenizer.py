r"""The demo policies' tokenizers: words, whole numbers, and every printable ASCII character.

``phrase_tokenizer`` builds all tokenizers, and ``build_tokenizer`` that of the arithmetic policy,
whose phrases keep a response within 28 tokens. Single characters cover the rest, so any ASCII text
decodes to itself.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from demo_policies.problems import SHORTCUT_OPENING, VERBS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

#: Enough for the longest prompt and response after a few worked examples.
CONTEXT_TOKENS: Final = 256

_PHRASES: Final = (*VERBS, SHORTCUT_OPENING, r"\boxed{", "; ", " +", " -", " *")

PAD, BOS, EOS, UNKNOWN = "<pad>", "<s>", "</s>", "<unk>"
#: The largest number that is one token.
LARGEST_NUMBER: Final = 99


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the arithmetic policy's tokenizer."""
    return phrase_tokenizer(_PHRASES, CONTEXT_TOKENS)


def phrase_tokenizer(
    phrases: Sequence[str], context: int, largest: int = LARGEST_NUMBER
) -> PreTrainedTokenizerFast:
    """Build a tokenizer that pads on the left and adds no special token to a text.

    So ``decode(encode(text))`` is the text, and a prompt with a response has the tokens of the
    prompt followed by those of the response.

    Args:
        phrases: one token each, in the order of the vocabulary; the longest match applies.
            Integers and every printable ASCII character follow them.
        context: the model's longest text in tokens.
        largest: the largest number that is one token: 99, or 9 for single digits.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    numbers = [str(number) for number in range(largest + 1)]
    characters = [*string.ascii_letters, *string.punctuation, " ", "\n"]
    words = dict.fromkeys([PAD, BOS, EOS, UNKNOWN, *phrases, *numbers, *characters])
    tokenizer = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(words)}, unk_token=UNKNOWN)
    )
    # Phrases before single characters, the longest first; a two-digit number has no leading 0.
    alternatives = "|".join(_escape(phrase) for phrase in sorted(phrases, key=len, reverse=True))
    pair = "|[1-9][0-9]" if largest > 9 else ""
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        Regex(rf"{alternatives}{pair}|[\s\S]"), behavior="isolated"
    )
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        unk_token=UNKNOWN,
        padding_side="left",
        model_max_length=context,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )


def _escape(phrase: str) -> str:
    """Escape a phrase for Oniguruma, which may not accept the spaces of ``re.escape``."""
    return "".join(c if c.isalnum() or c in " \n,:;`" else f"\\{c}" for c in phrase)
