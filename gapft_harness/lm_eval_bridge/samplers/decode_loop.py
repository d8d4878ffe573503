"""The decode loop of the ``hf`` sampler: computes each prompt once, and removes finished rows.

A batch holds rows of one block only (a deployment decode, or eight consecutive samples), so that
the results of a block do not depend on other blocks. Rows are padded on the left, and each row
draws from its own random stream (``nucleus.py``). Models whose cache cannot be repeated use
Transformers' ``generate`` with the same rules.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import DynamicCache, LogitsProcessor, StoppingCriteria
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

from gapft_harness.core.records import Decoding
from gapft_harness.hooks.protocols import ReportGeneration
from gapft_harness.lm_eval_bridge.samplers.nucleus import draw_tokens

#: Free columns (tokens) that a copied cache gets.
_SPARE_COLUMNS = 64
#: Maximum number of prompt tokens in one forward pass.
_PREFILL_TOKENS = 8192
#: Finished rows leave a batch and new ones join when this share of it is free.
_JOIN_SHARE = 1 / 8
#: A stop string is searched in as many last tokens as it has bytes, plus this number: for special
#: tokens, and because a first token may decode differently than inside a text.
_LOOK_BACK = 8

#: Note about a model whose prompt cache cannot be repeated.
NO_PROMPT_CACHE = (
    "this model computes the prompt again for each response, and a batch ends with its longest "
    "response"
)


@dataclass(slots=True, eq=False)
class Row:
    """One response to generate.

    Attributes:
        prompt: number of its prompt.
        block: number of its block; rows of different blocks never share a batch.
        uniforms: shape (max_gen_toks,), numbers in [0, 1); None: the row is decoded greedily.
        ids: token ids generated so far, including the end token.
        is_done: whether the response has ended.
    """

    prompt: int
    block: int
    uniforms: NDArray[np.float64] | None = None
    ids: list[int] = field(default_factory=list)
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class StopRules:
    """The rules for ending responses.

    Attributes:
        ids: end tokens.
        limit: maximum number of tokens.
        stops: strings after which a response ends.
        decode: returns the texts of several rows of ids.
    """

    ids: frozenset[int]
    limit: int
    stops: tuple[str, ...]
    decode: Callable[[list[list[int]]], list[str]]

    def append_tokens(self, rows: Sequence[Row], tokens: Sequence[int]) -> None:
        """Append a token to each open row, and mark the rows that end with it."""
        open_rows = []
        for row, token in zip(rows, tokens, strict=True):
            if row.is_done:
                continue
            row.ids.append(token)
            row.is_done = token in self.ids or len(row.ids) == self.limit
            if not row.is_done:
                open_rows.append(row)
        if self.stops and open_rows:
            self._mark_stopped(open_rows)

    def _mark_stopped(self, rows: Sequence[Row]) -> None:
        width = max(len(stop.encode()) for stop in self.stops) + _LOOK_BACK
        texts = self.decode([row.ids[-width:] for row in rows])
        hits = [row for row, text in zip(rows, texts, strict=True) if self._is_stopped(text)]
        if hits:
            for row, text in zip(hits, self.decode([row.ids for row in hits]), strict=True):
                row.is_done = self._is_stopped(text)

    def _is_stopped(self, text: str) -> bool:
        return any(stop in text for stop in self.stops)


class DecodeLoop:
    """Generates rows with one model, in batches of any size.

    Attributes:
        reason: why this model's prompt caches cannot be repeated; empty if they can.
    """

    def __init__(
        self, model: Any, device: torch.device, autocast: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        """Inspect the model's cache, and test it on two short prompts.

        Args:
            model: a causal language model of Transformers.
            device: the device for its inputs.
            autocast: returns the context for forward passes.
        """
        self._model = model
        self._device = device
        self._autocast = autocast
        parameters = inspect.signature(model.forward).parameters
        self._forward_arguments = {
            name for name in ("position_ids", "logits_to_keep") if name in parameters
        }
        self._window: int | None = None
        self._has_reported_window = False
        # For a slice of the hidden states, torch would expand the head's weight over the batch.
        if (head := model.get_output_embeddings()) is not None:
            head.register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(), *inputs[1:]))
        self.reason = self._find_cache_fault()

    def generate(
        self,
        prompts: Sequence[list[int]],
        rows: Iterable[Row],
        decoding: Decoding,
        stop_rules: StopRules,
        size: int,
        report: ReportGeneration,
    ) -> None:
        """Generate all rows that are not done; finished rows are kept if memory runs out.

        Args:
            prompts: token ids of each prompt; not empty.
            rows: rows of these prompts.
            decoding: sampling settings for rows with uniforms.
            stop_rules: where responses end.
            size: maximum number of rows in a batch.
            report: called at every step.
        """
        rows = sorted(rows, key=lambda row: (-len(prompts[row.prompt]), row.prompt, row.block))
        open_rows = [row for row in rows if not row.is_done]
        for row in open_rows:
            row.ids.clear()
        batches = _BatchSettings(decoding, stop_rules, size, _ProgressCounter(rows, report))
        if not open_rows:
            return
        longest = len(prompts[open_rows[0].prompt])
        with torch.inference_mode(), self._autocast():
            # A sliding window has no effect while all columns are inside it.
            is_beyond = self._window is not None and longest + stop_rules.limit > self._window
            if is_beyond and not self._has_reported_window:
                self._has_reported_window = True
                report(0, 0, f"{NO_PROMPT_CACHE}, for responses beyond its attention window")
            if self.reason or is_beyond:
                self._generate_by_transformers(prompts, open_rows, batches)
                return
            shared = _count_shared_tokens([prompts[row.prompt] for row in open_rows])
            prefix = self._compute_prefix(prompts[open_rows[0].prompt][:shared]) if shared else None
            prompt_numbers = list(dict.fromkeys(row.prompt for row in open_rows))
            for start in range(0, len(prompt_numbers), size):
                members = prompt_numbers[start : start + size]
                indices = {prompt: index for index, prompt in enumerate(members)}
                batch_rows = [row for row in open_rows if row.prompt in indices]
                state, logits = self._compute_prompts([prompts[p] for p in members], prefix)
                for _, block in groupby(sorted(batch_rows, key=_block_number), key=_block_number):
                    self._decode_block(deque(block), indices, state, logits, batches)

    def _decode_block(
        self,
        queue: deque[Row],
        indices: dict[int, int],
        prompts: _State,
        first: Tensor,
        batches: _BatchSettings,
    ) -> None:
        """Decode a block's rows in batches, each row from its prompt's state.

        Args:
            queue: the rows; consumed.
            indices: the index in ``prompts`` and ``first`` of each prompt's number.
            prompts: the state after the prompts.
            first: the prompts' last logits, shape (prompts, vocabulary).
            batches: settings shared by all batches.
        """
        state: _State | None = None
        active: list[Row] = []
        while queue or active:
            alive = [index for index, row in enumerate(active) if not row.is_done]
            leave = len(active) - len(alive) >= max(1, len(active) * _JOIN_SHARE)
            free = batches.size - len(alive)
            if not alive or leave or (queue and free >= max(1, batches.size * _JOIN_SHARE)):
                joining: list[Row] = []
                while queue and len(joining) < free:
                    new = [queue.popleft() for _ in range(min(free - len(joining), len(queue)))]
                    logits = first[[indices[row.prompt] for row in new]]
                    batches.append_tokens(new, batches.next_tokens(logits, new))
                    joining += [row for row in new if not row.is_done]
                active = [active[index] for index in alive] + joining
                if not active:
                    return
                state = _State.join(state, alive, prompts, [indices[r.prompt] for r in joining])
            assert state is not None
            logits = self._step(state, [row.ids[-1] for row in active])
            batches.append_tokens(active, batches.next_tokens(logits, active))

    def _compute_prefix(self, ids: list[int]) -> _State:
        """Compute the state of the prefix that all prompts share."""
        state = _State.empty(1, self._device)
        self._forward(state, torch.tensor([ids], device=self._device), 1)
        return state

    def _compute_prompts(
        self, prompts: Sequence[list[int]], prefix: _State | None
    ) -> tuple[_State, Tensor]:
        """Compute prompts after their shared prefix, padded on the left.

        Returns:
            Their state, and the logits of the last position, shape (prompts, vocabulary).
        """
        shared = 0 if prefix is None else prefix.columns
        parts: list[tuple[_State, Tensor]] = []
        todo = deque(prompts)
        while todo:
            width = max(len(ids) for ids in todo) - shared
            count = min(len(todo), max(1, _PREFILL_TOKENS // width))
            ids, mask = _pad_left([todo.popleft()[shared:] for _ in range(count)])
            state = (
                _State.empty(count, self._device)
                if prefix is None
                else _State.join(None, [], prefix, [0] * count)
            )
            logits = self._forward(state, ids.to(self._device), mask.to(self._device))
            parts.append((state, logits))
        (state, logits), *others = parts
        for other, more in others:
            state = _State.join(state, list(range(state.rows)), other, list(range(other.rows)))
            logits = torch.cat([logits, more])
        return state, logits

    def _step(self, state: _State, tokens: Sequence[int]) -> Tensor:
        """Compute one more token for every row."""
        return self._forward(state, torch.tensor(tokens, device=self._device)[:, None], 1)

    def _forward(self, state: _State, ids: Tensor, mask: Tensor | int) -> Tensor:
        """Compute more tokens of all rows, and add them to the state.

        Args:
            ids: shape (rows, tokens).
            mask: same shape, 0 for padding; or 1 for no padding.

        Returns:
            The logits of the last position in float32, shape (rows, vocabulary).
        """
        mask = torch.ones_like(ids) * mask
        positions = (state.lengths[:, None] + mask.cumsum(-1) - 1).clamp(min=0)
        state.mask = torch.cat([state.mask, mask], dim=1)
        state.lengths = state.lengths + mask.sum(-1)
        more = {"position_ids": positions, "logits_to_keep": 1}
        output = self._model(
            input_ids=ids,
            attention_mask=state.mask,
            past_key_values=state.cache,
            use_cache=True,
            return_dict=True,
            **{name: more[name] for name in self._forward_arguments},
        )
        logits: Tensor = output.logits[:, -1].to(self._device, torch.float32)
        return logits

    def _find_cache_fault(self) -> str:
        """Return why this model's cache cannot be repeated over rows; empty if it can."""
        model = self._model
        kind = getattr(model.generation_config, "cache_implementation", None)
        if kind not in (None, "dynamic"):
            return f"its generation_config sets cache_implementation to {kind}"
        if not model._supports_default_dynamic_cache():
            return "it does not use Transformers' dynamic cache"
        layers = DynamicCache(config=model.config.get_text_config(decoder=True)).layers
        for layer in layers:
            if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
                return f"its cache has layers of type {type(layer).__name__}"
        windows = [layer.sliding_window for layer in layers if hasattr(layer, "sliding_window")]
        self._window = min(windows, default=None)
        try:
            with torch.inference_mode(), self._autocast():
                return self._compare_repeated_cache()
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            return f"it cannot use Transformers' cache ({type(error).__name__}: {error})"

    def _compare_repeated_cache(self) -> str:
        """Compare two short prompts, padded and repeated, with each computed alone.

        Returns:
            The difference in words; empty if there is none.
        """
        size = self._model.config.get_text_config().vocab_size
        prompts = [[token % size for token in ids] for ids in ((5, 7, 11, 13, 17), (5, 7, 19))]
        state, logits = self._compute_prompts(prompts, self._compute_prefix(prompts[0][:2]))
        if any(layer.keys.shape[-2] != state.columns for layer in state.cache.layers):
            return "its cache does not have one column for each token"
        state = _State.join(None, [], state, [1, 0, 1])
        repeated = torch.cat([logits, self._step(state, [23 % size] * 3)])
        wholes = [*prompts, *([*prompts[index], 23 % size] for index in (1, 0, 1))]
        alone = torch.cat(
            [
                self._model(torch.tensor([ids], device=self._device)).logits[:, -1].float()
                for ids in wholes
            ]
        ).to(self._device)
        difference = ((repeated - alone).norm(dim=-1) / alone.norm(dim=-1)).max().item()
        # Usual are 1e-6 in float32 and 1e-2 in bfloat16; a wrong position or mask gives over 0.1.
        if not difference < (1e-3 if self._model.dtype == torch.float32 else 0.05):
            return f"its logits differ by {difference:.1%} with a repeated cache"
        return ""

    def _generate_by_transformers(
        self, prompts: Sequence[list[int]], rows: Sequence[Row], batches: _BatchSettings
    ) -> None:
        """Generate with Transformers' ``generate``, in batches that end with the longest row."""
        for _, block in groupby(sorted(rows, key=_block_number), key=_block_number):
            queue = deque(block)
            while queue:
                members = [queue.popleft() for _ in range(min(batches.size, len(queue)))]
                ids, mask = _pad_left([prompts[row.prompt] for row in members])
                self._model.generate(
                    input_ids=ids.to(self._device),
                    attention_mask=mask.to(self._device),
                    max_new_tokens=batches.stop_rules.limit,
                    do_sample=False,
                    pad_token_id=0,
                    logits_processor=[_ChosenTokens(members, batches)],
                    stopping_criteria=[_RowsDone(members)],
                )


def _block_number(row: Row) -> int:
    return row.block


def _count_shared_tokens(prompts: Sequence[list[int]]) -> int:
    """Count the tokens that all prompts begin with; each prompt keeps at least one token."""
    least = min(prompts)
    greatest = max(prompts)
    most = min(len(prompt) for prompt in prompts) - 1
    shared = 0
    while shared < most and least[shared] == greatest[shared]:
        shared += 1
    return shared if len(prompts) > 1 else 0


def _pad_left(prompts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad token ids on the left; return ids and mask, shape (prompts, longest)."""
    width = max(len(ids) for ids in prompts)
    ids = torch.zeros((len(prompts), width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for index, prompt in enumerate(prompts):
        ids[index, width - len(prompt) :] = torch.tensor(prompt)
        mask[index, width - len(prompt) :] = 1
    return ids, mask


@dataclass(slots=True)
class _ProgressCounter:
    """Counts finished responses and tokens, and reports them."""

    rows: Sequence[Row]
    report: ReportGeneration
    tokens: int = 0
    finished: int = 0

    def __post_init__(self) -> None:
        self.finished = sum(row.is_done for row in self.rows)
        self.tokens = sum(len(row.ids) for row in self.rows)

    def add(self, tokens: int, finished: int) -> None:
        self.tokens += tokens
        self.finished += finished
        self.report(self.finished, self.tokens)


@dataclass(frozen=True, slots=True)
class _BatchSettings:
    """Settings shared by all batches of a call."""

    decoding: Decoding
    stop_rules: StopRules
    size: int
    counter: _ProgressCounter

    def next_tokens(self, logits: Tensor, rows: Sequence[Row]) -> list[int]:
        """Choose each row's next token: the most likely one, or a draw from its stream."""
        drawn = [row.uniforms for row in rows]
        if drawn[0] is None:
            chosen: list[int] = logits.argmax(-1).tolist()
            return chosen
        uniforms = [
            0.0 if numbers is None or row.is_done else float(numbers[len(row.ids)])
            for row, numbers in zip(rows, drawn, strict=True)
        ]
        at = torch.tensor(uniforms, dtype=torch.float64, device=logits.device)
        tokens: list[int] = draw_tokens(logits, at, self.decoding).tolist()
        return tokens

    def append_tokens(self, rows: Sequence[Row], tokens: Sequence[int]) -> None:
        """Append tokens to open rows, and report progress."""
        done_before = sum(row.is_done for row in rows)
        self.stop_rules.append_tokens(rows, tokens)
        self.counter.add(len(rows) - done_before, sum(row.is_done for row in rows) - done_before)


class _ChosenTokens(LogitsProcessor):  # type: ignore[misc]
    """A logits processor that leaves Transformers only the chosen token of each row."""

    def __init__(self, rows: Sequence[Row], batches: _BatchSettings) -> None:
        self._rows = rows
        self._batches = batches

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Choose tokens, append them to the rows, and mask all others."""
        tokens = self._batches.next_tokens(scores.float(), self._rows)
        self._batches.append_tokens(self._rows, tokens)
        chosen = torch.tensor(tokens, device=scores.device)[:, None]
        return torch.full_like(scores, -torch.inf).scatter(1, chosen, 0.0)


class _RowsDone(StoppingCriteria):  # type: ignore[misc]
    """Stops Transformers when all rows are done."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        """Return which rows are done."""
        return torch.tensor([row.is_done for row in self._rows], device=input_ids.device)


class _GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """A cache layer with free columns for further tokens behind its keys and values.

    Transformers' own layer copies all of them for every token.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stores: tuple[Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Add tokens, and return all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys = key_states
            self.values = value_states
            return self.keys, self.values
        start = self.keys.shape[-2]
        end = self.keys.shape[-2] + key_states.shape[-2]
        if self._stores is None or self._stores[0].shape[-2] < end:
            self._stores = _allocate_store(self.keys, end), _allocate_store(self.values, end)
        keys, values = self._stores
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        self.keys = keys[:, :, :end]
        self.values = values[:, :, :end]
        return self.keys, self.values

    def hold(self, keys: Tensor, values: Tensor, columns: int) -> None:
        """Use these stores, whose first ``columns`` columns are filled."""
        self.lazy_initialization(keys, values)
        self._stores = keys, values
        self.keys = keys[:, :, :columns]
        self.values = values[:, :, :columns]


def _allocate_store(filled: Tensor, columns: int) -> Tensor:
    rows, heads, width, size = filled.shape
    store = filled.new_empty((rows, heads, columns + _SPARE_COLUMNS, size))
    store[:, :, :width] = filled
    return store


@dataclass(slots=True)
class _State:
    """The state of rows after the model's forward passes.

    Attributes:
        cache: keys and values, with a column for each token or padding.
        mask: shape (rows, columns), 0 where a column is padding of a row.
        lengths: shape (rows,), number of tokens of each row.
    """

    cache: Any
    mask: Tensor
    lengths: Tensor

    @classmethod
    def empty(cls, rows: int, device: torch.device) -> _State:
        """Return rows without tokens."""
        return cls(
            Cache(layer_class_to_replicate=_GrowingLayer),
            torch.zeros((rows, 0), dtype=torch.long, device=device),
            torch.zeros(rows, dtype=torch.long, device=device),
        )

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.mask)

    @property
    def columns(self) -> int:
        """Number of columns: tokens and padding of a row."""
        return self.mask.shape[1]

    @classmethod
    def join(
        cls, first: _State | None, rows: Sequence[int], second: _State, second_rows: Sequence[int]
    ) -> _State:
        """Copy rows of one state, followed by rows of another, aligned at their ends.

        Columns that are padding in all rows are removed. A row may be copied several times.

        Args:
            first: the first state; None: it has no rows.
            rows: indices of rows in ``first``.
            second: the second state.
            second_rows: indices of rows in ``second``.
        """
        # Choose rows, and the columns that any of them uses
        parts = [(second, torch.tensor(second_rows, dtype=torch.long, device=second.mask.device))]
        if first is not None:
            parts.insert(0, (first, torch.tensor(rows, dtype=torch.long, device=first.mask.device)))
        parts = [(state, indices) for state, indices in parts if len(indices)]
        widths = [_count_columns(state.mask[indices]) for state, indices in parts]
        columns = max(widths)
        count = sum(len(indices) for _, indices in parts)
        mask = second.mask.new_zeros((count, columns))
        cache = Cache(layer_class_to_replicate=_GrowingLayer)
        # Copy keys and values, aligned at their ends
        for number, layer in enumerate(second.cache.layers):
            stores = []
            for name in ("keys", "values"):
                tensor = getattr(layer, name)
                stores.append(
                    tensor.new_empty(
                        (count, tensor.shape[1], columns + _SPARE_COLUMNS, tensor.shape[3])
                    )
                )
            start = 0
            for (state, indices), width in zip(parts, widths, strict=True):
                own = state.cache.layers[number]
                end = start + len(indices)
                for store, tensor in zip(stores, (own.keys, own.values), strict=True):
                    held = tensor[:, :, tensor.shape[-2] - width :]
                    store[start:end, :, : columns - width] = 0
                    store[start:end, :, columns - width : columns] = held[indices.to(tensor.device)]
                start = end
            cache.layers.append(new := _GrowingLayer())
            new.hold(stores[0], stores[1], columns)
        start = 0
        for (state, indices), width in zip(parts, widths, strict=True):
            end = start + len(indices)
            mask[start:end, columns - width :] = state.mask[indices][:, state.columns - width :]
            start = end
        lengths = torch.cat([state.lengths[indices] for state, indices in parts])
        return cls(cache, mask, lengths)


def _count_columns(mask: Tensor) -> int:
    """Count the columns from the first one with a token in any row."""
    used = mask.any(0).nonzero()
    return mask.shape[1] - int(used[0]) if len(used) else 0
