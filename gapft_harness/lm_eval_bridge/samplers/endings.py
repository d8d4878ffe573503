"""Where a response ends: end tokens, stop strings, and what a model folder says of generation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import STOP_STRING
from gapft_harness.core.turn_end import find_turn_end
from gapft_harness.hooks.protocols import Generation, SamplerSettings

#: Entries of a model's generation_config that say nothing of how tokens are drawn.
_HARMLESS = frozenset({"transformers_version", "_from_model_config", "use_cache"})
_KEPT = frozenset({"cache_implementation", "cache_config"})
#: Entries that a decoding sets itself, or that concern length alone.
_OF_DECODING = frozenset(
    {"do_sample", "temperature", "top_p", "top_k", "max_length", "max_new_tokens"}
)


def end_ids(tokenizer: Any, own: Iterable[int], until: Iterable[str]) -> list[int]:
    """The ids that end a response, sorted.

    They are the model's own, and every stop string that is one special token: lm-eval cuts the
    text after special tokens have been dropped from it, and so would never find that one.

    Args:
        own: the tokenizer's end of sequence, those of the model's generation_config, and
            ``turn_ends``.
    """
    special = {
        str(token): number
        for number, token in tokenizer.added_tokens_decoder.items()
        if token.special
    }
    return sorted({*own, *(special[stop] for stop in until if stop in special)})


def turn_ends(tokenizer: Any, settings: SamplerSettings) -> frozenset[int]:
    """Return the id that ends an assistant's turn, which training adds to responses.

    Nothing where prompts are not rendered through a chat template, or it has no such token.

    Raises:
        UserError: the template raises.
    """
    if not settings.chat_template or tokenizer.chat_template is None:
        return frozenset()
    end = find_turn_end(tokenizer, settings.model_args.get("chat_template_args"))
    return frozenset() if end.token is None else frozenset([end.token])


def require_ends(tokenizer: Any, ends: Collection[int], name: str) -> None:
    """Refuse a model that nothing tells where a response ends.

    Args:
        ends: the end tokens that were found.
        name: the model's.

    Raises:
        UserError: there are none.
    """
    if not ends or tokenizer.eos_token_id is None:
        raise UserError(
            f"model.args: pretrained: the tokenizer of {name!r} names no end token (eos_token), so "
            "no response would end by itself; add the token that the model writes at its end to "
            "tokenizer_config.json, or give a tokenizer that has it (model.args.tokenizer)"
        )


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


def finished(
    ids: Sequence[int],
    ends: Collection[int],
    stops: Sequence[str],
    decode: Callable[[Sequence[int]], str],
) -> Generation:
    """Make a response of generated ids: what an end token or a stop string ends is cut off.

    Args:
        ids: all that was generated; what follows an end token does not count.
        ends: end tokens.
        stops: stop strings; lm-eval cuts a text at the first of each, one after another.
        decode: gives the text of ids, special tokens left out.
    """
    from lm_eval.models.utils import postprocess_generated_text

    end = next((place for place, token in enumerate(ids) if token in ends), None)
    own = list(ids[:end])
    whole = decode(own)
    text = postprocess_generated_text(whole, list(stops), None)
    if len(text) < len(whole):
        stop = next((stop for stop in stops if whole.startswith(stop, len(text))), "")
        ids = tuple(ids_of_text(own, text, decode))
        return Generation(text, ids, STOP_STRING, stop_string=stop)
    return Generation(text, tuple(own), "length" if end is None else "stop")


def split_generation_config(own: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divides what a model's generation_config says: what is kept, and what is ignored.

    Model folders ship entries that transformers applies unasked, a repetition penalty even to
    greedy decodes. A run depends on its recipe alone, so only token ids and the cache's kind are
    kept.

    Returns:
        The entries kept, and those dropped that no decoding sets, by name.
    """
    kept = {key: own[key] for key in own if key.endswith("_token_id") or key in _KEPT}
    harmless = kept.keys() | _HARMLESS | _OF_DECODING
    ignored = {key: own[key] for key in own if key not in harmless and not _is_neutral(own[key])}
    return kept, ignored


def ignored_message(pretrained: str, ignored: Mapping[str, Any]) -> str:
    """A warning that names the entries dropped."""
    entries = ", ".join(f"{key}={value!r}" for key, value in sorted(ignored.items()))
    return (
        f"{pretrained}: its generation_config sets {entries}; ignored, since the recipe alone "
        "decides how responses are decoded"
    )


def as_ids(value: int | Sequence[int] | None) -> frozenset[int]:
    """Token ids as transformers' configs hold them: one, several or none."""
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, int) else value)


def _is_neutral(value: Any) -> bool:
    """Whether a value switches its option off: every penalty, width or cut is off at 0 or 1."""
    return value is None or value is False or (value is not True and value in (0, 1))
