"""Keep secrets out of recipes, which are copied into run directories."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus, urlsplit, urlunsplit

from gapft_harness.core.errors import UserError

#: The environment variable with the key of a server, as in lm-eval.
KEY_VARIABLE = "OPENAI_API_KEY"

_SECRET = re.compile(r"auth|key|token|secret|password|cookie|signature|credential", re.IGNORECASE)


def refuse_credentials(args: Mapping[str, Any], where: str) -> None:
    """Refuse model arguments that contain a secret. The message never repeats it.

    Args:
        args: ``model.args`` of a recipe.
        where: the start of the message, e.g. ``recipe FILE``.

    Raises:
        UserError: there is an ``auth_token``, a header whose name suggests a secret, or a URL with
            a user name, a password or a secret.
    """
    keys = []
    if args.get("auth_token"):
        keys.append("auth_token")
    header = args.get("header")
    if isinstance(header, Mapping):
        keys += [f"header.{name}" for name in header if _SECRET.search(str(name))]
    elif header is not None:
        keys.append("header")
    url = args.get("base_url")
    try:
        if isinstance(url, str) and strip_credentials(url) != urlunsplit(urlsplit(url)):
            keys.append("base_url")
    except ValueError as error:
        raise UserError(f"{where}: model.args.base_url: not a URL ({error})") from error
    if keys:
        raise UserError(
            f"{where}: model.args.{keys[0]} contains a user name or a key, and the recipe is "
            f"copied into the run directory; remove it and set the environment variable "
            f"{KEY_VARIABLE}"
        )


def strip_credentials(url: str) -> str:
    """Remove the user, the password and query values with secret-like names from a URL."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    pairs = parts.query.split("&")
    kept = [pair for pair in pairs if not _SECRET.search(unquote_plus(pair.partition("=")[0]))]
    return urlunsplit((parts.scheme, host, parts.path, "&".join(kept), parts.fragment))
