"""Name the task file in error messages."""

from __future__ import annotations

from typing import Any


def describe_task(config: Any) -> str:
    """Return a task's name and file for messages; a key may be in a file that it includes."""
    settings = config if type(config) is dict else vars(config)
    source = (settings.get("metadata") or {}).get("config_source")
    place = f" ({source})" if source and source != "inline" else ""
    return f"task {settings.get('task')}{place}"
