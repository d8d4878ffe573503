"""What stages record in the manifest of what their jobs found: changes for ``update_manifest``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gapft_harness.errors import UserError


def record_search(split: str, facts: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """The task, the model and the verdicts of a split's search.

    Raises:
        UserError: when it is applied, if the other split was searched with another task.
    """

    def change(manifest: dict[str, Any]) -> None:
        task = dict(facts["task"])
        before = manifest["task"].get("fingerprint", task["fingerprint"])
        if before != task["fingerprint"]:
            raise UserError(
                f"task {task['name']} was changed between the search of pool and audit; restore "
                "it, or start a new run directory"
            )
        earlier = manifest["task"].get("dropped", [])
        task["dropped"] = earlier + [line for line in task["dropped"] if line not in earlier]
        manifest["task"] = task
        manifest["source"] = facts["source"]
        if "shards" in facts:
            manifest.setdefault("shards", {})[split] = facts["shards"]
        record_judging(manifest, split, facts)

    return change


def record_judging(manifest: dict[str, Any], name: str, facts: dict[str, Any]) -> None:
    """What was found when the responses of a split or an arm were judged, and by what."""
    for section, key in (
        ("verdict_counts", "verdicts"),
        ("finish_reasons", "finish_reasons"),
        ("drawn", "drawn"),
        ("judged_by", "judged_by"),
        ("executions", "executions"),
    ):
        if key in facts:
            manifest.setdefault(section, {})[name] = facts[key]
    record_warnings(manifest, [f"{name}: {warning}" for warning in facts["warnings"]])


def record_warnings(manifest: dict[str, Any], warnings: Sequence[str]) -> None:
    """Sentences that the report shows; one that is there already is not repeated."""
    manifest["warnings"] += [w for w in warnings if w not in manifest["warnings"]]


def recorder(section: str, key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """One entry of a section."""

    def change(manifest: dict[str, Any]) -> None:
        manifest.setdefault(section, {})[key] = value

    return change
