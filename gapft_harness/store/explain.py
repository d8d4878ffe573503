"""Why a group is not in the store: how it differs from the most similar stored group."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.json_values import changes, describe_change
from gapft_harness.store.store import Group, Store, read_json

#: Names of key parts in a recipe or for a person, by pattern; the first match is used.
_NAMES = (
    (r"streams\.seed", "search.seed"),
    (r"decoding\.until", "the task's stop strings"),
    (r"decoding\.(\w+)", r"search.\1"),
    (r"chunk", "search.chunk"),
    (r"leaves_out\.round", "search.round"),
    (r"episode\.attempts", "episode.attempts"),
    (r"executions", "episode.executions"),
    (r"sampler\.arguments\.(.+)", r"model.args.\1"),
    (r"arguments\.(.+)", r"model.args.\1"),
    (r"sampler\.(backend|chat_template|system_instruction|start_tokens)", r"model.\1"),
    (r"chat_template", "model.chat_template"),
    (r"settings\.(.+)", r"training.\1"),
    (r"trainer\.name", "training.trainer"),
    (r"(?:.+\.)?(?:verifier|solved)\.name", "verifier.name"),
    (r"(?:.+\.)?(?:verifier|solved)\.parameters\.(.+)", r"verifier.params.\1"),
    (r"(?:.+\.)?libraries\.(.+)", r"libraries: \1"),
    (r"(?:.+\.)?accelerators", "GPUs:"),
    (r"device", "model.args.device"),
    (r"(processes|fsdp)", r"executor.\1"),
    (r"seed", "seed"),
)

#: Key parts whose values mean nothing to a person.
_WITHOUT_VALUES = (
    (r"(?:sampler\.model|base)(?:\..+)?", "the model's files"),
    (r"sampler\.adapter(?:\..+)?", "the adapter"),
    (r"sampler\.code(?:\..+)?", "the sampler's plugin"),
    (r"trainer\.code(?:\..+)?", "the trainer's plugin"),
    (r"(?:.+\.)?(?:verifier|solved)(?:\..+)?|episode.*|leaves_out.*", "the verifier"),
    (r"sequences|examples", "the examples"),
    (r"responses", "the responses"),
    (r"searched", "the pool's search"),
)

#: Key parts for libraries and the kind of device that made a group.
_VERSIONS = re.compile(r"(?:.*\.)?(?:libraries\..+|accelerators|device)")

#: A difference between two keys: the part's dotted name, the stored value, the requested value.
Change = tuple[str, Any, Any]


@dataclass(frozen=True)
class Neighbour:
    """A stored group similar to a requested one.

    Attributes:
        group: the stored group.
        changes: the parts of the key that differ.
    """

    group: Group
    changes: tuple[Change, ...]

    @property
    def by_versions(self) -> bool:
        """Whether the groups differ only in library versions or in the device."""
        return bool(self.changes) and all(is_version(key) for key, *_ in self.changes)

    @property
    def words(self) -> list[str]:
        """The differences in words, with both values where they mean something."""
        return describe(self.changes)


def list_groups_of(store: Store, step: str) -> Iterator[Group]:
    """Yield the readable groups of a step, in the order of their keys."""
    for path in sorted((store.root / step).glob("*/made_from.json")):
        try:
            key = read_json(path).get("key")
        except UserError:  # reported when the group is used
            continue
        if isinstance(key, Mapping):
            yield Group(store, path.parent, key)


def list_neighbours(group: Group) -> list[Neighbour]:
    """List the stored groups of the same step and version, the most similar first."""
    found = []
    for other in list_groups_of(group.store, group.folder.parent.name):
        if _subject(other) != _subject(group):
            continue
        if other.key != group.key and other.made_from.get("version") == group.made_from["version"]:
            differing = tuple(changes(other.made_from, group.made_from))
            found.append(Neighbour(other, differing))
    return sorted(found, key=lambda of: (len(of.words), len(of.changes)))


def _subject(group: Group) -> tuple[Any, Any]:
    """Return the adapter and the split of a group: groups of others explain nothing."""
    sampler, streams = group.made_from.get("sampler", {}), group.made_from.get("streams") or {}
    return sampler.get("adapter"), streams.get("split")


def find_other_versions(group: Group) -> list[Group]:
    """List the stored groups that differ only in library versions or in the device."""
    return [of.group for of in list_neighbours(group) if of.by_versions]


def is_version(key: str) -> bool:
    """Return whether a part of a key records library versions or the device.

    Args:
        key: the part's dotted name.
    """
    return bool(_VERSIONS.fullmatch(key))


def describe_toolchain(made_from: Mapping[str, Any]) -> str:
    """List the libraries with minor versions and the devices in a key, as one text."""
    found = dict[str, None]()

    def walk(value: Any, key: str) -> None:
        if isinstance(value, Mapping):
            for name in sorted(value):
                walk(value[name], f"{key}.{name}".strip("."))
        elif value and _VERSIONS.fullmatch(key):
            library = key.rpartition("libraries.")[2] if "libraries." in key else ""
            said = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            found[f"{library} {said}".strip()] = None

    walk(made_from, "")
    return ", ".join(found)


def explain(group: Group) -> list[str]:
    """List how a group differs from the most similar stored one; empty if there is none."""
    neighbours = list_neighbours(group)
    return neighbours[0].words if neighbours else []


def describe(differing: Iterable[Change]) -> list[str]:
    """Describe differing parts of a key, as ``search.seed 0 → 1`` or ``the model's files``."""
    found = []
    for key, before, now in differing:
        for pattern, name in _NAMES:
            if match := re.fullmatch(pattern, key):
                found.append(describe_change(match.expand(name), before, now))
                break
        else:
            names = (name for pattern, name in _WITHOUT_VALUES if re.fullmatch(pattern, key))
            found.append(next(names, key))
    return list(dict.fromkeys(found))


def summarize(reasons: Sequence[Sequence[str]]) -> str:
    """Join the reasons of several groups: each reason once, and all seeds in one.

    Args:
        reasons: the result of ``explain_missing`` for each group.
    """
    seeds, others = dict[str, None](), dict[str, None]()
    for words in reasons:
        new = [word.rpartition(" → ")[2] for word in words if word.startswith("seed ")]
        seeds |= dict.fromkeys(new)
        # a new seed also chooses other examples
        rest = [w for w in words if not w.startswith("seed ") and not (new and "examples" in w)]
        others |= dict.fromkeys(rest)
    what = f"new {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seeds)}"
    return "; ".join([*([what] if seeds else []), *others])
