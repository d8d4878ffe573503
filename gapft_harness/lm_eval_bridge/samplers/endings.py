"""Find where a response ends: end tokens, stop strings, and the model's generation_config."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import STOP_STRING
from gapft_harness.core.thoughts import opens_thought, scan_thoughts
from gapft_harness.core.turn_end import find_turn_end
from gapft_harness.hooks.protocols import Generated, Generation, SamplerSettings

#: Entries of a model's generation_config that do not affect how tokens are drawn.
_HARMLESS_ENTRIES = frozenset({"transformers_version", "_from_model_config", "use_cache"})
_KEPT_ENTRIES = frozenset({"cache_implementation", "cache_config"})
#: Entries that a decoding sets itself, or that only limit the length.
_DECODING_ENTRIES = frozenset(
    {"do_sample", "temperature", "top_p", "top_k", "max_length", "max_new_tokens"}
)


def find_end_ids(tokenizer: Any, own: Iterable[int], until: Iterable[str]) -> list[int]:
    """Return the sorted ids that end a response.

    These are the model's own end tokens, and stop strings that are a single special token: lm-eval
    cuts the text after special tokens were removed, so it would never find these.

    Args:
        tokenizer: the model's tokenizer.
        own: the tokenizer's end of sequence, those of the model's generation_config, and the
            result of ``find_turn_end_ids``.
        until: stop strings.
    """
    special = {
        str(token): number
        for number, token in tokenizer.added_tokens_decoder.items()
        if token.special
    }
    return sorted({*own, *(special[stop] for stop in until if stop in special)})


def find_turn_end_ids(tokenizer: Any, settings: SamplerSettings) -> frozenset[int]:
    """Return the id that ends an assistant turn, which training appends to responses.

    Empty if prompts do not use a chat template, or the template has no such token.

    Raises:
        UserError: the template raises.
    """
    if not settings.chat_template or tokenizer.chat_template is None:
        return frozenset()
    end = find_turn_end(tokenizer, settings.model_args.get("chat_template_args"))
    return frozenset() if end.token is None else frozenset([end.token])


def require_end_ids(tokenizer: Any, ends: Collection[int], name: str) -> None:
    """Refuse a model without an end token.

    Args:
        tokenizer: the model's tokenizer.
        ends: the end tokens that were found.
        name: the model's name.

    Raises:
        UserError: there are none, or the tokenizer has no eos_token.
    """
    if not ends or tokenizer.eos_token_id is None:
        raise UserError(
            f"model.args: pretrained: the tokenizer of {name!r} has no end token (eos_token), so "
            "no response would end before max_gen_toks; add the model's end token to "
            "tokenizer_config.json, or set model.args.tokenizer to a tokenizer that has it"
        )


def ids_of_text(ids: Sequence[int], text: str, decode: Callable[[Sequence[int]], str]) -> list[int]:
    """Return the shortest prefix of ``ids`` that decodes to a text beginning with ``text``.

    If the last token contains both the end of the text and the start of the stop string, it is
    kept. The search is by bisection: a longer prefix still begins with the text of a shorter one.
    """
    low = 0
    high = len(ids)
    while low < high:
        middle = (low + high) // 2
        if decode(ids[:middle]).startswith(text):
            high = middle
        else:
            low = middle + 1
    return list(ids[:low])


def cut_response(
    ids: Sequence[int],
    ends: Collection[int],
    stops: Sequence[str],
    decode: Callable[[Sequence[int]], str],
) -> Generation:
    """Build a response from generated ids, cut at an end token or a stop string.

    Args:
        ids: all generated ids; those after an end token are ignored.
        ends: end tokens.
        stops: stop strings; lm-eval cuts a text at the first occurrence of each, one by one.
        decode: returns the text of ids without special tokens.
    """
    from lm_eval.models.utils import postprocess_generated_text

    end = next((place for place, token in enumerate(ids) if token in ends), None)
    response_ids = list(ids[:end])
    full_text = decode(response_ids)
    text = postprocess_generated_text(full_text, list(stops), None)
    if len(text) < len(full_text):
        stop = next((stop for stop in stops if full_text.startswith(stop, len(text))), "")
        ids = tuple(ids_of_text(response_ids, text, decode))
        return Generation(text, ids, STOP_STRING, stop_string=stop)
    return Generation(text, tuple(response_ids), "length" if end is None else "stop")


def build_generated(
    prompt_ids: Sequence[int], prompt: str, generations: Iterable[Generation]
) -> Generated:
    """Build the result of one request; a response that is only reasoning has an empty text.

    If the prompt opened a reasoning block that a response does not close, no tag in its text shows
    that it has no answer: the text is put apart, as servers do.

    Args:
        prompt_ids: the token ids of the prompt.
        prompt: its rendered text; empty if it is not known.
        generations: the responses.
    """
    is_open = opens_thought(prompt)
    return Generated(
        tuple(prompt_ids),
        tuple(
            replace(response, text="", reasoning=response.text)
            if is_open and not scan_thoughts(response.text).is_closed
            else response
            for response in generations
        ),
    )


def split_generation_config(own: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide a model's generation_config into entries that are kept and entries that are ignored.

    Transformers applies these entries by default, for example a repetition penalty even in greedy
    decodes. A run depends only on its recipe, so only token ids and the kind of cache are kept.

    Returns:
        The kept entries, and the ignored ones that no decoding sets, by name.
    """
    kept_entries = {
        key: own[key] for key in own if key.endswith("_token_id") or key in _KEPT_ENTRIES
    }
    harmless = kept_entries.keys() | _HARMLESS_ENTRIES | _DECODING_ENTRIES
    ignored = {key: own[key] for key in own if key not in harmless and not _is_neutral(own[key])}
    return kept_entries, ignored


def format_ignored_entries(pretrained: str, ignored: Mapping[str, Any]) -> str:
    """Format the warning about ignored entries."""
    entries = ", ".join(f"{key}={value}" for key, value in sorted(ignored.items()))
    remark = (
        "; Transformers and lm_eval --model hf apply the penalty, also to greedy decodes, so their "
        "figures can differ"
        if "repetition_penalty" in ignored
        else ""
    )
    return (
        f"{pretrained}: ignored {entries} of its generation_config: only the recipe decides how "
        f"responses are decoded{remark}"
    )


def _is_neutral(value: Any) -> bool:
    """Return whether a value disables its option: penalties and limits are off at 0 or 1."""
    return value is None or value is False or (value is not True and value in (0, 1))
