"""Samplers for OpenAI-compatible servers: a request for each sample, with its own seed.

lm-eval's own client sends one seed for all samples, and loses all finished requests of a call when
one fails.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gapft_harness.core.credentials import KEY_VARIABLE, strip_credentials
from gapft_harness.core.errors import GapftError, UserError, did_you_mean
from gapft_harness.core.records import STOP_STRING, Adapter, Decoding, TokensFrom
from gapft_harness.core.weights import weights_hash
from gapft_harness.hooks.protocols import (
    Generated,
    Generation,
    ReportGeneration,
    Request,
    SamplerSettings,
    beyond_context,
)
from gapft_harness.lm_eval_bridge.samplers.adapter_fit import check_adapter
from gapft_harness.lm_eval_bridge.samplers.endings import build_generated
from gapft_harness.lm_eval_bridge.samplers.retokenizer import (
    Retokenizer,
    build_chat_turns,
    check_chat_settings,
    has_chat_template,
    is_answer_begun,
)
from gapft_harness.lm_eval_bridge.samplers.server.arguments import (
    ServerArguments,
    read_arguments,
)
from gapft_harness.lm_eval_bridge.samplers.server.client import (
    Choice,
    RequestError,
    ServerClient,
)
from gapft_harness.lm_eval_bridge.samplers.text import find_fitting

logger = logging.getLogger(__name__)

#: Fields beyond OpenAI's, which set every sampling option in the request: vLLM takes missing ones
#: from the model's generation_config, for example a repetition penalty even for greedy decodes.
#: ``top_k`` -1 means no limit in both vLLM and SGLang.
_EXTENSIONS = {"return_token_ids": True, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}

#: Some servers store seeds as signed 32-bit integers. The seeds of one problem's samples still
#: differ (``SampleStreams``).
_SEED_LIMIT = 2**31

#: Prefix of the names of adapters that this package loads.
_ADAPTER_PREFIX = "gapft:"


def _check_settings(settings: SamplerSettings, arguments: ServerArguments) -> None:
    """Check that prompts can be sent as the recipe wants them.

    Raises:
        UserError: they cannot.
    """
    check_chat_settings(settings)
    if settings.start_tokens is not None and not arguments.sends_ids:
        raise UserError(
            f"model.start_tokens: found {settings.start_tokens}, but prompts are sent as text and "
            "the server adds the start tokens; remove tokenizer_backend and tokenized_requests "
            "from model.args, or remove model.start_tokens"
        )
    can_be_text = not arguments.is_chat
    can_be_chat = arguments.is_chat or arguments.has_tokenizer
    if not (can_be_chat if settings.chat_template else can_be_text):
        raise UserError(
            f"model.chat_template: found {settings.chat_template}, but a chat server gets only "
            "chats, and without a local tokenizer (model.args.tokenizer_backend) only it does"
        )


def find_model(settings: SamplerSettings) -> None:
    """Check the arguments and that the server lists the model; generate nothing.

    Args:
        settings: the sampler's settings.

    Raises:
        UserError: as in ``ServerSampler``, except errors that only a response shows.
    """
    arguments = read_arguments(settings)
    _check_settings(settings, arguments)
    with contextlib.closing(ServerClient(arguments)) as client:
        _list_models(client, arguments)


def renders_chats(settings: SamplerSettings) -> bool:
    """Return whether prompts are chats if the recipe does not set it.

    With a chat server they always are; otherwise the local tokenizer decides, if there is one.

    Args:
        settings: the sampler's settings.

    Raises:
        UserError: invalid argument, or tokenizer not found.
    """
    arguments = read_arguments(settings)
    return arguments.is_chat or (arguments.has_tokenizer and has_chat_template(settings))


def _list_models(client: ServerClient, arguments: ServerArguments) -> list[dict[str, Any]]:
    """Return the entries of the server's list of models; none without such a list.

    Raises:
        UserError: no server, a refused key, or an unknown model.
    """
    try:
        reply = client.request_json(arguments.build_url("/models"))
    except RequestError as error:
        if error.status in (None, 401, 403):
            raise _check_error(client, error) from error
        return []
    entries = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(entries, list):
        return []
    models = [entry for entry in entries if isinstance(entry, dict) and "id" in entry]
    names = [str(entry["id"]) for entry in models]
    if arguments.model not in names:
        raise UserError(
            f"{client.name}: unknown model {arguments.model!r}; "
            f"{did_you_mean(arguments.model, names)}; set model.args.model"
        )
    return models


def _check_error(client: ServerClient, error: RequestError) -> UserError:
    """Build the error for a server that fails the first requests."""
    return UserError(
        f"{client.name}: {error}; expected an OpenAI-compatible server at the "
        f"complete URL model.args.base_url, with its key in the variable {KEY_VARIABLE}"
    )


class ServerSampler:
    """A model behind ``/v1/completions`` or ``/v1/chat/completions``.

    Whether the same seed gives the same sample again depends on the server: vLLM's rounding depends
    on the other requests in its batch.
    """

    def __init__(self, settings: SamplerSettings, adapter: Adapter | None) -> None:
        """Check arguments and server, and make the server load the adapter if there is one.

        Args:
            settings: ``model_args`` as for ``lm_eval --model local-completions``; see
                docs/samplers.md for the defaults that differ.
            adapter: a PEFT folder that the server can read, or None for the source model.

        Raises:
            UserError: invalid argument; no server, or one that is not OpenAI-compatible, lacks
                the model, refuses the key or cannot serve the adapter; missing tokenizer.
        """
        self._settings = settings
        self._adapter = adapter
        self._arguments = read_arguments(settings)
        _check_settings(settings, self._arguments)
        self._client = ServerClient(self._arguments)
        self._models = _list_models(self._client, self._arguments)
        self._model = self._arguments.model
        self._card = next((entry for entry in self._models if entry["id"] == self._model), {})
        self._retokenizer = Retokenizer(settings) if self._arguments.has_tokenizer else None
        self._decode = self._retokenizer.decode if self._retokenizer else None
        self._has_extensions = True
        self._has_token_ids = self._probe().token_ids is not None
        if adapter is not None:
            self._model = self._serve_adapter(adapter)

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Generate the responses to every request, in order; see ``protocols.Sampler``.

        A prompt that does not fit gets ``beyond_context``. If its length or the context is
        unknown, it is sent, and the server's reply decides.

        Raises:
            UserError: the server refuses a request permanently.
            GapftError: a request failed in all attempts.
        """
        if decoding.top_k:
            section = "search.deployment" if decoding.samples_deployment else "search"
            self._require_extensions(f"{section}.top_k")
        prompts = [self._build_prompt(request) for request in requests]
        fits = self._find_fitting(requests, prompts, decoding)
        sent = [
            (request, self._build_payload(prompt, decoding.for_index(index), seed))
            for request, prompt, fit in zip(requests, prompts, fits, strict=True)
            if fit
            for index, seed in zip(request.indices, request.seeds, strict=True)
        ]
        choices = iter(self._complete_all(sent, report))
        return [
            self._build_generated(request, prompt, [next(choices) for _ in request.indices])
            if fit
            else beyond_context(request)
            for request, prompt, fit in zip(requests, prompts, fits, strict=True)
        ]

    def describe(self) -> dict[str, Any]:
        """Return server, model and settings, without the key."""
        token_source = "retokenized" if self._retokenizer else "none"
        return {
            "backend": self._settings.backend,
            "pretrained": str(self._settings.model_args.get("pretrained")),
            "url": strip_credentials(self._arguments.base_url),
            "model": self._model,
            "server": {
                "version": self._ask_version(),
                "owned_by": self._card.get("owned_by"),
                "max_model_len": self._card.get("max_model_len"),
                "sampling_settings_complete": self._has_extensions,
            },
            "tokenizer": self._retokenizer.name if self._retokenizer else None,
            "token_ids": "generator" if self._has_token_ids else token_source,
            "chat_template": self._settings.chat_template,
            "system_instruction": self._settings.system_instruction,
            "start_ids": self._retokenizer.start_ids if self._retokenizer else None,
            "adapter": self._adapter and self._adapter.arm.name,
            "versions": {name: version(name) for name in ("lm_eval", "httpx")},
        }

    def close(self) -> None:
        """Unload the adapter from the server if this sampler loaded it."""
        if self._model.startswith(_ADAPTER_PREFIX):
            url = self._arguments.build_url("/unload_lora_adapter")
            try:
                self._client.request_json(url, {"lora_name": self._model})
            except RequestError as error:
                logger.warning("%s: cannot unload %s: %s", self._client.name, self._model, error)
        self._client.close()

    # Before anything is generated

    def _probe(self) -> Choice:
        """Ask for one short greedy response; find out whether the server takes the extensions.

        Raises:
            UserError: it fails, or the local tokenizer is not the served model's.
        """
        try:
            try:
                choice = self._send_probe()
            except RequestError as error:
                if error.status not in (400, 422):
                    raise
                self._has_extensions = False
                choice = self._send_probe()
        except RequestError as error:
            raise _check_error(self._client, error) from error
        if self._arguments.is_chat and self._arguments.chat_template_args:
            self._require_extensions("model.args.chat_template_args")
        self._check_tokenizer(choice)
        return choice

    def _send_probe(self) -> Choice:
        prompt = self._build_prompt(Request("probe", "Hello.", (0,), (0,)))
        payload = self._build_payload(prompt, Decoding(False, 4), 0)
        return self._client.complete(payload, retry_failures=False)

    def _require_extensions(self, key: str) -> None:
        """Check that the server takes vLLM's fields.

        Raises:
            UserError: it does not; the message names the key that needs one.
        """
        if not self._has_extensions:
            raise UserError(
                f"{key}: not supported by the {self._client.name}, which takes only OpenAI's "
                "fields; remove it, or use the backend local-completions"
            )

    def _check_tokenizer(self, choice: Choice) -> None:
        """Compare the server's text with the local decoding of its ids, to find a wrong tokenizer.

        Raises:
            UserError: they differ.
        """
        ids = choice.find_text_ids(self._decode)
        if self._decode is None or ids is None:
            return
        # At the borders, decoding token by token may differ by a space or half a character.
        ours, theirs, reasoning = (
            text.strip("\ufffd").strip()
            for text in (self._decode(ids), choice.content, choice.reasoning)
        )
        # the tags around a separate reasoning are only in the ids
        is_same = ours.endswith(theirs) and reasoning in ours if reasoning else ours == theirs
        if not is_same:
            raise UserError(
                f"{self._client.name}: wrong tokenizer: it decodes the server's ids to {ours!r}, "
                f"the server to {theirs!r}; set model.args.tokenizer to that of the served model"
            )

    def _ask_version(self) -> str | None:
        """Ask for vLLM's version, at ``/version`` beside ``/v1``."""
        url = self._arguments.build_url("/version").replace("/v1/version", "/version")
        try:
            reply = self._client.request_json(url)
        except RequestError:
            return None
        return reply.get("version") if isinstance(reply, dict) else None

    def _serve_adapter(self, adapter: Adapter) -> str:
        """Find an adapter on the server, or load it; return its name on the server.

        An adapter that the server was started with is found by its folder (``root`` in vLLM's list
        of models). Any other is loaded by vLLM's ``/v1/load_lora_adapter``; server and run must see
        the same folder. Adapters that another sampler loaded are not used, since it will unload
        them.

        Raises:
            UserError: the server can do neither; the message shows how to start it.
        """
        rank = check_adapter(adapter, self._settings.model_args)
        folder = Path(adapter.path).resolve()
        for entry in self._models:
            name = str(entry["id"])
            is_here = Path(str(entry.get("root"))) == folder
            if entry.get("parent") and is_here and not name.startswith(_ADAPTER_PREFIX):
                return name
        # a different name each time, so that no other sampler unloads this adapter
        weights = weights_hash(folder)[:16]
        own_name = f"{_ADAPTER_PREFIX}{adapter.name}:{weights}:{secrets.token_hex(4)}"
        try:
            self._client.request_json(
                self._arguments.build_url("/load_lora_adapter"),
                {"lora_name": own_name, "lora_path": str(folder)},
            )
        except RequestError as error:
            raise UserError(
                f"{self._client.name}: cannot load the trained adapter {adapter.arm.name} from "
                f"{folder}: {error}; the server must see this folder and "
                "serve the adapter's base; start vLLM with "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora "
                f"--max-lora-rank {rank}, then run the same command"
            ) from error
        return own_name

    # Requests

    def _build_prompt(self, request: Request) -> Any:
        """Return the prompt in the form that is sent: turns of a chat, token ids, or text."""
        if self._arguments.is_chat:
            return build_chat_turns(request, self._settings.system_instruction)
        text = self._render(request)
        if self._retokenizer is None or not self._arguments.sends_ids:
            return text
        return list(self._retokenizer.prompt_ids([text])[0])

    def _render(self, request: Request) -> str:
        """Return the prompt as text; with a local tokenizer, rendered as a chat if requested."""
        return request.text if self._retokenizer is None else self._retokenizer.render(request)

    def _build_payload(self, prompt: Any, decoding: Decoding, seed: int) -> dict[str, Any]:
        """Build the request for one response, with lm-eval's fields and the sample's seed.

        Raises:
            UserError: the chat ends inside the assistant's turn, which the server would close.
        """
        is_chat = self._arguments.is_chat
        payload: dict[str, Any] = {
            "messages" if is_chat else "prompt": prompt,
            "model": self._model,
            "max_tokens": decoding.max_gen_toks,
            "temperature": decoding.temperature if decoding.do_sample else 0,
            "stop": list(decoding.until),
            "seed": seed % _SEED_LIMIT,
        }
        if decoding.do_sample:
            payload["top_p"] = decoding.top_p
        if self._has_extensions:
            payload |= _EXTENSIONS
            if decoding.do_sample and decoding.top_k:
                payload["top_k"] = decoding.top_k
            if self._retokenizer is not None:
                # Servers search stop strings in text without special tokens.
                payload["stop_token_ids"] = self._retokenizer.special_ids(decoding.until)
            if is_chat:
                payload["chat_template_kwargs"] = self._arguments.chat_template_args
        if is_chat and is_answer_begun(prompt):
            self._require_extensions("gen_prefix of the task")
            payload |= {"add_generation_prompt": False, "continue_final_message": True}
        # some servers refuse an empty list of stop strings
        return {key: value for key, value in payload.items() if value not in ([], {})}

    def _find_fitting(
        self, requests: Sequence[Request], prompts: Sequence[Any], decoding: Decoding
    ) -> list[bool]:
        """Return for each prompt whether it fits the context; True if that is unknown.

        Raises:
            UserError: a prompt is empty; it would be sent as a request without a prompt.
        """
        context = self._arguments.max_length or self._card.get("max_model_len")
        is_known = self._arguments.sends_ids and isinstance(context, int)
        lengths = [len(prompt) for prompt in prompts]
        return find_fitting(requests, lengths, decoding, context if is_known else None)

    def _complete_all(
        self,
        sent: Sequence[tuple[Request, Mapping[str, Any]]],
        report: ReportGeneration,
    ) -> list[Choice | None]:
        """Send requests and return the replies; None for prompts that do not fit the context.

        Raises:
            UserError: the server refuses a request.
            GapftError: a request failed in all attempts.
        """
        finished = tokens = 0

        def count(choice: Choice) -> None:
            nonlocal finished, tokens
            finished, tokens = finished + 1, tokens + len(choice.token_ids or ())
            report(finished, tokens)

        outcomes = self._client.complete_all([payload for _, payload in sent], count)
        for outcome, (request, _) in zip(outcomes, sent, strict=True):
            if not isinstance(outcome, RequestError) or outcome.is_too_long:
                continue
            reason = f"problem {request.problem_id}: {outcome}"
            if not outcome.is_temporary:
                raise UserError(f"{self._client.name}: refused {reason}") from outcome
            raise GapftError(
                f"{self._client.name}: failed in each of {self._arguments.max_retries} attempts "
                f"for {reason}. {finished} of {len(sent)} requests of this chunk finished. All "
                "earlier chunks are kept: run the same command again when the server is available"
            ) from outcome
        return [outcome if isinstance(outcome, Choice) else None for outcome in outcomes]

    # Replies

    def _build_generated(
        self, request: Request, prompt: Any, choices: Sequence[Choice | None]
    ) -> Generated:
        """Build the result of one request, with the most exact token ids."""
        answers = [choice for choice in choices if choice is not None]
        if len(answers) < len(choices):
            return beyond_context(request)
        prompt_ids: tuple[int, ...] = ()
        if self._arguments.sends_ids:
            prompt_ids = tuple(prompt)
        elif answers and answers[0].prompt_token_ids is not None:
            prompt_ids = answers[0].prompt_token_ids
        elif self._retokenizer is not None:
            prompt_ids = self._retokenizer.prompt_ids([self._render(request)])[0]
        # a chat server with a reasoning parser removes the closing tag, so it is not known here
        text = "" if self._arguments.is_chat else self._render(request)
        return build_generated(prompt_ids, text, map(self._build_generation, answers))

    def _build_generation(self, choice: Choice) -> Generation:
        ids = choice.find_text_ids(self._decode)
        tokens_from: TokensFrom = "generator"
        if ids is None:
            ids = ()
            tokens_from = "none"
            if self._retokenizer is not None:
                parts = self._retokenizer.response_ids([choice.reasoning, choice.content])
                ids = (*parts[0], *parts[1])
                tokens_from = "retokenized"
        is_known = choice.finish_reason in ("stop", "length")
        finish_reason = choice.finish_reason if is_known else "unknown"
        if choice.stop_string:
            finish_reason = STOP_STRING
        return Generation(
            choice.content,
            ids,
            str(finish_reason),
            tokens_from,
            choice.stop_string,
            choice.reasoning,
        )
