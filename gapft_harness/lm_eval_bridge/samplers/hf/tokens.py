"""Exact token ids from lm-eval's Hugging Face model, taken below ``generate_until``.

``generate_until`` returns text alone. Nothing of it is rewritten here: a subclass looks at what
passes through four of its own calls (``lm_eval.models.huggingface`` of lm_eval 0.4.13). In each
batch they come in this order: ``tok_batch_encode``, ``_model_generate``, then for every row
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

from gapft_harness.lm_eval_bridge.samplers.endings import (
    as_ids,
    end_ids,
    ids_of_text,
    split_generation_config,
)
from gapft_harness.lm_eval_bridge.samplers.retokenizer import started


@dataclass(frozen=True, slots=True)
class TokenRow:
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
        self._rows: dict[str, deque[TokenRow]] = {}
        #: What every prompt begins with; None: as ``HFLM`` encodes it.
        self.start_ids: list[int] | None = None
        super().__init__(*args, **kwargs)
        self.own_end_ids = as_ids(self.model.generation_config.eos_token_id) | as_ids(
            self.tokenizer.eos_token_id
        )
        self.ignored_generation_config = neutralise_generation_config(self.model)
        self.cache_hook = self

    def end_ids(self, until: Iterable[str]) -> list[int]:
        """The ids that end a response, sorted; see ``endings.end_ids``."""
        return end_ids(self.tokenizer, self.own_end_ids, until)

    def collect(self, requests: Sequence[Any]) -> list[TokenRow]:
        """Generates, and gives one row per request, in order.

        Equal prompts are told apart by their order alone: lm-eval's sort by length is stable, so
        the j-th row of a prompt answers the j-th request that has it.

        Raises:
            RuntimeError: a prompt would have been truncated, or is empty.
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

    def tok_encode(self, string: str, *args: Any, **kwargs: Any) -> list[int]:
        """Encodes as ``HFLM`` does, but for start tokens; once until the next ``collect``."""
        if args or kwargs:
            ids: list[int] = super().tok_encode(string, *args, **kwargs)
            return ids
        known = self._known_ids.get(string)
        if known is None:
            known = self._known_ids[string] = started(super().tok_encode(string), self.start_ids)
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
            RuntimeError: it would, or one is empty; callers have set both apart (``which_fit``).
        """
        if self.start_ids is None:
            ids, mask = super().tok_batch_encode(list(strings), padding_side=padding_side)
        else:
            rows = {"input_ids": [self.tok_encode(string) for string in strings]}
            padded = self.tokenizer.pad(rows, padding_side=padding_side, return_tensors="pt")
            ids, mask = padded["input_ids"], padded["attention_mask"]
        lengths = mask.sum(dim=1).tolist()
        limit = left_truncate_len or self.max_length
        for length in lengths:
            if not 0 < length <= limit:
                raise RuntimeError(f"a prompt of {length} tokens does not fit into {limit}")
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
        row = TokenRow(
            prompt_ids,
            tuple(self.ids_of_text(ids, text) if cut else ids),
            text,
            "stop" if cut or end is not None else "length",
        )
        self._rows.setdefault(request[0], deque()).append(row)

    def ids_of_text(self, ids: list[int], text: str) -> list[int]:
        """The ids that make up ``text``; see ``endings.ids_of_text``."""
        return ids_of_text(ids, text, super().tok_decode)

    def _detect_batch_size(self, requests: Any = None, pos: int = 0) -> int:
        """Detects once per model: ``generate_until`` asks again at every call."""
        if requests is not None:
            return int(super()._detect_batch_size(requests, pos))
        if self._batch_size_found is None:
            self._batch_size_found = int(super()._detect_batch_size())
        return self._batch_size_found


def neutralise_generation_config(model: Any) -> dict[str, Any]:
    """Replaces a model's generation_config by one that leaves all sampling to the decoding.

    Returns:
        The entries that were dropped and that no decoding sets, by name.
    """
    kept, ignored = split_generation_config(model.generation_config.to_diff_dict())
    model.generation_config = GenerationConfig(**kept)
    return ignored
