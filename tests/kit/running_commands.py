"""Kill a running command, and read its store and its result."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil

from gapft_harness.run_directory import layout
from tests.kit.patience import PATIENCE_S


def find_workers(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return a command's descendant processes; none if it has ended."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def kill_command(
    process: subprocess.Popen[bytes], workers: list[psutil.Process] | None = None
) -> bool:
    """Send SIGKILL to a command's process group and wait until its workers are gone.

    The command is stopped first: finding its workers takes long on a busy machine.

    Args:
        process: the command, started in its own session.
        workers: its workers, if already known.

    Returns:
        False if the command had already ended.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGSTOP)
    workers = find_workers(process) if workers is None else workers
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    assert psutil.wait_procs(workers, timeout=PATIENCE_S)[1] == [], "workers end with their driver"
    return status == -signal.SIGKILL


def read_result(run: Path) -> dict[str, bytes]:
    """Read all files of a finished run by name, without its history.

    The history is measured times, sources of reused responses, and the lock.
    """
    files = {
        path.relative_to(run).as_posix(): path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.name not in ("run.lock", layout.HISTORY)
    }
    manifest = json.loads(files["manifest.json"])
    del manifest["stages"], manifest["reused"]
    manifest.pop("history", None)  # its lines have times
    for facts in manifest["training"].values():
        facts.pop("seconds", None)
    files["manifest.json"] = json.dumps(manifest).encode()
    stages = rb"search|states|select|train|audit|experiments"
    time_row = rb"(?:\| |<th scope=\"row\">)(?:" + stages + rb")(?: \||</th>).*"
    for page in ("report/report.md", "report/index.html"):
        files[page] = re.sub(time_row, b"", files[page])
    return files


def find_stored_files(store: Path, **facts: Any) -> list[Path]:
    """Find a store's response files in groups whose keys have these values.

    Args:
        store: its folder.
        facts: values by name: ``split`` and ``purpose`` of the samples' random streams; ``arm``:
            True with an adapter, False without one.
    """
    files = []
    for group in sorted(store.glob("generate/*/made_from.json")):
        key = json.loads(group.read_text())["key"]
        values = {**key.get("streams", {}), "arm": key["sampler"]["adapter"] is not None}
        if facts.items() <= values.items():
            files += sorted(group.parent.glob("[!.]*.jsonl"))
    return files
