"""Samplers for OpenAI-compatible servers, through lm-eval's API models."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gapft_harness.core.credentials import strip_credentials
from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import STOP_STRING, Adapter, Decoding
from gapft_harness.core.thoughts import opens_thought
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
from gapft_harness.lm_eval_bridge.samplers.endings import separate_open_thought
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer, has_chat_template
from gapft_harness.lm_eval_bridge.samplers.server.arguments import (
    ServerArguments,
    check_arguments,
)
from gapft_harness.lm_eval_bridge.samplers.server.checks import (
    ServerFacts,
    check_model,
    probe_server,
)
from gapft_harness.lm_eval_bridge.samplers.server.client import (
    Outcomes,
    RetryPolicy,
    ServerClient,
    build_client,
)
from gapft_harness.lm_eval_bridge.samplers.server.payloads import SHORT_REQUEST, Payloads
from gapft_harness.lm_eval_bridge.samplers.server.replies import (
    ServerError,
    ServerReply,
    TemporaryError,
    read_reply,
)
from gapft_harness.lm_eval_bridge.samplers.text import find_fitting, require_prompts

logger = logging.getLogger(__name__)


class ServerSampler:
    """A model behind ``/v1/completions`` or ``/v1/chat/completions``.

    Every sample is a request with its own seed. Whether the same seed gives the same sample again
    depends on the server: vLLM's rounding depends on the other requests in its batch.
    """

    def __init__(
        self,
        settings: SamplerSettings,
        adapter: Adapter | None,
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        """Check arguments and server, and make the server load the adapter if there is one.

        Args:
            settings: ``model_args`` as for ``lm_eval --model local-completions``; see
                docs/samplers.md for the defaults that differ.
            adapter: a PEFT folder that the server can read, or None for the source model.
            retry_policy: how failed requests are retried; default: ``max_retries`` attempts.

        Raises:
            UserError: invalid argument; no server, or one that is not OpenAI-compatible, lacks
                the model, refuses the key or cannot serve the adapter; missing tokenizer.
        """
        arguments = _check_settings(settings)
        self._settings = settings
        self._arguments = arguments
        self._retokenizer = Retokenizer(settings) if arguments.has_tokenizer else None
        self._payloads = Payloads(settings, arguments, self._retokenizer)
        retry_policy = retry_policy or RetryPolicy(arguments.attempts)
        self._attempts = retry_policy.attempts
        self._client = build_client(settings, arguments, retry_policy)
        decode = self._retokenizer.decode if self._retokenizer else None
        self._facts = probe_server(self._client, arguments, self._payloads.build_probe(), decode)
        if arguments.is_chat and arguments.chat_template_args and not self._facts.has_extensions:
            raise UserError(
                f"model.args: chat_template_args: not supported by the server {self._url}; remove "
                "them"
            )
        self._adapter = adapter
        self._weights = weights_hash(Path(adapter.path)) if adapter else None
        self._model = arguments.model
        self._checked_limits: set[int] = set()
        if adapter is not None and self._weights is not None:
            rank = check_adapter(adapter, settings.model_args)
            self._model = serve_adapter(
                self._client, arguments, self._facts, adapter, self._weights, rank
            )

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, report: ReportGeneration
    ) -> list[Generated]:
        """Generate the responses to every request, in order; see ``protocols.Sampler``.

        A prompt that does not fit gets ``beyond_context``. If its length or the context is
        unknown, it is sent, and the server's reply decides.

        Raises:
            UserError: the server refuses a request permanently.
            GapftError: requests failed in all attempts.
        """
        if decoding.top_k and not self._facts.has_extensions:
            section = "search.deployment" if decoding.samples_deployment else "search"
            raise UserError(
                f"{section}.top_k: found {decoding.top_k}, but the server {self._url} does not "
                "support top_k; set it to 0"
            )
        prompts = [self._payloads.build_prompt(request) for request in requests]
        fits = self._find_fitting(requests, prompts, decoding)
        payloads = [
            self._payloads.build_generation(
                self._model,
                prompt,
                decoding.for_index(index),
                seed,
                has_extensions=self._facts.has_extensions,
            )
            for request, prompt, fit in zip(requests, prompts, fits, strict=True)
            if fit
            for index, seed in zip(request.indices, request.seeds, strict=True)
        ]
        sent_requests = [r for r, fit in zip(requests, fits, strict=True) if fit for _ in r.indices]
        replies = iter(self._request_replies(sent_requests, payloads, decoding, report))
        return [
            self._build_generated(request, prompt, [next(replies) for _ in request.indices])
            if fit
            else beyond_context(request)
            for request, prompt, fit in zip(requests, prompts, fits, strict=True)
        ]

    def describe(self) -> dict[str, Any]:
        """Return server, model and settings, without the key."""
        card = self._facts.find_entry(self._arguments.model)
        return {
            "backend": self._settings.backend,
            "pretrained": str(self._settings.model_args.get("pretrained")),
            "url": self._url,
            "model": self._model,
            "server": {
                "version": self._facts.version,
                "owned_by": card.get("owned_by"),
                "max_model_len": card.get("max_model_len"),
                "sampling_settings_complete": self._facts.has_extensions,
            },
            "tokenizer": self._retokenizer.name if self._retokenizer else None,
            "token_ids": self._find_token_source(),
            "chat_template": self._settings.chat_template,
            "system_instruction": self._settings.system_instruction,
            "start_ids": self._retokenizer.start_ids if self._retokenizer else None,
            "num_concurrent": self._arguments.concurrent,
            "max_retries": self._attempts,
            "timeout": self._arguments.timeout,
            "adapter": self._adapter
            and {
                "arm": self._adapter.arm.name,
                "weights_sha256": self._weights,
                "merged": False,
            },
            "versions": {name: version(name) for name in ("lm_eval", "aiohttp")},
        }

    def close(self) -> None:
        """Unload the adapter from the server if this sampler loaded it."""
        if self._model.startswith(ADAPTER_PREFIX):
            try:
                unload_adapter(self._client, self._arguments, self._model)
            except ServerError as error:
                logger.warning(
                    "%s: cannot unload the adapter %s: %s", self._url, self._model, error.summary
                )

    def _find_token_source(self) -> str:
        if self._facts.has_token_ids:
            return "generator"
        return "retokenized" if self._retokenizer else "none"

    @property
    def _url(self) -> str:
        return strip_credentials(self._arguments.base_url)

    def _request_replies(
        self,
        sent_requests: Sequence[Request],
        payloads: Sequence[Mapping[str, Any]],
        decoding: Decoding,
        report: ReportGeneration,
    ) -> list[ServerReply | None]:
        """Send requests and return the replies; None for prompts that do not fit the context."""
        finished = tokens = 0

        def read(body: bytes) -> ServerReply:
            nonlocal finished, tokens
            reply = read_reply(body)
            finished += 1
            tokens += len(reply.token_ids or ())
            report(finished, tokens)
            return reply

        outcomes = self._client.post_all(self._arguments.base_url, payloads, read)
        if outcomes.errors:
            raise self._failure_error(sent_requests, outcomes)
        if outcomes.too_long and decoding.max_gen_toks not in self._checked_limits:
            self._require_room(decoding)
        return outcomes.replies

    def _require_room(self, decoding: Decoding) -> None:
        """Check that the server accepts a short prompt, after it refused one for its length.

        Raises:
            UserError: it refuses, so ``max_gen_toks`` leaves no room for any prompt.
        """
        prompt, extended = self._payloads.build_prompt(SHORT_REQUEST), self._facts.has_extensions
        payload = self._payloads.build_generation(
            self._model, prompt, decoding, 0, has_extensions=extended
        )
        outcomes = self._client.post_all(self._arguments.base_url, [payload], read_reply)
        if outcomes.too_long:
            raise UserError(
                f"search.max_gen_toks: found {decoding.max_gen_toks}; the server {self._url} "
                "refuses even a short prompt with so many new tokens, since they exceed its "
                "model's context; lower it"
            )
        if outcomes.errors:
            raise self._failure_error([SHORT_REQUEST], outcomes)
        self._checked_limits.add(decoding.max_gen_toks)

    def _failure_error(
        self, sent_requests: Sequence[Request], outcomes: Outcomes[ServerReply]
    ) -> GapftError:
        for place, error in outcomes.errors.items():
            if not isinstance(error, TemporaryError):
                detail = f" ({error.detail})" if error.detail else ""
                return UserError(
                    f"server {self._url}: refused a request for problem "
                    f"{sent_requests[place].problem_id}: {error.summary}{detail}"
                )
        last = list(outcomes.errors.values())[-1]
        finished = sum(reply is not None for reply in outcomes.replies)
        return GapftError(
            f"server {self._url}: {len(outcomes.errors)} of {len(outcomes.replies)} requests of "
            f"a chunk failed in each of {self._attempts} attempts: {outcomes.failure_counts}"
            f"{f'; the last: {last.detail}' if last.detail else ''}. {finished} finished and "
            f"{outcomes.unsent} were not sent. All earlier chunks are kept: run the same command "
            "again when the server is available"
        )

    def _find_fitting(
        self, requests: Sequence[Request], prompts: Sequence[Any], decoding: Decoding
    ) -> list[bool]:
        """Return for each prompt whether it fits the context; True if that is unknown.

        Raises:
            UserError: a prompt is empty; it would be sent as a request without a prompt.
        """
        require_prompts(requests, [len(prompt) for prompt in prompts])
        context = self._arguments.max_length or self._facts.find_entry(self._arguments.model).get(
            "max_model_len"
        )
        if not isinstance(context, int):
            return [True] * len(prompts)
        if self._arguments.sends_ids:
            return find_fitting(requests, [len(prompt) for prompt in prompts], decoding, context)
        return [True] * len(prompts)

    def _build_generated(
        self, request: Request, prompt: Any, answers: Sequence[ServerReply | None]
    ) -> Generated:
        """Build the result of one request from its replies, with the most exact token ids."""
        replies = [reply for reply in answers if reply is not None]
        if len(replies) < len(answers):
            return beyond_context(request)
        prompt_ids: tuple[int, ...] = ()
        if self._arguments.sends_ids:
            prompt_ids = tuple(prompt)
        elif replies and replies[0].prompt_ids is not None:
            prompt_ids = replies[0].prompt_ids
        elif self._retokenizer is not None:
            prompt_ids = self._retokenizer.prompt_ids([self._retokenizer.render(request)])[0]
        # a chat server with a reasoning parser removes the closing tag, so it is not known here
        is_open = not self._arguments.is_chat and opens_thought(self._payloads.render(request))
        return Generated(
            prompt_ids,
            tuple(
                separate_open_thought(self._build_generation(reply), is_open) for reply in replies
            ),
        )

    def _build_generation(self, reply: ServerReply) -> Generation:
        decode = self._retokenizer.decode if self._retokenizer else None
        ids, tokens_from = reply.find_text_ids(decode), "generator"
        if ids is None:
            ids, tokens_from = (), "none"
            if self._retokenizer is not None:
                reasoning_ids, text_ids = self._retokenizer.response_ids(
                    [reply.reasoning, reply.text]
                )
                ids, tokens_from = (*reasoning_ids, *text_ids), "retokenized"
        finish_reason = reply.finish_reason if reply.stop is None else STOP_STRING
        return Generation(
            reply.text, ids, finish_reason, tokens_from, reply.stop or "", reply.reasoning
        )


def find_model(settings: SamplerSettings) -> None:
    """Check the arguments and that the server lists the model; generate nothing.

    Args:
        settings: the sampler's settings.

    Raises:
        UserError: as in ``ServerSampler``, except errors that only a response shows.
    """
    arguments = _check_settings(settings)
    check_model(build_client(settings, arguments, RetryPolicy(1)), arguments)


def renders_chats(settings: SamplerSettings) -> bool:
    """Return whether prompts are chats if the recipe does not set it.

    With a chat server they always are; otherwise the local tokenizer decides, if there is one.

    Args:
        settings: the sampler's settings.

    Raises:
        UserError: invalid argument, or tokenizer not found.
    """
    arguments = check_arguments(settings.backend, settings.model_args)
    return arguments.is_chat or (arguments.has_tokenizer and has_chat_template(settings))


def _check_settings(settings: SamplerSettings) -> ServerArguments:
    """Check the arguments, and that prompts are sent as ids if start tokens are set."""
    arguments = check_arguments(settings.backend, settings.model_args)
    if settings.start_tokens is not None and not arguments.sends_ids:
        raise UserError(
            f"model.start_tokens: found {settings.start_tokens}, but prompts are sent as text and "
            "the server adds the start tokens; remove tokenizer_backend and tokenized_requests "
            "from model.args, so that token ids are sent, or remove model.start_tokens"
        )
    return arguments


#: Prefix of the names of adapters that this package loads.
ADAPTER_PREFIX = "gapft:"


def serve_adapter(
    client: ServerClient,
    arguments: ServerArguments,
    facts: ServerFacts,
    adapter: Adapter,
    weights: str,
    rank: int,
) -> str:
    """Find an adapter on the server, or load it.

    An adapter that the server was started with is found by its folder (``root`` in vLLM's list of
    models). Any other is loaded by vLLM's ``/v1/load_lora_adapter``; server and run must see the
    same folder. Adapters that another sampler loaded are not used, since it will unload them.

    Args:
        client: the client.
        arguments: the checked model arguments.
        facts: the server's properties.
        adapter: the adapter, checked against the model.
        weights: hash of its weights.
        rank: its highest rank.

    Returns:
        The adapter's name on the server.

    Raises:
        UserError: the server can do neither; the message shows how to start it.
    """
    folder = Path(adapter.path).resolve()
    # a different name each time, so that no other sampler unloads this adapter
    ours = f"{ADAPTER_PREFIX}{adapter.name}:{weights[:16]}:{secrets.token_hex(4)}"
    for entry in facts.models or ():
        name = str(entry["id"])
        same_folder = isinstance(entry.get("root"), str) and Path(entry["root"]) == folder
        if entry.get("parent") and same_folder and not name.startswith(ADAPTER_PREFIX):
            return name
    try:
        client.send(
            "POST",
            arguments.build_url("load_lora_adapter"),
            bytes,  # vLLM confirms in plain text
            {"lora_name": ours, "lora_path": str(folder)},
        )
    except ServerError as error:
        raise UserError(_format_refusal(arguments, adapter, rank, error)) from error
    return ours


def unload_adapter(client: ServerClient, arguments: ServerArguments, name: str) -> None:
    """Unload an adapter that this package loaded.

    Raises:
        ServerError: the request failed.
    """
    client.send("POST", arguments.build_url("unload_lora_adapter"), bytes, {"lora_name": name})


def _format_refusal(
    arguments: ServerArguments, adapter: Adapter, rank: int, error: ServerError
) -> str:
    where = f"server {strip_credentials(arguments.base_url)}"
    folder = Path(adapter.path).resolve()
    if error.status in (404, 405):
        # A folder that begins with a dot is temporary (a scaled adapter).
        is_lasting = not folder.name.startswith(".")
        option = f", or with --lora-modules {adapter.arm.name}={folder}" if is_lasting else ""
        return (
            f"{where}: cannot serve the trained adapter {adapter.arm.name}: found no model with "
            f"the root {folder}, and the server does not load adapters at run time; restart vLLM "
            f"with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and --enable-lora --max-lora-rank "
            f"{rank}{option}, then run the same command"
        )
    return (
        f"{where}: cannot load the trained adapter {adapter.arm.name} from {folder}: "
        f"{error.summary} ({error.detail}); the server must see this folder, serve the adapter's "
        f"base model, and allow rank {rank} (--max-lora-rank)"
    )
