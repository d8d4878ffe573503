"""Why a group is not in the store: how it differs from the most similar stored group."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.core.json_values import describe_change, diff_values
from gapft_harness.store.store import Store, StoreGroup, read_json

#: Names of key parts in a recipe or for a person, by pattern; the first match is used.
_SETTING_NAMES = (
    (r"streams\.seed", "search.seed"),
    (r"decoding\.until", "the task's stop strings"),
    (r"decoding\.(\w+)", r"search.\1"),
    (r"chunk", "search.chunk"),
    (r"deployment((?:\.\w+)?)", r"search.deployment\1"),
    (r"episode\.attempts", "episode.attempts"),
    (r"executions", "episode.executions"),
    (r"sampler\.arguments\.(.+)", r"model.args.\1"),
    (r"arguments\.(.+)", r"model.args.\1"),
    (r"sampler\.(backend|chat_template|system_instruction|start_tokens)", r"model.\1"),
    (r"chat_template", "model.chat_template"),
    (r"settings\.(.+)", r"training.\1"),
    (r"trainer\.name", "training.trainer"),
    (r"(?:.+\.)?verifier\.name", "verifier.name"),
    (r"(?:.+\.)?verifier\.parameters\.(.+)", r"verifier.params.\1"),
    (r"(?:.+\.)?libraries\.(.+)", r"libraries: \1"),
    (r"(?:.+\.)?accelerators", "GPUs:"),
    (r"device", "model.args.device"),
    (r"seed", "seed"),
)

#: Key parts whose values mean nothing to a person.
_WITHOUT_VALUES = (
    (r"(?:sampler\.model|base)(?:\..+)?", "the model's files"),
    (r"sampler\.adapter(?:\..+)?", "the adapter"),
    (r"sampler\.code(?:\..+)?", "the sampler's plugin"),
    (r"trainer\.code(?:\..+)?", "the trainer's plugin"),
    (r"(?:.+\.)?verifier(?:\..+)?|episode.*", "the verifier"),
    (r"sequences|examples", "the examples"),
    (r"responses", "the responses"),
    (r"searched", "the pool's search"),
)

#: A difference between two keys: the part's dotted name, the stored value, the requested value.
KeyChange = tuple[str, Any, Any]


def explain_missing(group: StoreGroup) -> list[str]:
    """List how a group differs from the most similar stored one; empty if there is none.

    Only groups of the same step and version are compared.
    """
    changes_by_group = []
    for other in _list_step_groups(group.store, group.folder.parent.name):
        if _find_subject(other) != _find_subject(group):
            continue
        if other.key != group.key and other.made_from.get("version") == group.made_from["version"]:
            key_changes = tuple(diff_values(other.made_from, group.made_from))
            changes_by_group.append((_describe_key_changes(key_changes), key_changes))
    if not changes_by_group:
        return []
    return min(changes_by_group, key=lambda pair: (len(pair[0]), len(pair[1])))[0]


def _list_step_groups(store: Store, step: str) -> Iterator[StoreGroup]:
    """Yield the readable groups of a step, in the order of their keys."""
    for path in sorted((store.root / step).glob("*/made_from.json")):
        try:
            key = read_json(path).get("key")
        except UserError:  # reported when the group is used
            continue
        if isinstance(key, Mapping):
            yield StoreGroup(store, path.parent, key)


def _find_subject(group: StoreGroup) -> tuple[Any, Any, bool]:
    """Return a group's adapter, split and kind of decode: groups of others explain nothing."""
    sampler, streams = group.made_from.get("sampler", {}), group.made_from.get("streams") or {}
    return sampler.get("adapter"), streams.get("split"), "deployment" in group.made_from


def _describe_key_changes(key_changes: Iterable[KeyChange]) -> list[str]:
    """Describe differing parts of a key, as ``search.seed 0 → 1`` or ``the model's files``."""
    descriptions = []
    for key, stored_value, value in key_changes:
        for pattern, name in _SETTING_NAMES:
            if match := re.fullmatch(pattern, key):
                descriptions.append(describe_change(match.expand(name), stored_value, value))
                break
        else:
            names = (name for pattern, name in _WITHOUT_VALUES if re.fullmatch(pattern, key))
            descriptions.append(next(names, key))
    return list(dict.fromkeys(descriptions))


def summarize_reasons(reasons: Sequence[Sequence[str]]) -> str:
    """Join the reasons of several groups: each reason once, and all seeds in one.

    Args:
        reasons: the result of ``explain_missing`` for each group.
    """
    seeds, other_reasons = dict[str, None](), dict[str, None]()
    for words in reasons:
        new_seeds = [word.rpartition(" → ")[2] for word in words if word.startswith("seed ")]
        seeds |= dict.fromkeys(new_seeds)
        # a new seed also chooses other examples
        remaining = [
            w for w in words if not w.startswith("seed ") and not (new_seeds and "examples" in w)
        ]
        other_reasons |= dict.fromkeys(remaining)
    seed_reason = f"new {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seeds)}"
    return "; ".join([*([seed_reason] if seeds else []), *other_reasons])
