"""Keeps keys out of what is written: a recipe becomes part of its run directory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from gapft_harness.core.errors import UserError

#: Where the key of a server comes from, as in lm-eval.
KEY_VARIABLE = "OPENAI_API_KEY"

_SECRET = re.compile(r"auth|key|token|secret|password|cookie|signature|credential", re.IGNORECASE)


def refuse_credentials(args: Mapping[str, Any], where: str) -> None:
    """Refuses model arguments that hold a key. The message never repeats one.

    Args:
        args: ``model.args`` of a recipe.
        where: begins the message, e.g. ``recipe FILE``.

    Raises:
        UserError: ``auth_token``, a header named like a key, or a URL with a user or a key.
    """
    found = []
    if args.get("auth_token"):
        found.append("auth_token")
    header = args.get("header")
    if isinstance(header, Mapping):
        found += [f"header.{name}" for name in header if _SECRET.search(str(name))]
    elif header is not None:
        found.append("header")
    url = args.get("base_url")
    if isinstance(url, str) and without_credentials(url) != url:
        found.append("base_url")
    if found:
        raise UserError(
            f"{where}: model.args.{found[0]} holds a user or a key, and a recipe is copied into "
            f"its run directory; take it out and set the environment variable {KEY_VARIABLE}"
        )


def without_credentials(url: str) -> str:
    """A URL without user, password, and those query values whose names speak of keys."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    query = parts.query
    if any(_SECRET.search(name) for name, _ in parse_qsl(query, keep_blank_values=True)):
        kept = [pair for pair in query.split("&") if not _SECRET.search(pair.partition("=")[0])]
        query = "&".join(kept)
    return urlunsplit((parts.scheme, host, parts.path, query, parts.fragment))
