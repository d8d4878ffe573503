"""Run a command as an ordinary user, for tests that run as root. Needs root and mounts.

``python -m tests.sandbox.ordinary_user COMMAND…``. An interpreter in root's private home is made
reachable for this process: in its own mount namespace, closed folders are replaced by open ones
that hold only the needed files.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from gapft_harness.sandbox.confinement.namespaces import _BIND, _NEWNS, _PRIVATE, _REC, mount
from gapft_harness.sandbox.confinement.syscalls import check_result, libc

USER = 61_234
_MOVE = 8192


def main(command: list[str]) -> None:
    check_result(libc.unshare(_NEWNS), "unshare(NEWNS)")
    mount("none", "/", None, _REC | _PRIVATE)
    needed = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, os.getcwd())}
    closed = {find_closed_folder(Path(path)) for path in needed} - {None}
    for folder in sorted(str(c) for c in closed):
        open_folder(folder, [path for path in needed if path.startswith(folder + "/")])
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    os.environ["HOME"] = tempfile.mkdtemp()
    os.environ["USER"] = os.environ["LOGNAME"] = "gapft-test"
    os.execv(command[0], command)


def find_closed_folder(path: Path) -> Path | None:
    """Return the outermost parent folder that others may not enter."""
    way = [*reversed(path.parents), path]
    return next((folder for folder in way if not folder.stat().st_mode & 0o001), None)


def open_folder(folder: str, paths: list[str]) -> None:
    staging = tempfile.mkdtemp()
    mount("tmpfs", staging, "tmpfs", 0, "mode=755")
    for number, path in enumerate(paths):
        os.mkdir(f"{staging}/{number}")
        mount(path, f"{staging}/{number}", None, _BIND | _REC)
    mount("tmpfs", folder, "tmpfs", 0, "mode=755")
    for number, path in enumerate(paths):
        os.makedirs(path)
        mount(f"{staging}/{number}", path, None, _MOVE)
    check_result(libc.umount2(os.fsencode(staging), 2), "umount")
    os.rmdir(staging)


if __name__ == "__main__":
    main(sys.argv[1:])
