"""The ``hf`` sampler: lm-eval's Hugging Face model, exact token ids, adapters merged in."""

from __future__ import annotations

import contextlib
import difflib
import gc
import inspect
import logging
import re
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.registry import get_model
from lm_eval.models.huggingface import HFLM
from peft import PeftModel
from transformers import GenerationConfig

from gapft_harness.core.errors import GapftError, UserError, did_you_mean
from gapft_harness.core.records import Adapter, Decoding
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    Request,
    SamplerSettings,
    beyond_context,
)
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import AdapterFolder, misfit, peft_folder
from gapft_harness.lm_eval_bridge.samplers.endings import (
    as_ids,
    end_ids,
    ids_of_text,
    ignored_message,
    split_generation_config,
)
from gapft_harness.lm_eval_bridge.samplers.model_identity import describe_model
from gapft_harness.lm_eval_bridge.samplers.retokenizer import (
    chat_turns,
    check_chat_settings,
    check_chat_template,
    first_line,
    render_chat,
    start_ids,
    started,
)
from gapft_harness.lm_eval_bridge.samplers.text import generation_kwargs, instances, which_fit

#: lm-eval's own default is 1.
DEFAULT_BATCH_SIZE = 64

#: Arguments whose effect this sampler cannot hold together with exact token ids or adapters.
_UNSUPPORTED = {
    "peft": "adapters come from the run's own training",
    "think_end_token": "the text would no longer be that of the generated ids",
    "enable_thinking": "use chat_template_args: {enable_thinking: …}",
    "truncation": "prompts are never cut in silence",
    "tp_plan": "several processes for one model are not supported",
}


def check_arguments(given: Mapping[str, Any]) -> dict[str, Any]:
    """Checks values that lm-eval does not, and sets the defaults of ``device`` and ``batch_size``.

    Raises:
        UserError: names the argument, what was found and what was expected.
    """
    arguments = {key: value for key, value in given.items() if value is not None}
    for key, why in _UNSUPPORTED.items():
        if arguments.get(key):
            raise UserError(f"model.args: {key!r} is not supported by the backend 'hf': {why}")
    for key in arguments:
        # What lm-eval does not know goes to transformers, which refuses it when weights are loaded.
        if key not in _known() and difflib.get_close_matches(key, _known(), n=1, cutoff=0.85):
            raise _unknown(key)
    arguments.setdefault("device", "cuda" if torch.cuda.is_available() else "cpu")
    arguments.setdefault("batch_size", DEFAULT_BATCH_SIZE)
    check_pretrained(arguments.get("pretrained"))
    _check_device(arguments["device"])
    _check_batch_size(arguments["batch_size"])
    check_dtype(arguments.get("dtype", "auto"))
    return arguments


def refused_argument(arguments: Mapping[str, Any], error: Exception) -> UserError:
    """The message for an error that lm-eval or transformers raised while loading."""
    unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if unknown and unknown.group(1) in arguments:
        return _unknown(unknown.group(1))
    return UserError(
        f"model.args: pretrained: {arguments['pretrained']!r} cannot be loaded as a causal "
        f"language model ({first_line(error)}); give a model folder or a hub name"
    )


def _known() -> list[str]:
    known = inspect.signature(HFLM.__init__).parameters
    return sorted({*known, "device_map"} - {"self", "kwargs", *_UNSUPPORTED})


def _unknown(key: str) -> UserError:
    return UserError(f"model.args: unknown argument {key!r}; {did_you_mean(key, _known())}")


def check_pretrained(pretrained: Any) -> None:
    """Checks that a name can be that of a model: a folder with a config, or a hub name.

    Raises:
        UserError: it is neither.
    """
    if not isinstance(pretrained, str) or not pretrained:
        raise UserError(
            f"model.args: pretrained: found {pretrained!r}; expected a model folder or a hub name"
        )
    folder = Path(pretrained)
    if folder.exists() and not (folder / "config.json").is_file():
        raise UserError(
            f"model.args: pretrained: {pretrained!r} is no model folder: no config.json in it; "
            "give the folder that save_pretrained wrote, or a hub name"
        )
    # A hub name is NAME or OWNER/NAME; anything else can only be a path.
    looks_like_path = pretrained.startswith((".", "/", "~")) or pretrained.count("/") > 1
    if looks_like_path and not folder.exists():
        raise UserError(
            f"model.args: pretrained: no folder {pretrained!r}; give a model folder or a hub name"
        )


def check_dtype(dtype: Any) -> None:
    """Checks the name of a dtype.

    Raises:
        UserError: torch has none of that name.
    """
    if dtype != "auto" and not isinstance(getattr(torch, str(dtype), None), torch.dtype):
        raise UserError(
            f"model.args: dtype: found {dtype!r}; "
            f"{did_you_mean(str(dtype), ['auto', 'float32', 'bfloat16', 'float16'])}"
        )


def _check_device(device: Any) -> None:
    try:
        kind = torch.device(str(device)).type
    except RuntimeError as error:
        raise UserError(
            f"model.args: device: found {device!r}; expected cpu, cuda, cuda:1, mps, …"
        ) from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"model.args: device: found {device!r}, but torch sees no GPU here; expected cpu, or "
            "leave it out"
        )


def _check_batch_size(batch_size: Any) -> None:
    if re.fullmatch(r"auto(:\d+(\.\d+)?)?|[1-9]\d*", str(batch_size)) is None:
        raise UserError(
            f"model.args: batch_size: found {batch_size!r}; expected a whole number from 1, or auto"
        )


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


logger = logging.getLogger(__name__)


class HfSampler:
    """A Transformers model through lm-eval's ``hf`` model.

    Each call of ``generate`` seeds torch's generators (all devices) with its seed and leaves them
    where the generation ended. K samples of one prompt are K independent rows.
    """

    def __init__(self, settings: SamplerSettings, adapter: Adapter | None) -> None:
        """Loads the model, and merges the adapter into its weights.

        Args:
            settings: ``model_args`` as for ``lm_eval --model hf``; ``device`` defaults to cuda
                where there is one, else cpu, and ``batch_size`` to 64.
            adapter: a PEFT folder to merge, or None for the source model.

        Raises:
            UserError: an unknown argument or value, no model at ``pretrained``, no chat template
                or start token where one is asked for, an adapter that is none or is another
                model's.
        """
        check_chat_settings(settings)
        torch.set_num_threads(settings.threads)
        arguments = check_arguments(settings.model_args)
        try:
            with _no_progress_bars():
                self._lm: Any = TokenHFLM.create_from_arg_obj(arguments)
        except (GapftError, MemoryError):
            raise
        except Exception as error:  # of a config that is refused, they have no common kind
            raise refused_argument(arguments, error) from error
        if self._lm.backend != "causal":
            raise UserError(
                f"model.args: pretrained: {arguments['pretrained']!r} is an encoder-decoder; "
                "expected a decoder-only (causal) model"
            )
        if settings.chat_template:
            check_chat_template(self._lm.tokenizer, settings)
        self._lm.start_ids = start_ids(self._lm.tokenizer, settings)
        ignored = self._lm.ignored_generation_config
        if ignored:
            logger.warning(ignored_message(arguments["pretrained"], ignored))
        if adapter is not None:
            _merge(self._lm, adapter)
        self._settings = settings
        self._arguments = arguments
        self._adapter = adapter

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, seed: int
    ) -> list[Generated]:
        """Answers every request, in order; see ``protocols.Sampler``.

        A prompt that does not fit beside ``max_gen_toks`` new tokens gets ``beyond_context``.

        Raises:
            UserError: a prompt is empty, or no prompt can fit beside so many new tokens.
        """
        prompts = [self._render(request) for request in requests]
        lengths = [len(self._lm.tok_encode(prompt)) for prompt in prompts]
        fits = which_fit(requests, lengths, decoding, self._lm.max_length)
        rows = self._rows(
            [request for request, fit in zip(requests, fits, strict=True) if fit],
            [prompt for prompt, fit in zip(prompts, fits, strict=True) if fit],
            decoding,
            seed,
        )
        return [
            _answer([next(rows) for _ in request.indices]) if fit else beyond_context(request)
            for request, fit in zip(requests, fits, strict=True)
        ]

    def _rows(
        self, requests: Sequence[Request], prompts: Sequence[str], decoding: Decoding, seed: int
    ) -> Iterator[TokenRow]:
        """The rows of requests that fit, one an index, in order."""
        if not requests:
            return iter(())
        kwargs = generation_kwargs(decoding)
        kwargs["eos_token_id"] = self._lm.end_ids(decoding.until)
        torch.manual_seed(seed)
        return iter(self._lm.collect(instances(requests, prompts, kwargs)))

    def describe(self) -> dict[str, Any]:
        """Model, weights, device and versions; hashes the weight files, so not for free."""
        return describe_model(self._lm, self._arguments, self._adapter) | {
            "chat_template": self._settings.chat_template,
            "system_instruction": self._settings.system_instruction,
            "threads": self._settings.threads,
            "start_ids": self._lm.start_ids,
        }

    def close(self) -> None:
        """Frees the model's memory."""
        self._lm = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _render(self, request: Request) -> str:
        if not self._settings.chat_template:
            return request.text
        arguments = {"tokenize": False, **self._lm.chat_template_args}
        apply = partial(self._lm.tokenizer.apply_chat_template, **arguments)
        return render_chat(apply, chat_turns(request, self._settings.system_instruction))


def _answer(rows: list[TokenRow]) -> Generated:
    """One request's rows as its answer."""
    return Generated(
        rows[0].prompt_ids if rows else (),
        tuple(Generation(row.text, row.token_ids, row.finish_reason) for row in rows),
    )


def _merge(lm: Any, adapter: Adapter) -> None:
    """Merges a PEFT adapter into the model's weights, in the weights' own dtype.

    Merged weights generate at the source's speed. Outputs equal those of lm-eval's ``peft=`` up
    to rounding: exactly one rounding of each weight to the base dtype.
    """
    from peft import PeftModel

    folder = peft_folder(adapter)
    try:
        with warnings.catch_warnings():
            # PEFT only warns when a checkpoint lacks keys, and then generates as the source.
            warnings.filterwarnings("error", message=".*missing adapter keys.*")
            lm._model = PeftModel.from_pretrained(lm._model, str(folder)).merge_and_unload()
    except (OSError, ValueError, RuntimeError, KeyError, UserWarning) as error:
        raise misfit(adapter, lm.pretrained, first_line(error)) from error
    lm._model.eval()


@contextlib.contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Keeps transformers' loading bars off the screen, where our own display is."""
    from transformers.utils import logging as hf_logging

    were_on = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    try:
        yield
    finally:
        if were_on:
            hf_logging.enable_progress_bar()


class HfBase:
    """A base loaded by lm_eval; see ``in_turn.Base``."""

    def __init__(self, arguments: dict[str, Any], others: Mapping[str, Any]) -> None:
        """Loads it.

        Raises:
            UserError: there are several processes.
        """
        self.lm: Any = get_model("hf").create_from_arg_obj(arguments, dict(others))
        if self.lm.world_size > 1:
            raise UserError("--adapters: evaluates with one process; start it without a launcher")
        self._pretrained = arguments["pretrained"]

    def put_on(self, adapter: AdapterFolder) -> None:
        """Puts it on unmerged, as ``peft=`` does."""
        try:
            worn = PeftModel.from_pretrained(self.lm._model, adapter.path)
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise misfit(adapter, self._pretrained, first_line(error)) from error
        self.lm._model = worn.eval()

    def take_off(self) -> None:
        """Gives the layers back that the adapter had replaced."""
        self.lm._model = self.lm._model.unload()

    def probed(self, text: str) -> list[float]:
        """Every next token's logits, in three numbers."""
        ids = self.lm.tok_encode(text)
        with torch.no_grad():
            logits = self.lm._model_call(torch.tensor([ids], device=self.lm.device)).float()
        return [float(each) for each in (logits.sum(), logits.abs().sum(), logits.std())]
