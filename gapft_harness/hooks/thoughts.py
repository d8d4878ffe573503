"""Remove reasoning blocks from responses before any verifier sees them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from gapft_harness.core.thoughts import THOUGHT_RULES, remove_thoughts
from gapft_harness.hooks.registered import Owned

#: The methods of a verifier whose first argument is a list of responses, or one response
#: (``protocols.Verifier``).
_OF_BATCHES = ("verify", "verify_with_answers", "feedback")
_OF_ONE = ("answer", "opening", "has_answer")


class VerifierWithoutThoughts(Owned):
    """A verifier whose methods get responses without reasoning blocks.

    Methods that the verifier lacks are missing in the wrapper too. Its description records the
    version of the rules in ``core.thoughts``.
    """

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the verifier; a method that reads responses is wrapped."""
        if name == "describe":
            return _describe_rules(getattr(self._made, name, None))
        found = super().__getattr__(name)
        if name in (*_OF_BATCHES, *_OF_ONE) and callable(found):
            return _hide_thoughts(found, batch=name in _OF_BATCHES)
        return found


def _hide_thoughts(method: Callable[..., Any], *, batch: bool) -> Callable[..., Any]:
    """Wrap a method so that reasoning blocks are removed from its first argument."""

    @functools.wraps(method)
    def call(responses: Any, *rest: Any, **named: Any) -> Any:
        shown = [*map(remove_thoughts, responses)] if batch else remove_thoughts(responses)
        return method(shown, *rest, **named)

    return call


def _describe_rules(describe: Any) -> Callable[[], Any]:
    """Wrap a verifier's ``describe``, if it has one, to add the version of the rules."""
    if not callable(describe):
        return lambda: {"thought_rules": THOUGHT_RULES}

    @functools.wraps(describe)
    def call() -> Any:
        found = describe()
        return {"thought_rules": THOUGHT_RULES, **found} if isinstance(found, Mapping) else found

    return call
