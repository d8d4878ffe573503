"""lm_eval's vLLM engine, wearing one adapter after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval.api.registry import get_model
from vllm import SamplingParams, TokensPrompt
from vllm.exceptions import VLLMError
from vllm.lora.request import LoRARequest

from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import AdapterFolder, misfit
from gapft_harness.lm_eval_bridge.samplers.retokenizer import first_line
from gapft_harness.lm_eval_bridge.samplers.vllm.sampler import REFUSALS, least_rank, reason


class VllmBase:
    """An engine that can serve adapters; see ``in_turn.Base``.

    lm_eval's class asks for one adapter, by ``lora_local_path``, and passes it on with every
    request. Here that request is exchanged, under another number each time: the engine keeps what
    it has computed of a prompt by the adapter's number.
    """

    def __init__(
        self,
        arguments: dict[str, Any],
        others: Mapping[str, Any],
        adapter: AdapterFolder,
        rank: int,
    ) -> None:
        """Starts the engine, without an adapter on.

        Args:
            arguments: ``model_args`` of ``lm_eval --model vllm``.
            others: lm_eval's further settings of a model.
            adapter: any of the adapters: that there is one lets the engine serve all.
            rank: the highest rank of all.

        Raises:
            UserError: the engine does not start, or serves no adapters of this rank.
        """
        lora = {"lora_local_path": adapter.path, "max_lora_rank": least_rank(adapter.path, rank)}
        try:
            self.lm: Any = get_model("vllm").create_from_arg_obj(arguments | lora, dict(others))
        except (*REFUSALS, VLLMError) as error:
            raise UserError(
                f"--model_args: vLLM cannot serve {arguments['pretrained']!r}: {reason(error)}"
            ) from error
        self.lm.lora_request = None
        self._pretrained = arguments["pretrained"]
        self._numbers = 0

    def put_on(self, adapter: AdapterFolder) -> None:
        """Has every request from now on ask for it."""
        self._numbers += 1
        request = LoRARequest(adapter.arm.name, self._numbers, adapter.path)
        try:
            self.lm.model.llm_engine.add_lora(request)
        except (*REFUSALS, VLLMError) as error:
            raise misfit(adapter, self._pretrained, first_line(error)) from error
        self.lm.lora_request = request

    def take_off(self) -> None:
        """Has requests ask for the base alone."""
        self.lm.lora_request = None

    def probed(self, text: str) -> list[float]:
        """The log-likelihood of each token but the first."""
        ids = self.lm.tok_encode(text)
        [output] = self.lm.model.generate(
            [TokensPrompt(prompt_token_ids=ids)],
            SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=0),
            use_tqdm=False,
            lora_request=self.lm.lora_request,
        )
        found = output.prompt_logprobs[1:]
        return [float(each[token].logprob) for each, token in zip(found, ids[1:], strict=True)]
