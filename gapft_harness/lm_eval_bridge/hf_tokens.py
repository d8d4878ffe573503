"""Exact token ids from lm-eval's Hugging Face model, taken below ``generate_until``.

``generate_until`` returns text alone. Nothing of it is rewritten here: a subclass looks at what
passes through four of its own calls (lm_eval 0.4.13, ``models/huggingface.py``). In each batch
they come in this order: ``tok_batch_encode``, ``_model_generate``, then for every row
``tok_decode`` and ``cache_hook.add_partial``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lm_eval.models.huggingface import HFLM
from transformers import GenerationConfig

#: Entries of a model's generation_config that say nothing of how tokens are drawn.
_HARMLESS = frozenset({"transformers_version", "_from_model_config", "use_cache"})
_KEPT = frozenset({"cache_implementation", "cache_config"})
#: Entries that a decoding sets itself, or that concern length alone.
_OF_DECODING = frozenset(
    {"do_sample", "temperature", "top_p", "top_k", "max_length", "max_new_tokens"}
)


class PromptLengthError(Exception):
    """A prompt that does not fit the model beside the new tokens, or that has no token at all."""

    def __init__(self, prompt: str, length: int, room: int) -> None:
        """Notes the rendered prompt, its length and the room for it, both in tokens."""
        super().__init__(f"a prompt of {length} tokens does not fit into {room}")
        self.prompt = prompt
        self.length = length
        self.room = room


@dataclass(frozen=True, slots=True)
class Row:
    """One row of one batch: what went in, what came out.

    Attributes:
        prompt_ids: the ids the model saw, padding removed.
        token_ids: the ids that make up ``text``; see ``ids_of_text``.
        text: what ``generate_until`` returned for it.
        finish_reason: ``stop`` or ``length``.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str


class TokenHFLM(HFLM):  # type: ignore[misc]  # lm_eval is untyped
    """``HFLM`` that keeps the token ids of every response; created with the same arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._known_ids: dict[str, list[int]] = {}
        self._batch: deque[tuple[tuple[int, ...], list[int]]] = deque()
        self._decoded = ""
        self._batch_size_found: int | None = None
        self._end_ids: frozenset[int] = frozenset()
        self._rows: dict[str, deque[Row]] = {}
        super().__init__(*args, **kwargs)
        self.own_end_ids = _as_ids(self.model.generation_config.eos_token_id) | _as_ids(
            self.tokenizer.eos_token_id
        )
        self.ignored_generation_config = neutralise_generation_config(self.model)
        self.cache_hook = self

    def end_ids(self, until: Iterable[str]) -> list[int]:
        """The ids that end a response, sorted.

        They are the tokenizer's end of sequence, those of the model's generation_config, and
        every stop string that is one special token: lm-eval cuts the text after special tokens
        have been dropped from it, and so would never find that one.
        """
        special = {
            str(token): number
            for number, token in self.tokenizer.added_tokens_decoder.items()
            if token.special
        }
        return sorted(self.own_end_ids | {special[stop] for stop in until if stop in special})

    def collect(self, requests: Sequence[Any]) -> list[Row]:
        """Generates, and gives one row per request, in order.

        Equal prompts are told apart by their order alone: lm-eval's sort by length is stable, so
        the j-th row of a prompt answers the j-th request that has it.

        Raises:
            PromptLengthError: a prompt would have been truncated, or is empty.
        """
        self._batch.clear()
        self._rows.clear()
        try:
            texts = self.generate_until(requests, disable_tqdm=True)
        finally:
            self._known_ids.clear()
        rows = [self._rows[request.args[0]].popleft() for request in requests]
        self._rows.clear()
        if [row.text for row in rows] != texts:
            raise RuntimeError(
                "lm_eval returned its responses in another order than it generated them; "
                "this version of lm_eval is not supported"
            )
        return rows

    def prompt_length(self, prompt: str) -> int:
        """Tokens of a rendered prompt. Its ids are kept until the next ``collect``."""
        return len(self.tok_encode(prompt))

    def tok_encode(self, string: str, *args: Any, **kwargs: Any) -> list[int]:
        """Encodes as ``HFLM`` does; a prompt repeated K times is encoded once."""
        if args or kwargs:
            ids: list[int] = super().tok_encode(string, *args, **kwargs)
            return ids
        known = self._known_ids.get(string)
        if known is None:
            known = self._known_ids[string] = super().tok_encode(string)
        return known

    def tok_batch_encode(
        self,
        strings: Sequence[str],
        padding_side: str = "left",
        left_truncate_len: int | None = None,
        truncation: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Encodes as ``HFLM`` does, but refuses where that would cut a prompt in silence.

        Returns:
            Ids and attention mask, each of shape (prompts, longest prompt).

        Raises:
            PromptLengthError: see there.
        """
        ids, mask = super().tok_batch_encode(list(strings), padding_side=padding_side)
        lengths = mask.sum(dim=1).tolist()
        limit = left_truncate_len or self.max_length
        for prompt, length in zip(strings, lengths, strict=True):
            if not 0 < length <= limit:
                raise PromptLengthError(prompt, length, limit)
        return ids, mask

    def tok_decode(self, tokens: Any, skip_special_tokens: bool = True) -> str:
        """Decodes as ``HFLM`` does, and keeps the text that stop strings have not cut yet."""
        self._decoded = super().tok_decode(tokens, skip_special_tokens=skip_special_tokens)
        return self._decoded

    def _model_generate(
        self, context: torch.Tensor, max_length: int, stop: list[str], **generation_kwargs: Any
    ) -> torch.Tensor:
        output: torch.Tensor = super()._model_generate(
            context, max_length, stop, **generation_kwargs
        )
        self._end_ids = frozenset(generation_kwargs["eos_token_id"])
        width = context.shape[1]
        lengths = generation_kwargs["attention_mask"].sum(dim=1).tolist()
        for row, length in zip(output.tolist(), lengths, strict=True):
            self._batch.append((tuple(row[width - length : width]), row[width:]))
        return output

    def add_partial(self, attr: str, request: tuple[str, dict[str, Any]], text: str) -> None:
        """Called by ``generate_until`` as its cache hook, once per row, in the batch's order."""
        prompt_ids, generated = self._batch.popleft()
        end = next((i for i, token in enumerate(generated) if token in self._end_ids), None)
        ids = generated[:end]
        cut = len(text) < len(self._decoded)
        row = Row(
            prompt_ids,
            tuple(self.ids_of_text(ids, text) if cut else ids),
            text,
            "stop" if cut or end is not None else "length",
        )
        self._rows.setdefault(request[0], deque()).append(row)

    def ids_of_text(self, ids: list[int], text: str) -> list[int]:
        """The shortest prefix of ``ids`` that decodes to a text beginning with ``text``.

        Where the last token holds both the end of the text and the start of the stop string, it
        is kept whole. Found by bisection: a longer prefix still begins with what a shorter one
        did.
        """
        low, high = 0, len(ids)
        while low < high:
            middle = (low + high) // 2
            if super().tok_decode(ids[:middle]).startswith(text):
                high = middle
            else:
                low = middle + 1
        return ids[:low]

    def _detect_batch_size(self, requests: Any = None, pos: int = 0) -> int:
        """Detects once per model: ``generate_until`` asks again at every call."""
        if requests is not None:
            return int(super()._detect_batch_size(requests, pos))
        if self._batch_size_found is None:
            self._batch_size_found = int(super()._detect_batch_size())
        return self._batch_size_found


def neutralise_generation_config(model: Any) -> dict[str, Any]:
    """Replaces a model's generation_config by one that leaves all sampling to the decoding.

    Model folders ship entries that transformers applies unasked, a repetition penalty even to
    greedy decodes. A run depends on its recipe alone, so only token ids and the cache's kind are
    kept.

    Returns:
        The entries that were dropped and that no decoding sets, by name.
    """
    own = model.generation_config.to_diff_dict()
    kept = {key: own[key] for key in own if key.endswith("_token_id") or key in _KEPT}
    model.generation_config = GenerationConfig(**kept)
    harmless = kept.keys() | _HARMLESS | _OF_DECODING
    return {key: own[key] for key in own if key not in harmless and not _is_neutral(own[key])}


def _is_neutral(value: Any) -> bool:
    """Whether a value switches its option off: every penalty, width or cut is off at 0 or 1."""
    return value is None or value is False or (value is not True and value in (0, 1))


def _as_ids(value: int | list[int] | None) -> frozenset[int]:
    if value is None:
        return frozenset()
    return frozenset([value] if isinstance(value, int) else value)
