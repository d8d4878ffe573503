"""Remove reasoning blocks from responses before any verifier sees them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.thoughts import THOUGHT_RULES, remove_thoughts
from gapft_harness.hooks.registration import PluginObject, Registration

#: The methods of a verifier whose first argument is a list of responses, or one response
#: (``protocols.Verifier``).
_BATCH_METHODS = ("verify", "verify_with_answers", "feedback")
_SINGLE_METHODS = ("answer", "opening", "has_answer")


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


class VerifierWithoutThoughts(PluginObject):
    """A verifier whose methods get responses without reasoning blocks.

    Methods that the verifier lacks are missing in the wrapper too. Its description records the
    version of the rules in ``core.thoughts``.

    Attributes:
        think_end_token: the end of the model's reasoning, besides the known tags; or None.
    """

    def __init__(self, wrapped: Any, owner: Registration, think_end_token: str | None) -> None:
        super().__init__(wrapped, owner)
        self.think_end_token = think_end_token

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the verifier; a method that reads responses is wrapped."""
        if name == "describe":
            return _describe_rules(getattr(self._wrapped, name, None))
        attribute = super().__getattr__(name)
        if name in (*_BATCH_METHODS, *_SINGLE_METHODS) and callable(attribute):
            hide = functools.partial(remove_thoughts, think_end_token=self.think_end_token)
            return _hide_thoughts(attribute, hide, batch=name in _BATCH_METHODS)
        return attribute


def _hide_thoughts(
    method: Callable[..., Any], hide: Callable[[str], str], *, batch: bool
) -> Callable[..., Any]:
    """Wrap a method so that reasoning blocks are removed from its first argument."""

    @functools.wraps(method)
    def call(responses: Any, *rest: Any, **keywords: Any) -> Any:
        visible = [*map(hide, responses)] if batch else hide(responses)
        return method(visible, *rest, **keywords)

    return call


def _describe_rules(describe: Any) -> Callable[[], Any]:
    """Wrap a verifier's ``describe``, if it has one, to add the version of the rules."""
    if not callable(describe):
        return lambda: {"thought_rules": THOUGHT_RULES}

    @functools.wraps(describe)
    def call() -> Any:
        description = describe()
        return (
            {"thought_rules": THOUGHT_RULES, **description}
            if isinstance(description, Mapping)
            else description
        )

    return call
