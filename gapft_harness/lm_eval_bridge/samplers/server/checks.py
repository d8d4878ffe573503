"""Check a server and its abilities before anything expensive starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.core.credentials import KEY_VARIABLE, strip_credentials
from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.lm_eval_bridge.samplers.server.arguments import PATHS, ServerArguments
from gapft_harness.lm_eval_bridge.samplers.server.client import ServerClient, find_proxy
from gapft_harness.lm_eval_bridge.samplers.server.replies import (
    ServerError,
    ServerReply,
    parse_json,
    read_reply,
)

#: Fields beyond OpenAI's, which set every sampling option in the request: vLLM takes missing ones
#: from the model's generation_config, for example a repetition penalty even for greedy decodes.
#: ``top_k`` -1 means no limit in both vLLM and SGLang.
EXTENSIONS: Mapping[str, Any] = {
    "return_token_ids": True,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The properties of a server.

    Attributes:
        models: the entries of its ``/v1/models``; None without such a list.
        version: the version from ``/version``; None without one.
        has_extensions: whether it accepts the fields of ``EXTENSIONS``.
        has_token_ids: whether it returns the generated ids.
    """

    models: tuple[Mapping[str, Any], ...] | None
    version: str | None
    has_extensions: bool
    has_token_ids: bool

    def find_entry(self, name: str) -> Mapping[str, Any]:
        """Find the entry of a model; empty without one."""
        return next((entry for entry in self.models or () if entry["id"] == name), {})


def probe_server(
    client: ServerClient,
    arguments: ServerArguments,
    probe: Mapping[str, Any],
    decode: Callable[[Sequence[int]], str] | None,
) -> ServerFacts:
    """Ask the server for its models and version, and for one short greedy response.

    Args:
        client: the client.
        arguments: the checked model arguments.
        probe: the payload for the short response, without ``EXTENSIONS``.
        decode: returns the text of ids by the local tokenizer; None without one.

    Raises:
        UserError: no server, a wrong path, key or model, an invalid reply, or a tokenizer that is
            not the served model's.
    """
    models = check_model(client, arguments)
    try:
        reply = client.send("POST", arguments.base_url, read_reply, {**probe, **EXTENSIONS})
        has_extensions = True
    except ServerError as error:
        if error.status not in (400, 422):
            raise _failed_check_error(arguments, error) from error
        try:
            reply = client.send("POST", arguments.base_url, read_reply, dict(probe))
        except ServerError as plain:
            raise _failed_check_error(arguments, plain) from plain
        has_extensions = False
    _check_tokenizer(arguments, reply, decode)
    return ServerFacts(
        models, _ask_version(client, arguments), has_extensions, reply.token_ids is not None
    )


def check_model(
    client: ServerClient, arguments: ServerArguments
) -> tuple[Mapping[str, Any], ...] | None:
    """Check that the server lists the model; return the list, or None without one.

    Raises:
        UserError: no server, a refused key, or an unknown model.
    """
    models = _list_models(client, arguments)
    if models is not None and arguments.model not in [entry["id"] for entry in models]:
        names = [str(entry["id"]) for entry in models]
        raise UserError(
            f"{_format_server(arguments)}: unknown model {arguments.model!r}; "
            f"{did_you_mean(arguments.model, names)}; set model.args.model"
        )
    return models


def _list_models(
    client: ServerClient, arguments: ServerArguments
) -> tuple[Mapping[str, Any], ...] | None:
    try:
        reply = client.send("GET", arguments.build_url("models"), parse_json)
    except ServerError as error:
        if error.status is None or error.status in (401, 403):
            raise _failed_check_error(arguments, error) from error
        return None
    entries = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(entries, list):
        return None
    return tuple(entry for entry in entries if isinstance(entry, dict) and "id" in entry)


def _failed_check_error(arguments: ServerArguments, error: ServerError) -> UserError:
    """Build the error for a failed check, with a remedy."""
    server, end = _format_server(arguments), PATHS[arguments.backend]
    detail = f" ({error.detail})" if error.detail else ""
    if error.status in (401, 403):
        remedy = f"refuses the key{detail}; set the environment variable {KEY_VARIABLE}"
    elif error.status == 404:
        remedy = (
            f"path or model not found{detail}; expected the complete URL of the "
            f"server's {end}, as http://HOST:8000/v1{end}"
        )
    elif error.status == 405:
        remedy = f"no requests accepted at this path{detail}; expected a path that ends in {end}"
    elif error.summary in ("no JSON", "no OpenAI reply"):
        remedy = (
            f"the reply has not OpenAI's form{detail}; check that this is an OpenAI-compatible "
            "server and that the path is right"
        )
    elif error.summary == "no connection" and (proxy := find_proxy(arguments.base_url)) is not None:
        remedy = (
            f"cannot be reached through the proxy {strip_credentials(proxy)}{detail}, which "
            "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY sets; correct it, or add the server to NO_PROXY"
        )
    elif error.summary == "no connection":
        remedy = f"cannot be reached{detail}; start the server, or correct model.args.base_url"
    else:
        remedy = f"the first short request failed: {error.summary}{detail}; see the server's log"
    return UserError(f"{server}: {remedy}")


def _check_tokenizer(
    arguments: ServerArguments,
    reply: ServerReply,
    decode: Callable[[Sequence[int]], str] | None,
) -> None:
    """Compare the server's text with the local decoding of its ids, to find a wrong tokenizer."""
    ids = reply.find_text_ids(decode)
    if decode is None or ids is None:
        return
    # At the borders, decoding token by token may differ by a space or half a character.
    ours, theirs, reasoning = (
        text.strip("\ufffd").strip() for text in (decode(ids), reply.text, reply.reasoning)
    )
    # the tags around a separate reasoning are only in the ids
    is_same = ours.endswith(theirs) and reasoning in ours if reasoning else ours == theirs
    if not is_same:
        raise UserError(
            f"{_format_server(arguments)}: wrong tokenizer: it decodes the server's ids to "
            f"{ours!r}, the server to {theirs!r}; set model.args.tokenizer to that of the served "
            "model"
        )


def _ask_version(client: ServerClient, arguments: ServerArguments) -> str | None:
    try:
        reply = client.send("GET", arguments.version_url, parse_json)
    except ServerError:
        return None
    version = reply.get("version") if isinstance(reply, dict) else None
    return version if isinstance(version, str) else None


def _format_server(arguments: ServerArguments) -> str:
    return f"server {strip_credentials(arguments.base_url)}"
