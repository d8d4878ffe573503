"""Samplers on OpenAI-compatible servers, through lm-eval's API models."""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lm_eval.api.registry import get_model

from gapft_harness.credentials import without_credentials
from gapft_harness.errors import GapftError, UserError
from gapft_harness.lm_eval_bridge.model_identity import weights_hash
from gapft_harness.lm_eval_bridge.retokenizer import Retokenizer, chat_turns, check_chat_settings
from gapft_harness.lm_eval_bridge.samplers import generation_kwargs
from gapft_harness.lm_eval_bridge.server_adapters import OURS, serve_adapter, unload_adapter
from gapft_harness.lm_eval_bridge.server_arguments import ServerArguments, check_arguments
from gapft_harness.lm_eval_bridge.server_checks import EXTENSIONS, ServerFacts, examine
from gapft_harness.lm_eval_bridge.server_client import (
    Outcomes,
    PassingError,
    Patience,
    ServerClient,
    ServerError,
)
from gapft_harness.lm_eval_bridge.server_replies import ServerReply, read_reply
from gapft_harness.protocols import Generated, Generation, Request, SamplerSettings
from gapft_harness.records import Adapter, Decoding
from gapft_harness.streams import derive

logger = logging.getLogger(__name__)

_SEEDS = 2**31
#: Odd, so that the seeds of one prompt's samples are all different; far from 0, so that they
#: share few bits.
_STRIDE = 0x61C88647


def sample_seed(seed: int, problem_id: str, index: int) -> int:
    """The seed of one request, below 2^31; those of one problem's indices are all different.

    Args:
        seed: of the chunk.
        problem_id: the problem.
        index: the decode index.
    """
    return (derive(seed, "server", problem_id) + index * _STRIDE) % _SEEDS


class ServerSampler:
    """A model behind ``/v1/completions`` or ``/v1/chat/completions``.

    Every sample is a request with a seed of its own. Whether the same seed gives the same sample
    again is the server's affair: vLLM's arithmetic depends on what else is in its batch.
    """

    def __init__(
        self, settings: SamplerSettings, adapter: Adapter | None, patience: Patience | None = None
    ) -> None:
        """Checks arguments and server, and has the server load the adapter if there is one.

        Args:
            settings: ``model_args`` as for ``lm_eval --model local-completions``; see
                docs/samplers.md for the defaults that differ.
            adapter: a PEFT folder that the server must see too, or None for the source model.
            patience: how failed requests are tried again; by default ``max_retries`` times.

        Raises:
            UserError: a wrong argument; no server, or one that is not OpenAI-compatible, lacks
                the model, refuses the key or cannot serve the adapter; no tokenizer.
        """
        arguments = check_arguments(settings.backend, settings.model_args)
        _check_chat(arguments, settings)
        self._settings = settings
        self._arguments = arguments
        self._retokenizer = Retokenizer(settings) if arguments.tokenizer else None
        self._lm: Any = get_model(settings.backend).create_from_arg_obj(_of_lm_eval(arguments))
        patience = patience or Patience(arguments.tries)
        self._tries = patience.tries
        self._client = ServerClient(
            _headers(self._lm.api_key, settings.model_args.get("header") or {}),
            arguments.timeout,
            arguments.concurrent,
            patience,
            _ssl(settings.model_args),
        )
        self._facts = self._examined()
        self._adapter = adapter
        self._weights = weights_hash(Path(adapter.path)) if adapter else None
        self._model = arguments.model
        if adapter is not None and self._weights is not None:
            self._model = serve_adapter(
                self._client, arguments, self._facts, adapter, self._weights
            )

    def generate(
        self, requests: Sequence[Request], decoding: Decoding, seed: int
    ) -> list[Generated]:
        """Answers every request, in order; see ``protocols.Sampler``.

        Raises:
            UserError: the server refuses a request for good, such as a prompt that is too long.
            GapftError: requests failed as often as they are tried.
        """
        if decoding.top_k and not self._facts.extended:
            raise UserError(
                f"search.top_k is {decoding.top_k}, but the server {self._url} refuses top_k; "
                "set it to 0"
            )
        prompts = [self._prompt(request) for request in requests]
        self._check_lengths(requests, prompts, decoding)
        payloads = [
            self._payload(prompt, decoding, sample_seed(seed, request.problem_id, index))
            for request, prompt in zip(requests, prompts, strict=True)
            for index in request.indices
        ]
        asked = [request for request in requests for _ in request.indices]
        replies = iter(self._answers(asked, payloads))
        return [
            self._generated(request, prompt, [next(replies) for _ in request.indices])
            for request, prompt in zip(requests, prompts, strict=True)
        ]

    def describe(self) -> dict[str, Any]:
        """Server, model and settings; never a key."""
        card = self._facts.model(self._arguments.model)
        return {
            "backend": self._settings.backend,
            "pretrained": str(self._settings.model_args.get("pretrained")),
            "url": self._url,
            "model": self._model,
            "server": {
                "version": self._facts.version,
                "owned_by": card.get("owned_by"),
                "max_model_len": card.get("max_model_len"),
                "sampling_settings_complete": self._facts.extended,
            },
            "tokenizer": self._retokenizer.name if self._retokenizer else None,
            "token_ids": "generator" if self._facts.token_ids else "retokenized",
            "chat_template": self._settings.chat_template,
            "system_instruction": self._settings.system_instruction,
            "num_concurrent": self._arguments.concurrent,
            "max_retries": self._tries,
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
        """Takes an adapter that this sampler loaded off the server."""
        if self._model.startswith(OURS):
            try:
                unload_adapter(self._client, self._arguments, self._model)
            except ServerError as error:
                logger.warning(
                    "%s: still holds the adapter %s: %s", self._url, self._model, error.what
                )

    @property
    def _url(self) -> str:
        return without_credentials(self._arguments.base_url)

    def _examined(self) -> ServerFacts:
        probe = Request("probe", "Hello.", (0,))
        payload = self._lm._create_payload(
            self._prompt(probe), generate=True, gen_kwargs={"max_gen_toks": 4}, seed=0
        )
        decode = self._retokenizer.decode if self._retokenizer else None
        return examine(self._client, self._arguments, _without_empty(payload), decode)

    def _prompt(self, request: Request) -> Any:
        """What is sent: a chat's turns, token ids, or text."""
        if self._arguments.chat:
            return chat_turns(request, self._settings.system_instruction)
        if self._retokenizer is None:
            return request.text
        text = self._retokenizer.render(request)
        return list(self._retokenizer.prompt_ids([text])[0]) if self._arguments.tokenized else text

    def _payload(self, prompt: Any, decoding: Decoding, seed: int) -> dict[str, Any]:
        """One request as lm-eval's class makes it, but for its seed and what it would cut off."""
        kwargs = generation_kwargs(decoding)
        kwargs.pop("top_k", None)
        payload: dict[str, Any] = self._lm._create_payload(
            prompt, generate=True, gen_kwargs=kwargs, seed=seed
        )
        # lm-eval's chat model drops all stop strings after the fourth.
        payload |= {"model": self._model, "stop": list(decoding.until)}
        if self._facts.extended:
            payload |= EXTENSIONS
            if decoding.do_sample and decoding.top_k:
                payload["top_k"] = decoding.top_k
            if self._retokenizer is not None:
                # Servers look for stop strings in text that has no special tokens any more.
                payload["stop_token_ids"] = self._retokenizer.special_ids(decoding.until)
            if self._arguments.chat:
                payload["chat_template_kwargs"] = dict(self._arguments.chat_template_args)
        return _without_empty(payload)

    def _answers(
        self, asked: Sequence[Request], payloads: Sequence[Mapping[str, Any]]
    ) -> list[ServerReply]:
        outcomes = self._client.post_all(self._arguments.base_url, payloads, read_reply)
        if outcomes.errors:
            raise self._failure(asked, outcomes)
        return [reply for reply in outcomes.replies if reply is not None]

    def _failure(self, asked: Sequence[Request], outcomes: Outcomes[ServerReply]) -> GapftError:
        for place, error in outcomes.errors.items():
            if not isinstance(error, PassingError):
                said = f" ({error.detail})" if error.detail else ""
                return UserError(
                    f"server {self._url}: refuses a request for problem "
                    f"{asked[place].problem_id}: {error.what}{said}"
                )
        last = list(outcomes.errors.values())[-1]
        finished = sum(reply is not None for reply in outcomes.replies)
        return GapftError(
            f"server {self._url}: {len(outcomes.errors)} of {len(outcomes.replies)} requests of "
            f"a chunk failed, each {self._tries} times: {outcomes.counts}"
            f"{f'; the last: {last.detail}' if last.detail else ''}. {finished} had finished and "
            f"{outcomes.unsent} were not sent. All earlier chunks are kept; run the same command "
            "when the server answers again"
        )

    def _check_lengths(
        self, requests: Sequence[Request], prompts: Sequence[Any], decoding: Decoding
    ) -> None:
        """Refuses prompts that do not fit, before any request is sent.

        Raises:
            UserError: names the problem.
        """
        context = self._arguments.max_length or self._facts.model(self._arguments.model).get(
            "max_model_len"
        )
        if not isinstance(context, int) or not self._arguments.tokenized:
            return
        room = context - decoding.max_gen_toks
        for request, prompt in zip(requests, prompts, strict=True):
            if not 0 < len(prompt) <= room:
                raise UserError(
                    f"problem {request.problem_id}: its prompt has {len(prompt)} tokens, but the "
                    f"model has room for {room} beside {decoding.max_gen_toks} new ones; lower "
                    "search.max_gen_toks, or take the problem out of the data"
                )

    def _generated(
        self, request: Request, prompt: Any, replies: Sequence[ServerReply]
    ) -> Generated:
        """One request's replies as its answer, with the best token ids to be had."""
        prompt_ids: tuple[int, ...] = ()
        if self._arguments.tokenized:
            prompt_ids = tuple(prompt)
        elif replies and replies[0].prompt_ids is not None:
            prompt_ids = replies[0].prompt_ids
        elif self._retokenizer is not None:
            prompt_ids = self._retokenizer.prompt_ids([self._retokenizer.render(request)])[0]
        return Generated(prompt_ids, tuple(self._generation(reply) for reply in replies))

    def _generation(self, reply: ServerReply) -> Generation:
        decode = self._retokenizer.decode if self._retokenizer else None
        ids, tokens_from = reply.ids_of_text(decode), "generator"
        if ids is None:
            ids, tokens_from = (), "none"
            if self._retokenizer is not None:
                [ids], tokens_from = self._retokenizer.response_ids([reply.text]), "retokenized"
        return Generation(reply.text, ids, reply.finish_reason, tokens_from)


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


def _of_lm_eval(arguments: ServerArguments) -> dict[str, Any]:
    """The arguments for lm-eval's class, which only makes payloads here: it needs no tokenizer."""
    return {
        "model": arguments.model,
        "base_url": arguments.base_url,
        "tokenizer_backend": None,
        "tokenized_requests": False,
        "num_concurrent": arguments.concurrent,
        "max_retries": arguments.tries,
        "timeout": arguments.timeout,
    }


def _headers(key: str, given: Mapping[str, Any]) -> dict[str, str]:
    own = {"Authorization": f"Bearer {key}"} if key else {}
    return own | {str(name): str(value) for name, value in given.items()}


def _ssl(args: Mapping[str, Any]) -> Any:
    """What aiohttp takes for ``ssl``: as lm-eval's ``verify_certificate`` and ``ca_cert_path``."""
    if not args.get("verify_certificate", True):
        return False
    path = args.get("ca_cert_path")
    if path is None:
        return True
    if not os.path.isfile(path):
        raise UserError(f"model.args: ca_cert_path: no file {path!r}; expected a PEM file")
    return ssl.create_default_context(cafile=path)


def _without_empty(payload: dict[str, Any]) -> dict[str, Any]:
    """Leaves out what is empty: some servers refuse an empty list of stop strings."""
    return {key: value for key, value in payload.items() if value not in ([], {}, None)}
