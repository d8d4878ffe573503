"""Describe how two contents of a key differ."""

from __future__ import annotations

from collections.abc import Mapping

from gapft_harness.core.json_values import describe_change, diff_values
from gapft_harness.engine.outputs import Json

#: Parts of a key whose values are hashes, with the words for them.
_HASHED_PARTS = {"inputs": "{} changed", "code": "the plugin of {} changed"}


def describe_differences(recorded: Mapping[str, Json], current: Mapping[str, Json]) -> str:
    """Describe the parts in which a current content of a key differs from a recorded one.

    Settings and the machine are described with both values, inputs and plugins by their names.
    """
    lines: dict[str, None] = {}
    for key, before, now in diff_values(recorded, current):
        part, _, name = key.partition(".")
        if part in _HASHED_PARTS:
            lines[_HASHED_PARTS[part].format(name)] = None
        elif part == "version":
            lines["the step itself changed"] = None
        else:
            lines[describe_change(name or part, before, now)] = None
    return "; ".join(lines)
