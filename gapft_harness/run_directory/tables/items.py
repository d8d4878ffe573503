"""``audit/NAME/items.json``: a named subset of an audit, as the ids of its problems."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from gapft_harness.core.errors import GapftError
from gapft_harness.core.files import write_json


def write_items(path: Path, of: str, items: Sequence[str], task: str | None = None) -> None:
    """Writes it.

    Args:
        path: the file.
        of: the audit's name; ``audit`` is the run's own.
        items: ids of problems, distinct.
        task: that whose audit has them too, where that is what chose them.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whence = {} if task is None else {"task": task}
    write_json(path, {"of": of, **whence, "items": sorted(items)})


def read_items(path: Path) -> tuple[str, list[str], str | None]:
    """The name of its audit, the ids of its problems, and the task that chose them, if one did.

    Raises:
        GapftError: it is no such file.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
        return str(content["of"]), [str(i) for i in content["items"]], content.get("task")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise GapftError(f"{path}: is no subset of an audit ({error!r})") from error
