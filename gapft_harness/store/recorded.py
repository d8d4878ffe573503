"""What the keys of a run's groups were computed from, as the run itself records it.

A run can be verified without the store: its tables and adapters name the groups that they were
made from, with the contents that give the groups' keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.identities import content_hash
from gapft_harness.store.store import Group

#: Contents by step: what its groups have in common, and by key what each has of its own.
Recorded = dict[str, dict[str, Any]]


def record_groups(groups: Iterable[Group]) -> Recorded:
    """Record the contents of groups, those parts once that all groups of a step share."""
    steps: dict[str, dict[str, Mapping[str, Any]]] = {}
    for group in groups:
        steps.setdefault(group.folder.parent.name, {})[group.key] = group.made_from
    recorded: Recorded = {}
    for step, contents in sorted(steps.items()):
        first, *others = contents.values()
        shared = {
            part: value
            for part, value in first.items()
            if all(part in content and content[part] == value for content in others)
        }
        own = {
            key: {part: value for part, value in content.items() if part not in shared}
            for key, content in sorted(contents.items())
        }
        recorded[step] = {"shared": shared, "groups": own}
    return recorded


def read_groups(recorded: Recorded) -> dict[str, dict[str, Any]]:
    """Read the contents that ``record_groups`` recorded, by the groups' names (``STEP/KEY``).

    Raises:
        GapftError: a content does not give the key that it is recorded under.
    """
    found = {}
    for step, of_step in recorded.items():
        for key, own in of_step["groups"].items():
            content = {**of_step["shared"], **own}
            require_key(f"{step}/{key}", content)
            found[f"{step}/{key}"] = content
    return found


def require_key(name: str, content: Any) -> None:
    """Compute a group's key again.

    Args:
        name: the group's name, ``STEP/KEY``.
        content: what the key is recorded to be made from.

    Raises:
        GapftError: it gives another key.
    """
    step = content.get("step") if isinstance(content, dict) else None
    if (computed := f"{step}/{content_hash(content)}") != name:
        raise GapftError(f"its key is {name}, and made_from gives {computed}")
