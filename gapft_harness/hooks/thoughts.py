"""Remove reasoning blocks from responses before any verifier sees them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gapft_harness.core.thoughts import THOUGHT_RULES, remove_thoughts
from gapft_harness.hooks.registration import PluginObject

#: The methods of a verifier whose first argument is a list of responses, or one response
#: (``protocols.Verifier``).
_BATCH_METHODS = ("verify", "verify_with_answers", "feedback")
_SINGLE_METHODS = ("answer", "opening", "has_answer")


class VerifierWithoutThoughts(PluginObject):
    """A verifier whose methods get responses without reasoning blocks.

    Methods that the verifier lacks are missing in the wrapper too. Its description records the
    version of the rules in ``core.thoughts``.
    """

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the verifier; a method that reads responses is wrapped."""
        if name == "describe":
            return _describe_rules(getattr(self._wrapped, name, None))
        attribute = super().__getattr__(name)
        if name in (*_BATCH_METHODS, *_SINGLE_METHODS) and callable(attribute):
            return _hide_thoughts(attribute, batch=name in _BATCH_METHODS)
        return attribute


def _hide_thoughts(method: Callable[..., Any], *, batch: bool) -> Callable[..., Any]:
    """Wrap a method so that reasoning blocks are removed from its first argument."""

    @functools.wraps(method)
    def call(responses: Any, *rest: Any, **keywords: Any) -> Any:
        visible = [*map(remove_thoughts, responses)] if batch else remove_thoughts(responses)
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
