"""The facts of a whole split from those of its shards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gapft_harness.core.errors import GapftError
from gapft_harness.run_directory.shards import Shard

#: Facts of a part alone, or that have a rule of their own below.
_OWN = frozenset({"shard", "recipe", "task", "source", "said", "judged_by", "warnings"})

#: Facts of a model that two machines may differ in without notice: its folder is the recipe's, and
#: how patiently a server was asked changes no sample.
_UNREMARKED = frozenset({"pretrained", "num_concurrent", "max_retries", "timeout"})


def merge_facts(parts: Sequence[tuple[Shard, dict[str, Any]]]) -> dict[str, Any]:
    """Counts added up, lists joined, warnings kept with the shard they are of.

    Where shards ran in different circumstances (device, versions, sandbox), those of the first
    stand, and a warning says what differed.

    Args:
        parts: each shard with its facts, in the order of their numbers; of one task and model.

    Returns:
        Facts as ``job.search`` gives of a whole split.
    """
    first = parts[0][1]
    warnings = [
        f"shard {shard}: {warning}" for shard, facts in parts for warning in facts["warnings"]
    ]
    for key in ("source", "judged_by"):
        for shard, facts in parts[1:]:
            if found := _differing(first.get(key), facts.get(key), key):
                warnings.append(f"shard {shard} ran otherwise than {parts[0][0]}: {found}")
    dropped = [line for _, facts in parts for line in facts["task"]["dropped"]]
    merged: dict[str, Any] = {
        "task": {**first["task"], "dropped": list(dict.fromkeys(dropped))},
        "source": first["source"],
        "judged_by": first.get("judged_by", {}),
        "warnings": warnings,
    }
    if "said" in first:  # the same in all
        merged["said"] = first["said"]
    for key in sorted({key for _, facts in parts for key in facts} - _OWN):
        merged[key] = _added([facts[key] for _, facts in parts if key in facts], key)
    return merged


def _differing(a: Any, b: Any, key: str) -> str:
    """The places at which two descriptions differ, in words; empty if they do not."""
    if isinstance(a, dict) and isinstance(b, dict):
        inner = [
            _differing(a.get(name), b.get(name), f"{key}.{name}")
            for name in sorted({*a, *b} - _UNREMARKED)
        ]
        return "; ".join(filter(None, inner))
    return "" if a == b else f"{key} is {b!r}, not {a!r}"


def _added(values: Sequence[Any], key: str) -> Any:
    """Numbers are added, lists joined and sorted, sections merged key by key.

    ``executions.times`` is a setting, the same in all.
    """
    if key.endswith(".times") or isinstance(values[0], str | bool):
        if any(value != values[0] for value in values):
            raise GapftError(f"shards differ in {key}: {values}")
        return values[0]
    if all(isinstance(value, int | float) for value in values):
        return sum(values)
    if all(isinstance(value, list) for value in values):
        return sorted(item for value in values for item in value)
    if all(isinstance(value, dict) for value in values):
        names = sorted({name for value in values for name in value})
        return {
            name: _added([value[name] for value in values if name in value], f"{key}.{name}")
            for name in names
        }
    raise GapftError(f"shards' {key} cannot be merged: {values}")
