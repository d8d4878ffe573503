"""Where a response ends: end tokens, stop strings, and what a model folder says of generation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any


def end_ids(tokenizer: Any, own: Iterable[int], until: Iterable[str]) -> list[int]:
    """The ids that end a response, sorted.

    They are the model's own, and every stop string that is one special token: lm-eval cuts the
    text after special tokens have been dropped from it, and so would never find that one.

    Args:
        tokenizer: of transformers.
        own: the tokenizer's end of sequence and those of the model's generation_config.
        until: stop strings.
    """
    special = {
        str(token): number
        for number, token in tokenizer.added_tokens_decoder.items()
        if token.special
    }
    return sorted({*own, *(special[stop] for stop in until if stop in special)})


def ids_of_text(ids: Sequence[int], text: str, decode: Callable[[Sequence[int]], str]) -> list[int]:
    """The shortest prefix of ``ids`` that decodes to a text beginning with ``text``.

    Where the last token holds both the end of the text and the start of the stop string, it is
    kept whole. Found by bisection: a longer prefix still begins with what a shorter one did.
    """
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        if decode(ids[:middle]).startswith(text):
            high = middle
        else:
            low = middle + 1
    return list(ids[:low])
