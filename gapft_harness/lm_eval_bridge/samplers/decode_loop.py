"""The decode loop of the ``hf`` sampler: a prompt is computed once, and finished rows leave.

A batch holds rows of one block only (a greedy decode, or eight samples by their numbers), so that
a block comes out the same whichever others are generated beside it. Rows are padded at their left;
what a row draws is its own stream's (``nucleus.py``). Models whose cache cannot be repeated go
through Transformers' ``generate``, by the same rules.
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

#: Tokens for which a cache has room when it is copied.
_ROOM = 64
#: Prompt tokens that are computed in one forward pass.
_PREFILL_TOKENS = 8192
#: Rows leave a batch, and others join it, when this share of it is free.
_SHARE = 1 / 8
#: Tokens by which a stop string is looked for further back than it has bytes: special tokens, and
#: a first token that is decoded otherwise than inside a text.
_LOOK_BACK = 8

#: What becomes of a model whose cache is not repeated, for notes.
TOGETHER = (
    "this model's responses compute their prompts one by one, and batches stay together to their "
    "longest response"
)


@dataclass(slots=True, eq=False)
class Row:
    """One response to generate.

    Attributes:
        prompt: the number of its prompt.
        block: rows of different blocks share no batch.
        uniforms: one number in [0, 1) for each of its tokens; None: it is decoded greedily.
        ids: what is generated so far, the end token among it.
        is_done: whether it has ended.
    """

    prompt: int
    block: int
    uniforms: NDArray[np.float64] | None = None
    ids: list[int] = field(default_factory=list)
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Endings:
    """Where responses end.

    Attributes:
        ids: end tokens.
        limit: most tokens.
        stops: strings after which a response ends.
        decode: gives the texts of several rows' ids.
    """

    ids: frozenset[int]
    limit: int
    stops: tuple[str, ...]
    decode: Callable[[list[list[int]]], list[str]]

    def extend(self, rows: Sequence[Row], tokens: Sequence[int]) -> None:
        """Append a token to each row that is not done, and mark those that end with it."""
        going = []
        for row, token in zip(rows, tokens, strict=True):
            if row.is_done:
                continue
            row.ids.append(token)
            row.is_done = token in self.ids or len(row.ids) == self.limit
            if not row.is_done:
                going.append(row)
        if self.stops and going:
            self._stop(going)

    def _stop(self, rows: Sequence[Row]) -> None:
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
        reason: why prompts' caches are not repeated with this model; empty if they are.
        bytes_per_token: of a row's cache; 0 where caches are not repeated.
    """

    def __init__(
        self, model: Any, device: torch.device, autocast: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        """Look at the model's cache and try it on two short prompts.

        Args:
            model: a causal language model of Transformers.
            device: where its inputs belong.
            autocast: the context in which it computes.
        """
        self._model, self._device, self._autocast = model, device, autocast
        known = inspect.signature(model.forward).parameters
        self._takes = {name for name in ("position_ids", "logits_to_keep") if name in known}
        self.bytes_per_token = 0
        self._window: int | None = None
        self._is_window_told = False
        # On a slice of the hidden states torch would expand the head's weight over the batch.
        if (head := model.get_output_embeddings()) is not None:
            head.register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(), *inputs[1:]))
        self.reason = self._unrepeatable()

    def generate(
        self,
        prompts: Sequence[list[int]],
        rows: Iterable[Row],
        decoding: Decoding,
        endings: Endings,
        size: int,
        report: ReportGeneration,
    ) -> None:
        """Generate all rows that are not done; what is finished stays if memory runs out.

        Args:
            prompts: token ids, none empty.
            rows: of these prompts.
            decoding: how rows with uniforms are drawn.
            size: most rows of a batch.
            report: called at every step.
        """
        rows = sorted(rows, key=lambda row: (-len(prompts[row.prompt]), row.prompt, row.block))
        todo = [row for row in rows if not row.is_done]
        for row in todo:
            row.ids.clear()
        batches = _Batches(decoding, endings, size, _Counter(rows, report))
        if not todo:
            return
        longest = len(prompts[todo[0].prompt])
        with torch.inference_mode(), self._autocast():
            # A window of attention is the same as none as long as all columns are within it.
            is_beyond = self._window is not None and longest + endings.limit > self._window
            if is_beyond and not self._is_window_told:
                self._is_window_told = True
                report(0, 0, f"{TOGETHER}, where they are longer than its window of attention")
            if self.reason or is_beyond:
                self._generate_by_transformers(prompts, todo, batches)
                return
            shared = _shared_prefix([prompts[row.prompt] for row in todo])
            prefix = self._prefix(prompts[todo[0].prompt][:shared]) if shared else None
            asked = list(dict.fromkeys(row.prompt for row in todo))
            for start in range(0, len(asked), size):
                members = asked[start : start + size]
                places = {prompt: place for place, prompt in enumerate(members)}
                own = [row for row in todo if row.prompt in places]
                state, logits = self._prefill([prompts[p] for p in members], prefix)
                for _, block in groupby(sorted(own, key=_block_of), key=_block_of):
                    self._decode(deque(block), places, state, logits, batches)

    def _decode(
        self,
        queue: deque[Row],
        places: dict[int, int],
        prompts: _State,
        first: Tensor,
        batches: _Batches,
    ) -> None:
        """Decode a block's rows: as many at a time as a batch has, each from its prompt's state.

        Args:
            places: by a prompt's number, its place in ``prompts`` and ``first``.
            first: the prompts' logits, shape (prompts, vocabulary).
        """
        state: _State | None = None
        active: list[Row] = []
        while queue or active:
            alive = [place for place, row in enumerate(active) if not row.is_done]
            leave = len(active) - len(alive) >= max(1, len(active) * _SHARE)
            free = batches.size - len(alive)
            if not alive or leave or (queue and free >= max(1, batches.size * _SHARE)):
                joining: list[Row] = []
                while queue and len(joining) < free:
                    new = [queue.popleft() for _ in range(min(free - len(joining), len(queue)))]
                    logits = first[[places[row.prompt] for row in new]]
                    batches.take(new, batches.next_tokens(logits, new))
                    joining += [row for row in new if not row.is_done]
                active = [active[place] for place in alive] + joining
                if not active:
                    return
                state = _State.join(state, alive, prompts, [places[r.prompt] for r in joining])
            assert state is not None
            logits = self._step(state, [row.ids[-1] for row in active])
            batches.take(active, batches.next_tokens(logits, active))

    def _prefix(self, ids: list[int]) -> _State:
        """Compute what all prompts begin with."""
        state = _State.empty(1, self._device)
        self._forward(state, torch.tensor([ids], device=self._device), 1)
        return state

    def _prefill(
        self, prompts: Sequence[list[int]], prefix: _State | None
    ) -> tuple[_State, Tensor]:
        """Compute prompts, padded at the left of what they do not share.

        Returns:
            Their state, and their last position's logits, shape (prompts, vocabulary).
        """
        shared = 0 if prefix is None else prefix.columns
        parts: list[tuple[_State, Tensor]] = []
        todo = deque(prompts)
        while todo:
            width = max(len(ids) for ids in todo) - shared
            count = min(len(todo), max(1, _PREFILL_TOKENS // width))
            members = [todo.popleft() for _ in range(count)]
            width = max(len(ids) for ids in members) - shared
            ids = torch.zeros((count, width), dtype=torch.long)
            mask = torch.zeros((count, width), dtype=torch.long)
            for place, prompt in enumerate(members):
                own = prompt[shared:]
                ids[place, width - len(own) :] = torch.tensor(own)
                mask[place, width - len(own) :] = 1
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
        """Give every row one more token."""
        return self._forward(state, torch.tensor(tokens, device=self._device)[:, None], 1)

    def _forward(self, state: _State, ids: Tensor, mask: Tensor | int) -> Tensor:
        """Compute further tokens of all rows and add them to the state.

        Args:
            ids: shape (rows, tokens).
            mask: of the same shape, 0 where a token is padding; or 1.

        Returns:
            The last position's logits in float32, shape (rows, vocabulary).
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
            **{name: more[name] for name in self._takes},
        )
        logits: Tensor = output.logits[:, -1].to(self._device, torch.float32)
        return logits

    def _unrepeatable(self) -> str:
        """Say why this model's cache cannot be repeated over rows; empty if it can."""
        model = self._model
        kind = getattr(model.generation_config, "cache_implementation", None)
        if kind not in (None, "dynamic"):
            return f"its generation_config asks for a cache that is {kind}"
        if not model._supports_default_dynamic_cache():
            return "it keeps a state of its own"
        layers = DynamicCache(config=model.config.get_text_config(decoder=True)).layers
        for layer in layers:
            if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer):
                return f"its cache has layers of the kind {type(layer).__name__}"
        windows = [layer.sliding_window for layer in layers if hasattr(layer, "sliding_window")]
        self._window = min(windows, default=None)
        try:
            with torch.inference_mode(), self._autocast():
                return self._differing()
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            return f"it cannot use Transformers' cache ({type(error).__name__}: {error})"

    def _differing(self) -> str:
        """Compare two short prompts, padded and repeated, with each computed alone."""
        size = self._model.config.get_text_config().vocab_size
        prompts = [[token % size for token in ids] for ids in ((5, 7, 11, 13, 17), (5, 7, 19))]
        state, logits = self._prefill(prompts, self._prefix(prompts[0][:2]))
        if any(layer.keys.shape[-2] != state.columns for layer in state.cache.layers):
            return "its cache does not hold one column for each token"
        state = _State.join(None, [], state, [1, 0, 1])
        self.bytes_per_token = state.bytes // (state.rows * state.columns)
        repeated = torch.cat([logits, self._step(state, [23 % size] * 3)])
        wholes = [*prompts, *([*prompts[place], 23 % size] for place in (1, 0, 1))]
        alone = torch.cat(
            [
                self._model(torch.tensor([ids], device=self._device)).logits[:, -1].float()
                for ids in wholes
            ]
        ).to(self._device)
        difference = ((repeated - alone).norm(dim=-1) / alone.norm(dim=-1)).max().item()
        # Of float32 1e-6 is usual, of bfloat16 1e-2; a wrong position or mask gives more than 0.1.
        if not difference < (1e-3 if self._model.dtype == torch.float32 else 0.05):
            return f"with a repeated cache its logits differ by {difference:.1%}"
        return ""

    def _generate_by_transformers(
        self, prompts: Sequence[list[int]], rows: Sequence[Row], batches: _Batches
    ) -> None:
        """Generate in batches that stay together to their end, each prompt in every row."""
        for _, block in groupby(sorted(rows, key=_block_of), key=_block_of):
            queue = deque(block)
            while queue:
                members = [queue.popleft() for _ in range(min(batches.size, len(queue)))]
                width = max(len(prompts[row.prompt]) for row in members)
                ids = torch.zeros((len(members), width), dtype=torch.long)
                mask = torch.zeros_like(ids)
                for place, row in enumerate(members):
                    own = prompts[row.prompt]
                    ids[place, width - len(own) :] = torch.tensor(own)
                    mask[place, width - len(own) :] = 1
                self._model.generate(
                    input_ids=ids.to(self._device),
                    attention_mask=mask.to(self._device),
                    max_new_tokens=batches.endings.limit,
                    do_sample=False,
                    pad_token_id=0,
                    logits_processor=[_Chosen(members, batches)],
                    stopping_criteria=[_Done(members)],
                )


def _block_of(row: Row) -> int:
    return row.block


def _shared_prefix(prompts: Sequence[list[int]]) -> int:
    """Count the tokens that all prompts begin with; each keeps at least one of its own."""
    least, greatest = min(prompts), max(prompts)
    most = min(len(prompt) for prompt in prompts) - 1
    shared = 0
    while shared < most and least[shared] == greatest[shared]:
        shared += 1
    return shared if len(prompts) > 1 else 0


@dataclass(slots=True)
class _Counter:
    """Counts the responses that are finished, and tokens."""

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
class _Batches:
    """What all batches of a call have in common."""

    decoding: Decoding
    endings: Endings
    size: int
    counter: _Counter

    def next_tokens(self, logits: Tensor, rows: Sequence[Row]) -> list[int]:
        """Choose each row's next token: the likeliest, or the one that its stream draws."""
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

    def take(self, rows: Sequence[Row], tokens: Sequence[int]) -> None:
        """Give rows that are not done their tokens, and report."""
        before = sum(row.is_done for row in rows)
        self.endings.extend(rows, tokens)
        self.counter.add(len(rows) - before, sum(row.is_done for row in rows) - before)


class _Chosen(LogitsProcessor):  # type: ignore[misc]
    """Leaves Transformers one token to choose: a row's next."""

    def __init__(self, rows: Sequence[Row], batches: _Batches) -> None:
        self._rows, self._batches = rows, batches

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Choose, and take the choice down."""
        tokens = self._batches.next_tokens(scores.float(), self._rows)
        self._batches.take(self._rows, tokens)
        chosen = torch.tensor(tokens, device=scores.device)[:, None]
        return torch.full_like(scores, -torch.inf).scatter(1, chosen, 0.0)


class _Done(StoppingCriteria):  # type: ignore[misc]
    """Stops Transformers when all rows are done."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: Any) -> Tensor:
        """Whether each row is done."""
        return torch.tensor([row.is_done for row in self._rows], device=input_ids.device)


class _Layer(DynamicLayer):  # type: ignore[misc]
    """A layer's keys and values, with room for further tokens behind them.

    Transformers' own layer copies all of them at every token.
    """

    def __init__(self) -> None:
        super().__init__()
        self._stores: tuple[Tensor, Tensor] | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Add tokens; gives all keys and values."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states, value_states
            return self.keys, self.values
        start, end = self.keys.shape[-2], self.keys.shape[-2] + key_states.shape[-2]
        if self._stores is None or self._stores[0].shape[-2] < end:
            self._stores = _with_room(self.keys, end), _with_room(self.values, end)
        keys, values = self._stores
        keys[:, :, start:end] = key_states
        values[:, :, start:end] = value_states
        self.keys, self.values = keys[:, :, :end], values[:, :, :end]
        return self.keys, self.values

    def hold(self, keys: Tensor, values: Tensor, columns: int) -> None:
        """Take up stores of which so many columns are filled."""
        self.lazy_initialization(keys, values)
        self._stores = keys, values
        self.keys, self.values = keys[:, :, :columns], values[:, :, :columns]


def _with_room(filled: Tensor, columns: int) -> Tensor:
    rows, heads, width, size = filled.shape
    store = filled.new_empty((rows, heads, columns + _ROOM, size))
    store[:, :, :width] = filled
    return store


@dataclass(slots=True)
class _State:
    """Rows as far as the model has computed them.

    Attributes:
        cache: keys and values, a column for each token or padding.
        mask: 0 where a column is a row's padding, shape (rows, columns).
        lengths: tokens of each row.
    """

    cache: Any
    mask: Tensor
    lengths: Tensor

    @classmethod
    def empty(cls, rows: int, device: torch.device) -> _State:
        """Make rows of no tokens."""
        return cls(
            Cache(layer_class_to_replicate=_Layer),
            torch.zeros((rows, 0), dtype=torch.long, device=device),
            torch.zeros(rows, dtype=torch.long, device=device),
        )

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.mask)

    @property
    def columns(self) -> int:
        """Tokens and padding of each row."""
        return self.mask.shape[1]

    @property
    def bytes(self) -> int:
        """Of all keys and values."""
        return sum(
            tensor.numel() * tensor.element_size()
            for layer in self.cache.layers
            for tensor in (layer.keys, layer.values)
        )

    @classmethod
    def join(
        cls, one: _State | None, rows: Sequence[int], other: _State, more: Sequence[int]
    ) -> _State:
        """Copy some rows of a state, and some of another behind them, aligned at their ends.

        Columns that are padding in all rows are left out. A row may be copied several times.

        Args:
            one: None has no rows.
            rows: places in ``one``.
            more: places in ``other``.
        """
        parts = [(other, torch.tensor(more, dtype=torch.long, device=other.mask.device))]
        if one is not None:
            parts.insert(0, (one, torch.tensor(rows, dtype=torch.long, device=one.mask.device)))
        parts = [(state, places) for state, places in parts if len(places)]
        widths = [_filled(state.mask[places]) for state, places in parts]
        columns = max(widths)
        count = sum(len(places) for _, places in parts)
        mask = other.mask.new_zeros((count, columns))
        cache = Cache(layer_class_to_replicate=_Layer)
        for number, layer in enumerate(other.cache.layers):
            stores = []
            for name in ("keys", "values"):
                tensor = getattr(layer, name)
                stores.append(
                    tensor.new_empty((count, tensor.shape[1], columns + _ROOM, tensor.shape[3]))
                )
            start = 0
            for (state, places), width in zip(parts, widths, strict=True):
                own = state.cache.layers[number]
                end = start + len(places)
                for store, tensor in zip(stores, (own.keys, own.values), strict=True):
                    held = tensor[:, :, tensor.shape[-2] - width :]
                    store[start:end, :, : columns - width] = 0
                    store[start:end, :, columns - width : columns] = held[places.to(tensor.device)]
                start = end
            cache.layers.append(new := _Layer())
            new.hold(stores[0], stores[1], columns)
        start = 0
        for (state, places), width in zip(parts, widths, strict=True):
            end = start + len(places)
            mask[start:end, columns - width :] = state.mask[places][:, state.columns - width :]
            start = end
        lengths = torch.cat([state.lengths[places] for state, places in parts])
        return cls(cache, mask, lengths)


def _filled(mask: Tensor) -> int:
    """Count the columns from the first that is a token of any row."""
    used = mask.any(0).nonzero()
    return mask.shape[1] - int(used[0]) if len(used) else 0
