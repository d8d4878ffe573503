"""Compare two contents of a key: what is not known on this machine, and how they differ."""

from __future__ import annotations

from collections.abc import Mapping

from gapft_harness.core.json_values import describe_change, diff_values
from gapft_harness.engine.outputs import NOT_HERE, Json

#: The keys of a JSON object that stands for the content of a file, a folder or a model.
_CONTENT_KEYS = ({"file"}, {"folder"}, {"files"})

#: Parts of a key whose values are hashes, with the words for them.
_HASHED_PARTS = {"inputs": "{} changed", "code": "the plugin of {} changed"}


def describe_differences(recorded: Mapping[str, Json], current: Mapping[str, Json]) -> str:
    """Describe the parts in which a current content of a key differs from a recorded one.

    Settings and the machine are described with both values, inputs and plugins by their names.
    """
    lines: dict[str, None] = {}
    for key, before, now in diff_values(recorded, take_unavailable(recorded, current)):
        part, _, name = key.partition(".")
        if part in _HASHED_PARTS:
            lines[_HASHED_PARTS[part].format(name)] = None
        elif part == "version":
            lines["the step itself changed"] = None
        else:
            lines[describe_change(name or part, before, now)] = None
    return "; ".join(lines)


def take_unavailable(recorded: Json, expected: Json) -> Json:
    """Replace names in an expected value by the recorded hashes of the files that they name.

    On a machine without a model, file or plugin, only its name is known: it is not compared.
    """
    if expected == NOT_HERE:
        return recorded
    if isinstance(recorded, Mapping) and recorded.keys() in _CONTENT_KEYS:
        is_name = isinstance(expected, str) or (
            isinstance(expected, Mapping) and expected.keys() not in _CONTENT_KEYS
        )
        return recorded if is_name else expected
    if isinstance(recorded, Mapping) and isinstance(expected, Mapping):
        return {key: take_unavailable(recorded.get(key), value) for key, value in expected.items()}
    if isinstance(recorded, list) and isinstance(expected, list) and len(recorded) == len(expected):
        return [take_unavailable(*pair) for pair in zip(recorded, expected, strict=True)]
    return expected
