"""A task's YAML as lm-eval resolved it, as JSON values: what a run's identity rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapft_harness.core.identities import canonical


def resolved(task: Any) -> dict[str, Any]:
    """The configuration of a task; a function stands as its name."""
    config = task.config.to_dict(keep_callable=True)
    metadata = config.get("metadata") or {}
    config["metadata"] = {key: metadata.get(key) for key in ("version", "gapft")}
    if not config.get("num_fewshot"):  # then it matters not what an example would show
        config["fewshot_config"]["doc_to_target"] = config.get("doc_to_target")
    plain: dict[str, Any] = _plain(config)
    return plain


def _plain(value: Any) -> Any:
    """JSON values; a function stands as its module's last name and its own."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in sorted(value.items(), key=str)}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if callable(value):
        module = str(getattr(value, "__module__", "")).replace("/", ".").rpartition(".")[2]
        return f"{module}.{getattr(value, '__qualname__', type(value).__name__)}"
    return value if isinstance(value, str | int | float | bool | None) else canonical(str(value))
