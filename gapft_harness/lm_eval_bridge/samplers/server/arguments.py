"""Check ``model_args`` of servers, since lm-eval's API models silently accept wrong ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from gapft_harness.core.credentials import refuse_credentials
from gapft_harness.core.errors import UserError, did_you_mean

#: lm-eval's own defaults are 1 concurrent request and 3 attempts.
DEFAULT_CONCURRENT = 32
DEFAULT_ATTEMPTS = 10
DEFAULT_TIMEOUT = 300

#: The end of the URL path for each kind of server.
PATHS = {"local-completions": "/completions", "local-chat-completions": "/chat/completions"}

_KNOWN_ARGUMENTS = (
    *("pretrained", "model", "base_url", "tokenizer", "tokenizer_backend", "tokenized_requests"),
    *("add_bos_token", "num_concurrent", "timeout", "max_retries", "max_length"),
    *("revision", "trust_remote_code", "verify_certificate", "ca_cert_path", "header"),
    "chat_template_args",
)
#: Arguments of a locally loaded model, which have no effect for a server. They are not an error:
#: training also uses ``device``, and a recipe may switch to a server by changing only its backend.
_LOCAL_MODEL_ARGUMENTS = ("dtype", "device", "batch_size")
_UNSUPPORTED = {
    "seed": "every sample has its own seed, derived from search.seed",
    "max_gen_toks": "set it in the task or by search.max_gen_toks",
    "truncate": "prompts are never cut silently",
    "eos_string": "the server knows its model's end token; stop strings come from the task",
    "auth_token": "set the environment variable OPENAI_API_KEY",
}


@dataclass(frozen=True, slots=True)
class ServerArguments:
    """Checked model arguments of a server.

    Attributes:
        backend: ``local-completions`` or ``local-chat-completions``.
        base_url: the URL of the endpoint.
        model: the model's name on the server.
        concurrent: maximum number of concurrent requests.
        attempts: maximum number of attempts for one request.
        timeout: seconds for one attempt.
        sends_ids: whether prompts are sent as token ids.
        has_tokenizer: whether a tokenizer is loaded on this machine.
        max_length: the model's context in tokens; None if the user did not set it.
        chat_template_args: arguments for the server's chat template.
    """

    backend: str
    base_url: str
    model: str
    concurrent: int
    attempts: int
    timeout: int
    sends_ids: bool
    has_tokenizer: bool
    max_length: int | None
    chat_template_args: Mapping[str, Any]

    @property
    def is_chat(self) -> bool:
        """Whether the server renders chats itself."""
        return self.backend == "local-chat-completions"

    def build_url(self, path: str) -> str:
        """Build the URL of another endpoint: ``models`` gives ``…/v1/models``."""
        parts = urlsplit(self.base_url)
        root = parts.path.removesuffix(PATHS[self.backend])
        return urlunsplit((parts.scheme, parts.netloc, f"{root}/{path}", parts.query, ""))

    @property
    def version_url(self) -> str:
        """The URL of vLLM's version: ``/version``, next to ``/v1``."""
        parts = urlsplit(self.base_url)
        root = parts.path.removesuffix(PATHS[self.backend]).removesuffix("/v1")
        return urlunsplit((parts.scheme, parts.netloc, f"{root}/version", parts.query, ""))


def check_arguments(backend: str, model_args: Mapping[str, Any]) -> ServerArguments:
    """Check arguments; lm-eval ignores unknown ones.

    Raises:
        UserError: invalid argument; the message has the name, the value and what was expected.
    """
    args = {
        key: value
        for key, value in model_args.items()
        if value is not None and key not in _LOCAL_MODEL_ARGUMENTS
    }
    refuse_credentials(args, f"backend {backend!r}")
    for key in args:
        if key in _UNSUPPORTED:
            raise UserError(
                f"model.args: {key!r} is not supported by the backend {backend!r}: "
                f"{_UNSUPPORTED[key]}"
            )
        if key not in _KNOWN_ARGUMENTS:
            raise UserError(
                f"model.args: unknown argument {key!r}; {did_you_mean(key, _KNOWN_ARGUMENTS)}"
            )
    model = args.get("model") or args.get("pretrained")
    if not isinstance(model, str):
        raise UserError(
            f"model.args: model: found {model!r}; expected the model's name on the server"
        )
    tokenizer = _has_tokenizer(args.get("tokenizer_backend", "auto"))
    chat = backend == "local-chat-completions"
    tokenized = bool(args.get("tokenized_requests", True)) and tokenizer and not chat
    return ServerArguments(
        backend,
        _check_base_url(backend, args.get("base_url")),
        model,
        _parse_count(args, "num_concurrent", DEFAULT_CONCURRENT),
        _parse_count(args, "max_retries", DEFAULT_ATTEMPTS),
        _parse_count(args, "timeout", DEFAULT_TIMEOUT),
        tokenized,
        tokenizer,
        _parse_count(args, "max_length", 0) or None,
        dict(args.get("chat_template_args") or {}),
    )


def _has_tokenizer(backend: Any) -> bool:
    if backend in ("None", "none"):
        return False
    if backend in ("auto", "huggingface"):
        return True
    raise UserError(
        f"model.args: tokenizer_backend: found {backend!r}; expected huggingface, or None if "
        "there is no tokenizer on this machine"
    )


def _check_base_url(backend: str, url: Any) -> str:
    end = PATHS[backend]
    expected = f"expected the complete URL of the server's {end}, as http://HOST:8000/v1{end}"
    if not isinstance(url, str):
        raise UserError(f"model.args: base_url: found {url!r}; {expected}")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"model.args: base_url: found {url!r}; {expected}")
    wrong_kind = backend == "local-completions" and parts.path.endswith("/chat/completions")
    if not parts.path.endswith(end) or wrong_kind:
        raise UserError(f"model.args: base_url: found {url!r}; {expected}")
    return url


def _parse_count(args: Mapping[str, Any], key: str, default: int) -> int:
    value = args.get(key, default)
    if key in args and (isinstance(value, bool) or not str(value).isdigit() or int(value) < 1):
        raise UserError(f"model.args: {key}: found {value!r}; expected a whole number from 1")
    return int(value)
