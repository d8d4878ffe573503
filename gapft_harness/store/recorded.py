"""The contents of a run's group keys, as recorded in the run itself.

They allow a run to be verified without the store: its tables and adapters name their groups, with
the contents that the keys were computed from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.identities import content_hash
from gapft_harness.store.store import StoreGroup

#: Contents by step: the parts that all its groups share, and each group's own parts by key.
RecordedGroups = dict[str, dict[str, Any]]


def record_groups(groups: Iterable[StoreGroup]) -> RecordedGroups:
    """Record the contents of groups; parts that all groups of a step share are recorded once."""
    steps: dict[str, dict[str, Mapping[str, Any]]] = {}
    for group in groups:
        steps.setdefault(group.folder.parent.name, {})[group.key] = group.made_from
    recorded: RecordedGroups = {}
    for step, contents in sorted(steps.items()):
        first, *others = contents.values()
        shared = {
            part: value
            for part, value in first.items()
            if all(part in content and content[part] == value for content in others)
        }
        own_parts = {
            key: {part: value for part, value in content.items() if part not in shared}
            for key, content in sorted(contents.items())
        }
        recorded[step] = {"shared": shared, "groups": own_parts}
    return recorded


def read_groups(recorded: RecordedGroups) -> dict[str, dict[str, Any]]:
    """Read the contents recorded by ``record_groups``, by group name (``STEP/KEY``).

    Raises:
        GapftError: the key computed from a content differs from the recorded key.
    """
    contents = {}
    for step, step_groups in recorded.items():
        for key, own_parts in step_groups["groups"].items():
            content = {**step_groups["shared"], **own_parts}
            require_key(f"{step}/{key}", content)
            contents[f"{step}/{key}"] = content
    return contents


def require_key(name: str, content: Any) -> None:
    """Require that a group's key follows from its content.

    Args:
        name: the group's name, ``STEP/KEY``.
        content: the recorded content of the key.

    Raises:
        GapftError: the key computed from the content is different.
    """
    step = content.get("step") if isinstance(content, dict) else None
    if (computed := f"{step}/{content_hash(content)}") != name:
        raise GapftError(f"the key computed from made_from is {computed}; expected {name}")
