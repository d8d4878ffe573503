"""The ``hf`` sampler: lm-eval's Hugging Face model, exact token ids, adapters merged in."""

from __future__ import annotations

import contextlib
import gc
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from lm_eval.api.registry import get_model
from peft import PeftModel

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import Adapter, Decoding
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    Request,
    SamplerSettings,
    beyond_context,
)
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import AdapterFolder, misfit, peft_folder
from gapft_harness.lm_eval_bridge.samplers.endings import ignored_message
from gapft_harness.lm_eval_bridge.samplers.hf.arguments import check_arguments, refused_argument
from gapft_harness.lm_eval_bridge.samplers.hf.tokens import TokenHFLM, TokenRow
from gapft_harness.lm_eval_bridge.samplers.model_identity import describe_model
from gapft_harness.lm_eval_bridge.samplers.retokenizer import (
    chat_turns,
    check_chat_settings,
    check_chat_template,
    first_line,
    start_ids,
)
from gapft_harness.lm_eval_bridge.samplers.text import generation_kwargs, instances, which_fit

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
        rendered: str = self._lm.apply_chat_template(
            chat_turns(request, self._settings.system_instruction), add_generation_prompt=True
        )
        return rendered


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

    Raises:
        UserError: the folder is no adapter, or one of another model.
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
