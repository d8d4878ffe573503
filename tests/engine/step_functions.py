"""Functions of steps; each call appends a line to the file ``calls``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapft_harness.engine.outputs import OWN_RUN_ONLY

#: What ``keep_here`` writes.
LATE = "late"


def _count(calls: str, name: str) -> None:
    with Path(calls).open("a") as file:
        file.write(f"{name}\n")


def write_text(output: Path, *, text: Sequence[str], calls: str) -> dict[str, Any]:
    _count(calls, "write_text")
    output.write_text("".join(text))
    return {"length": len(text)}


def join_texts(output: Path, texts: Sequence[Path], *, separator: str, calls: str) -> None:
    _count(calls, "join_texts")
    output.write_text(separator.join(path.read_text() for path in texts))


def keep_here(output: Path, *, calls: str) -> dict[str, Any]:
    _count(calls, "keep_here")
    output.write_text(LATE)
    return {OWN_RUN_ONLY: True}


def write_nothing(output: Path) -> None:
    pass


def fail(output: Path, *, calls: str) -> None:
    _count(calls, "fail")
    output.write_text("half")
    raise RuntimeError("no luck")


def return_set(output: Path) -> Any:
    output.write_text("x")
    return {"numbers": {1, 2}}
