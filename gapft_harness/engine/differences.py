"""Compare two contents of a key: what is not known on this machine, and how they differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from gapft_harness.core.json_values import describe_change, diff_values
from gapft_harness.engine.outputs import NOT_HERE, Json

#: The keys of a JSON object that stands for the content of a file, a folder or a model.
_CONTENT_KEYS = ({"file"}, {"folder"}, {"files"})

#: Parts of a key whose values are hashes, with the words for them.
_HASHED_PARTS = {"inputs": "{} changed", "code": "the plugin of {} changed"}


def describe_differences(
    recorded: Mapping[str, Json], current: Mapping[str, Json], *, accepts_names: bool = False
) -> str:
    """Describe the parts in which a current content of a key differs from a recorded one.

    Settings and the machine are described with both values, inputs and plugins by their names.

    Args:
        recorded: the recorded content.
        current: the current one.
        accepts_names: as for ``take_unavailable``.
    """
    lines: dict[str, None] = {}
    current = take_unavailable(recorded, current, accepts_names=accepts_names)
    for key, before, now in diff_values(recorded, current):
        part, _, name = key.partition(".")
        if part in _HASHED_PARTS:
            lines[_HASHED_PARTS[part].format(name)] = None
        elif part == "version":
            lines["the step itself changed"] = None
        else:
            lines[describe_change(name or part, before, now)] = None
    return "; ".join(lines)


def describe_values(
    place: str, recorded: Json, expected: Json, relation: str = "computed again it is"
) -> Iterator[str]:
    """Yield a sentence for each place where a recorded JSON value differs from an expected one.

    Args:
        place: the file and what of it, the start of each sentence.
        recorded: the recorded value.
        expected: the expected one.
        relation: the words between the two.
    """
    for key, before, value in diff_values(recorded, expected):
        yield f"{place}: {key} is {_shorten(before)}, {relation} {_shorten(value)}"


def _shorten(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}..."


def take_unavailable(recorded: Json, expected: Json, *, accepts_names: bool = True) -> Json:
    """Replace what is not known on this machine in an expected value by what was recorded.

    Args:
        recorded: the recorded value.
        expected: the value on this machine.
        accepts_names: whether a name also stands for the recorded hashes of a model, a file or a
            folder. On a machine without them only the name is known, and it may be another one.
    """
    if expected == NOT_HERE:
        return recorded
    if accepts_names and isinstance(recorded, Mapping) and recorded.keys() in _CONTENT_KEYS:
        is_name = isinstance(expected, str) or (
            isinstance(expected, Mapping) and expected.keys() not in _CONTENT_KEYS
        )
        return recorded if is_name else expected
    if isinstance(recorded, Mapping) and isinstance(expected, Mapping):
        return {
            key: take_unavailable(recorded.get(key), value, accepts_names=accepts_names)
            for key, value in expected.items()
        }
    if isinstance(recorded, list) and isinstance(expected, list) and len(recorded) == len(expected):
        return [
            take_unavailable(*pair, accepts_names=accepts_names)
            for pair in zip(recorded, expected, strict=True)
        ]
    return expected
