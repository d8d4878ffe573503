"""The model arguments of servers, checked, since lm-eval's API models accept wrong ones."""

from __future__ import annotations

from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, FilePath, ValidationError

from gapft_harness.core.credentials import refuse_credentials, strip_credentials
from gapft_harness.core.errors import UserError
from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.recipe.messages import build_recipe_error

#: The end of the URL's path for each kind of server.
_PATHS = {"local-completions": "/completions", "local-chat-completions": "/chat/completions"}

#: Arguments of a locally loaded model. They are not an error: training also uses ``device``, and a
#: recipe may switch to a server by changing only its backend.
_LOCAL_MODEL_ARGUMENTS = ("dtype", "device", "batch_size")


class ServerArguments(BaseModel):
    """``model_args`` of a server. Seeds and lengths are set by the recipe and the task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    base_url: str
    pretrained: str | None = None
    tokenizer: str | None = None
    tokenizer_backend: Literal["auto", "huggingface", "none", "None"] = "auto"
    tokenized_requests: bool = True
    add_bos_token: bool | None = None
    num_concurrent: int = Field(32, ge=1, strict=True)
    timeout: int = Field(300, ge=1, strict=True)
    max_retries: int = Field(10, ge=1, strict=True)
    max_length: int | None = Field(None, ge=1, strict=True)
    revision: str | None = None
    trust_remote_code: bool = False
    verify_certificate: bool = True
    ca_cert_path: FilePath | None = None
    header: dict[str, Any] = Field(default_factory=dict)
    chat_template_args: dict[str, Any] = Field(default_factory=dict)

    @property
    def is_chat(self) -> bool:
        """Whether the server renders chats itself."""
        return urlsplit(self.base_url).path.endswith("/chat/completions")

    @property
    def has_tokenizer(self) -> bool:
        """Whether a tokenizer is loaded on this machine."""
        return self.tokenizer_backend not in ("none", "None")

    @property
    def sends_ids(self) -> bool:
        """Whether prompts are sent as token ids."""
        return self.has_tokenizer and self.tokenized_requests and not self.is_chat

    @property
    def server(self) -> str:
        """The server's name in messages."""
        return f"server {strip_credentials(self.base_url)}"

    def build_url(self, path: str) -> str:
        """Build the URL of another endpoint: ``/models`` gives ``…/v1/models``."""
        parts = urlsplit(self.base_url)
        root = parts.path.removesuffix("/completions").removesuffix("/chat")
        return parts._replace(path=root + path).geturl()


def read_arguments(settings: SamplerSettings) -> ServerArguments:
    """Check the arguments of a server; lm-eval ignores unknown ones.

    Raises:
        UserError: invalid argument; the message has the name, the value and what was expected.
    """
    args = {
        key: value
        for key, value in settings.model_args.items()
        if value is not None and key not in _LOCAL_MODEL_ARGUMENTS
    }
    refuse_credentials(args, f"backend {settings.backend!r}")
    try:
        arguments = ServerArguments.model_validate({"model": args.get("pretrained"), **args})
    except ValidationError as error:
        source = f"backend {settings.backend!r}"
        prefix = ("model", "args")
        raise build_recipe_error(error, args, ServerArguments, source, {}, prefix) from error
    url = urlsplit(arguments.base_url)
    end = _PATHS[settings.backend]
    is_complete = url.scheme in ("http", "https") and url.hostname and url.path.endswith(end)
    if not is_complete or arguments.is_chat != (settings.backend == "local-chat-completions"):
        raise UserError(
            f"model.args: base_url: found {arguments.base_url!r}; expected the complete URL of the "
            f"server's {end}, as http://HOST:8000/v1{end}"
        )
    return arguments
