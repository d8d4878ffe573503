"""What is sent to a server: the payloads of lm-eval's API models, with a seed for each sample."""

from __future__ import annotations

from typing import Any

from lm_eval.api.registry import get_model

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Decoding
from gapft_harness.hooks.protocols import Request, SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.retokenizer import (
    Retokenizer,
    chat_turns,
    check_chat_settings,
    continues_answer,
)
from gapft_harness.lm_eval_bridge.samplers.server.arguments import ServerArguments
from gapft_harness.lm_eval_bridge.samplers.server.checks import EXTENSIONS
from gapft_harness.lm_eval_bridge.samplers.text import generation_kwargs

#: Seeds that every server takes are below this: some hold them in 32 bits with a sign. Those of
#: one problem's samples still differ (``SampleStreams``).
_SEEDS = 2**31

#: A request that fits wherever any does.
SHORT = Request("probe", "Hello.", (0,), (0,))


class Payloads:
    """Makes the JSON of requests through lm-eval's own class, which puts one seed into all."""

    def __init__(
        self,
        settings: SamplerSettings,
        arguments: ServerArguments,
        retokenizer: Retokenizer | None,
    ) -> None:
        """Creates lm-eval's model; it sends nothing.

        Raises:
            UserError: chats are asked for that nobody would render, or the reverse.
        """
        _check_chat(arguments, settings)
        self._settings = settings
        self._arguments = arguments
        self._retokenizer = retokenizer
        self._lm: Any = get_model(settings.backend).create_from_arg_obj(
            {
                "model": arguments.model,
                "base_url": arguments.base_url,
                "tokenizer_backend": None,  # it only makes payloads here
                "tokenized_requests": False,
            }
        )

    def prompt(self, request: Request) -> Any:
        """What is sent of a request: a chat's turns, token ids, or text."""
        if self._arguments.chat:
            return chat_turns(request, self._settings.system_instruction)
        if self._retokenizer is None:
            return request.text
        text = self._retokenizer.render(request)
        return list(self._retokenizer.prompt_ids([text])[0]) if self._arguments.tokenized else text

    def probe(self) -> dict[str, Any]:
        """A short greedy request in OpenAI's own terms."""
        prompt = self.prompt(SHORT)
        return _without_empty(
            self._lm._create_payload(prompt, generate=True, gen_kwargs={"max_gen_toks": 4}, seed=0)
        )

    def generation(
        self, model: str, prompt: Any, decoding: Decoding, seed: int, *, extended: bool
    ) -> dict[str, Any]:
        """One request for one response.

        Args:
            model: the name to ask for: the model's, or its adapter's.
            decoding: how it is decoded; greedy is temperature 0.
            seed: its sample's.
            extended: whether the server takes the fields of ``EXTENSIONS``.

        Raises:
            UserError: the chat ends within the assistant's turn, and the server would close it.
        """
        kwargs = generation_kwargs(decoding)
        kwargs.pop("top_k", None)
        payload: dict[str, Any] = self._lm._create_payload(
            prompt, generate=True, gen_kwargs=kwargs, seed=seed % _SEEDS
        )
        # lm-eval's chat model drops all stop strings after the fourth.
        payload |= {"model": model, "stop": list(decoding.until)}
        if extended:
            payload |= EXTENSIONS
            if decoding.do_sample and decoding.top_k:
                payload["top_k"] = decoding.top_k
            if self._retokenizer is not None:
                # Servers look for stop strings in text that has no special tokens any more.
                payload["stop_token_ids"] = self._retokenizer.special_ids(decoding.until)
            if self._arguments.chat:
                payload["chat_template_kwargs"] = dict(self._arguments.chat_template_args)
        if self._arguments.chat and continues_answer(prompt):
            if not extended:
                raise UserError(
                    "the task begins answers with gen_prefix, and this server only takes chats "
                    "that end with the user's turn; use the backend local-completions, or remove "
                    "gen_prefix from the task"
                )
            payload |= {"add_generation_prompt": False, "continue_final_message": True}
        return _without_empty(payload)


def _check_chat(arguments: ServerArguments, settings: SamplerSettings) -> None:
    check_chat_settings(settings)
    if arguments.chat and not settings.chat_template:
        raise UserError(
            "model.chat_template is false, but the backend 'local-chat-completions' always sends "
            "chats: set it to true, or use local-completions"
        )
    if settings.chat_template and not arguments.chat and not arguments.tokenizer:
        raise UserError(
            "model.chat_template is true, but there is no tokenizer here to render chats: set "
            "model.args.tokenizer_backend to huggingface, or use local-chat-completions"
        )


def _without_empty(payload: dict[str, Any]) -> dict[str, Any]:
    """Leaves out what is empty: some servers refuse an empty list of stop strings."""
    return {key: value for key, value in payload.items() if value not in ([], {}, None)}
