"""What a run rests on besides: the tasks of its further audits, which may come to it later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gapft_harness.run_directory import layout
from gapft_harness.stages.foundation.foundation import AUDITS

#: Sections of what a run rests on that say of a task what it is.
_OF_TASK = ("task", "code")


def together(rests: Mapping[str, Any], more: Mapping[str, Any], audit: str) -> dict[str, Any]:
    """What a run rests on, with what one of its further audits rests on.

    Args:
        rests: the run's.
        more: the audit's, as if it were a run's own.
        audit: its name.
    """
    joined = {
        key: {**rests.get(key, {}), **more[key]}
        for key in ("data", "plugins", "files")
        if key in more
    }
    of_task = {key: more[key] for key in _OF_TASK}
    return {**rests, **joined, AUDITS: {**rests.get(AUDITS, {}), audit: of_task}}


def with_audits(
    recorded: Mapping[str, Any], now: Mapping[str, Any], splits: Iterable[str]
) -> dict[str, Any]:
    """What is recorded, and what of further audits and other splits came to the run since.

    Args:
        recorded: the section; what it says stays.
        now: all as it is now, which agrees with that.
        splits: those that are to be searched.
    """
    new = {split for split in splits if split not in recorded.get("data", {})}
    audits = {name for name in map(layout.further, new) if name}
    joined: dict[str, dict[str, Any]] = {
        "data": {split: now["data"][split] for split in sorted(new)},
        AUDITS: {name: now[AUDITS][name] for name in sorted(audits)},
        "files": now["files"] if new else {},
    }
    more = {key: {**of, **recorded.get(key, {})} for key, of in joined.items() if of}
    return {**recorded, **more}
