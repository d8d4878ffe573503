"""What a server is and can do, asked before anything expensive starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.core.credentials import KEY_VARIABLE, without_credentials
from gapft_harness.core.errors import UserError, did_you_mean
from gapft_harness.lm_eval_bridge.samplers.server.arguments import PATHS, ServerArguments
from gapft_harness.lm_eval_bridge.samplers.server.client import ServerClient, find_proxy
from gapft_harness.lm_eval_bridge.samplers.server.replies import (
    ServerError,
    ServerReply,
    from_json,
    read_reply,
)

#: Fields beyond OpenAI's. They put every sampling setting into the request: vLLM takes those that
#: a request leaves out from the model's generation_config, a repetition penalty even for greedy
#: decodes. ``top_k`` -1 means none in vLLM and SGLang alike.
EXTENSIONS: Mapping[str, Any] = {
    "return_token_ids": True,
    "top_k": -1,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server told of itself.

    Attributes:
        models: the entries of its ``/v1/models``; None where it has no such list.
        version: what its ``/version`` says; None where it says nothing.
        extended: whether it takes the fields of ``EXTENSIONS``.
        token_ids: whether it returns the ids that it generated.
    """

    models: tuple[Mapping[str, Any], ...] | None
    version: str | None
    extended: bool
    token_ids: bool

    def model(self, name: str) -> Mapping[str, Any]:
        """The entry of one model; empty where there is none."""
        return next((entry for entry in self.models or () if entry["id"] == name), {})


def examine(
    client: ServerClient,
    arguments: ServerArguments,
    probe: Mapping[str, Any],
    decode: Callable[[Sequence[int]], str] | None,
) -> ServerFacts:
    """Asks the server for its models and version, and for one short greedy response.

    Args:
        probe: the payload of the short response, without ``EXTENSIONS``.
        decode: gives the text of ids by the tokenizer on this side, if there is one.

    Raises:
        UserError: no server there, a wrong path, key or model, no OpenAI reply, or a tokenizer
            that is not the served model's.
    """
    models = check_model(client, arguments)
    try:
        reply = client.once("POST", arguments.base_url, read_reply, {**probe, **EXTENSIONS})
        extended = True
    except ServerError as error:
        if error.status not in (400, 422):
            raise _explained(arguments, error) from error
        try:
            reply = client.once("POST", arguments.base_url, read_reply, dict(probe))
        except ServerError as plain:
            raise _explained(arguments, plain) from plain
        extended = False
    _check_tokenizer(arguments, reply, decode)
    return ServerFacts(models, _version(client, arguments), extended, reply.token_ids is not None)


def check_model(
    client: ServerClient, arguments: ServerArguments
) -> tuple[Mapping[str, Any], ...] | None:
    """Looks for the model in the server's list; gives the list, or None where there is none.

    Raises:
        UserError: no server there, or it refuses the key or has no such model.
    """
    models = _list_models(client, arguments)
    if models is not None and arguments.model not in [entry["id"] for entry in models]:
        names = [str(entry["id"]) for entry in models]
        raise UserError(
            f"{_shown(arguments)}: serves no model {arguments.model!r}; "
            f"{did_you_mean(arguments.model, names)}; set model.args.model"
        )
    return models


def _list_models(
    client: ServerClient, arguments: ServerArguments
) -> tuple[Mapping[str, Any], ...] | None:
    try:
        found = client.once("GET", arguments.url("models"), from_json)
    except ServerError as error:
        if error.status is None or error.status in (401, 403):
            raise _explained(arguments, error) from error
        return None
    entries = found.get("data") if isinstance(found, dict) else None
    if not isinstance(entries, list):
        return None
    return tuple(entry for entry in entries if isinstance(entry, dict) and "id" in entry)


def _explained(arguments: ServerArguments, error: ServerError) -> UserError:
    """A failed check as one sentence that says what to do."""
    where, end = _shown(arguments), PATHS[arguments.backend]
    said = f" ({error.detail})" if error.detail else ""
    if error.status in (401, 403):
        remedy = f"refuses the key{said}; set the environment variable {KEY_VARIABLE}"
    elif error.status == 404:
        remedy = (
            f"has nothing at this path, or no such model{said}; expected the whole URL of the "
            f"server's {end}, as http://HOST:8000/v1{end}"
        )
    elif error.status == 405:
        remedy = f"takes no requests at this path{said}; expected one that ends in {end}"
    elif error.what in ("no JSON", "no OpenAI reply"):
        remedy = (
            f"gives no OpenAI reply{said}; is it an OpenAI-compatible server, and the path right?"
        )
    elif error.what == "no connection" and (proxy := find_proxy(arguments.base_url)) is not None:
        remedy = (
            f"cannot be reached through the proxy {without_credentials(proxy)}{said}, which "
            "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY names; correct it, or name the server in NO_PROXY"
        )
    elif error.what == "no connection":
        remedy = f"cannot be reached{said}; start the server, or correct model.args.base_url"
    else:
        remedy = f"failed on a first short request: {error.what}{said}; look at the server's log"
    return UserError(f"{where}: {remedy}")


def _check_tokenizer(
    arguments: ServerArguments,
    reply: ServerReply,
    decode: Callable[[Sequence[int]], str] | None,
) -> None:
    """Compares the server's text of its ids with ours: another tokenizer gives another text."""
    ids = reply.ids_of_text(decode)
    if decode is None or ids is None:
        return
    # At the borders, tokenizers differ by a space or half a character between one call and many.
    ours, theirs = (text.strip("\ufffd").strip() for text in (decode(ids), reply.text))
    if ours != theirs:
        raise UserError(
            f"{_shown(arguments)}: the tokenizer given here reads the server's ids as {ours!r}, "
            f"the server as {theirs!r}; set model.args.tokenizer to that of the served model"
        )


def _version(client: ServerClient, arguments: ServerArguments) -> str | None:
    try:
        found = client.once("GET", arguments.version_url, from_json)
    except ServerError:
        return None
    version = found.get("version") if isinstance(found, dict) else None
    return version if isinstance(version, str) else None


def _shown(arguments: ServerArguments) -> str:
    return f"server {without_credentials(arguments.base_url)}"
