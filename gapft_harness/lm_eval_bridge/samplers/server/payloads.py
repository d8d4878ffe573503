"""Build requests to a server: the payloads of lm-eval's API models, with a seed per sample."""

from __future__ import annotations

from typing import Any

from lm_eval.api.registry import get_model

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Decoding
from gapft_harness.hooks.protocols import Request, SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.retokenizer import (
    Retokenizer,
    build_chat_turns,
    check_chat_settings,
    is_answer_begun,
)
from gapft_harness.lm_eval_bridge.samplers.server.arguments import ServerArguments
from gapft_harness.lm_eval_bridge.samplers.server.checks import EXTENSIONS
from gapft_harness.lm_eval_bridge.samplers.text import build_generation_kwargs

#: Upper limit of seeds: some servers store them as signed 32-bit integers. The seeds of one
#: problem's samples still differ (``SampleStreams``).
_SEED_LIMIT = 2**31

#: A short request, which fits any usable context.
SHORT_REQUEST = Request("probe", "Hello.", (0,), (0,))


class Payloads:
    """Builds requests with lm-eval's own class, and replaces its single seed."""

    def __init__(
        self,
        settings: SamplerSettings,
        arguments: ServerArguments,
        retokenizer: Retokenizer | None,
    ) -> None:
        """Create lm-eval's model; nothing is sent.

        Raises:
            UserError: the chat settings do not match the backend.
        """
        _check_chat(arguments, settings)
        self._settings = settings
        self._arguments = arguments
        self._retokenizer = retokenizer
        self._lm: Any = get_model(settings.backend).create_from_arg_obj(
            {
                "model": arguments.model,
                "base_url": arguments.base_url,
                "tokenizer_backend": None,  # it only builds payloads
                "tokenized_requests": False,
            }
        )

    def build_prompt(self, request: Request) -> Any:
        """Return the prompt in the form that is sent: turns of a chat, token ids, or text."""
        if self._arguments.is_chat:
            return build_chat_turns(request, self._settings.system_instruction)
        text = self.render(request)
        if self._retokenizer is None or not self._arguments.sends_ids:
            return text
        return list(self._retokenizer.prompt_ids([text])[0])

    def render(self, request: Request) -> str:
        """Return the prompt as text; with a local tokenizer, rendered as a chat if requested."""
        return request.text if self._retokenizer is None else self._retokenizer.render(request)

    def build_probe(self) -> dict[str, Any]:
        """Build a short greedy request with OpenAI's own fields."""
        prompt = self.build_prompt(SHORT_REQUEST)
        return _drop_empty(
            self._lm._create_payload(prompt, generate=True, gen_kwargs={"max_gen_toks": 4}, seed=0)
        )

    def build_generation(
        self, model: str, prompt: Any, decoding: Decoding, seed: int, *, has_extensions: bool
    ) -> dict[str, Any]:
        """Build the request for one response.

        Args:
            model: the name of the model or of its adapter.
            prompt: the result of ``build_prompt``.
            decoding: how it is decoded; greedy is temperature 0.
            seed: the sample's seed.
            has_extensions: whether the server accepts the fields of ``EXTENSIONS``.

        Raises:
            UserError: the chat ends inside the assistant's turn, which the server would close.
        """
        kwargs = build_generation_kwargs(decoding)
        kwargs.pop("top_k", None)
        payload: dict[str, Any] = self._lm._create_payload(
            prompt, generate=True, gen_kwargs=kwargs, seed=seed % _SEED_LIMIT
        )
        # lm-eval's chat model drops all stop strings after the fourth.
        payload |= {"model": model, "stop": list(decoding.until)}
        if has_extensions:
            payload |= EXTENSIONS
            if decoding.do_sample and decoding.top_k:
                payload["top_k"] = decoding.top_k
            if self._retokenizer is not None:
                # Servers search stop strings in text without special tokens.
                payload["stop_token_ids"] = self._retokenizer.special_ids(decoding.until)
            if self._arguments.is_chat:
                payload["chat_template_kwargs"] = dict(self._arguments.chat_template_args)
        if self._arguments.is_chat and is_answer_begun(prompt):
            if not has_extensions:
                raise UserError(
                    "gen_prefix: this server only accepts chats that end with the user's turn; "
                    "use the backend local-completions, or remove gen_prefix from the task"
                )
            payload |= {"add_generation_prompt": False, "continue_final_message": True}
        return _drop_empty(payload)


def _check_chat(arguments: ServerArguments, settings: SamplerSettings) -> None:
    check_chat_settings(settings)
    if arguments.is_chat and not settings.chat_template:
        raise UserError(
            "model.chat_template: found false, but the backend 'local-chat-completions' always "
            "sends chats; set it to true, or use local-completions"
        )
    if settings.chat_template and not arguments.is_chat and not arguments.has_tokenizer:
        raise UserError(
            "model.chat_template: found true, but there is no local tokenizer to render chats; set "
            "model.args.tokenizer_backend to huggingface, or use local-chat-completions"
        )


def _drop_empty(payload: dict[str, Any]) -> dict[str, Any]:
    """Remove empty values: some servers refuse an empty list of stop strings."""
    return {key: value for key, value in payload.items() if value not in ([], {}, None)}
