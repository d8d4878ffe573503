"""The end of a model's reasoning: a parameter that every verifier has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapft_harness.core.errors import UserError

#: The parameter of every verifier with the end of the model's reasoning; lm_eval's name.
THINK_END_TOKEN = "think_end_token"


def split_think_end_token(params: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the end of the model's reasoning in a verifier's parameters, and the other ones.

    Raises:
        UserError: it is not a text.
    """
    own_params = dict(params)
    token = own_params.pop(THINK_END_TOKEN, None)
    if token is not None and (fault := find_think_end_fault(token)):
        raise UserError(f"verifier.params: {fault}")
    return token, own_params


def find_think_end_fault(token: Any) -> str:
    """Describe why a value is not the end of a model's reasoning; return ``""`` if it is.

    lm_eval also accepts token ids, as numbers or their digits.
    """
    if isinstance(token, str) and token.strip() and not token.strip().isdigit():
        return ""
    return (
        f"{THINK_END_TOKEN}: found {token!r}; expected the text that ends the model's reasoning, "
        "such as </think>; token ids are not supported, since verifiers read text"
    )
