"""Settings that a function takes by name: unknown and missing ones are the user's mistakes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from gapft_harness.core.errors import did_you_mean

#: A function that takes further names as ``**_`` drops them: they are none of its settings.
_DROPPED = "_"


def setting_fault(
    function: Callable[..., Any], given: Mapping[str, Any], by_position: int = 0
) -> str:
    """What is wrong with the names of a call ``function(**given)``, or ``""``.

    Args:
        function: what will be called. Of one that takes ``**options`` every name is known.
        given: the settings, by name.
        by_position: how many arguments stand before them in the call.
    """
    parameters = list(inspect.signature(function).parameters.values())
    ordered = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    taken = [p for p in parameters if p.kind in ordered][:by_position]
    parameters = [p for p in parameters if p not in taken]
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    known = [p.name for p in named]
    takes_all = any(p.kind is p.VAR_KEYWORD and p.name != _DROPPED for p in parameters)
    for key in given:
        if key not in known and not takes_all:
            return f"unknown key {key!r}; {did_you_mean(str(key), known)}"
    for parameter in named:
        if parameter.default is parameter.empty and parameter.name not in given:
            return f"the key {parameter.name!r} is missing"
    return ""
