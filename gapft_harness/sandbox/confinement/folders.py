"""Find and open the folders that an interpreter needs for a program's imports."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

#: The system's time zones, which ``zoneinfo`` and ``TZ`` read.
_ZONES = "/usr/share/zoneinfo"


def find_needed_folders(import_path: Iterable[str]) -> list[str]:
    """Find the folders of the standard library, loaded packages, shared libraries and time zones.

    Args:
        import_path: folders that contain preloaded packages. Such a folder is never needed
            completely: a shared library directly in it is already loaded.
    """
    folders = {entry for entry in sys.path if os.path.isdir(entry)}
    packages = set(map(os.path.realpath, import_path)) - set(map(os.path.realpath, folders))
    own = tuple(entry + "/" for entry in folders)
    for name, module in list(sys.modules.items()):
        paths = [] if "." in name else list(getattr(module, "__path__", None) or [])
        for path in paths:
            if name == "gapft_harness" or (path.startswith(own) and "-packages/" not in path):
                continue
            folders.add(path)
            if os.path.isdir(f"{path}.libs"):  # the shared libraries of wheels
                folders.add(f"{path}.libs")
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[5].strip() if line.count("/") else ""
            if ".so" in os.path.basename(path) and os.path.isabs(path):
                folder = os.path.dirname(path)
                if folder not in packages:
                    folders.add(folder)
    if os.path.isdir(_ZONES):
        folders.add(_ZONES)
    return sorted(folders)


def open_folders(paths: Iterable[str], first: int) -> dict[str, int]:
    """Open folders at descriptors from ``first`` up, while this process still has access."""
    import fcntl

    descriptors = {}
    for path in paths:
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY)
        descriptors[path] = fcntl.fcntl(descriptor, fcntl.F_DUPFD, first)
        os.close(descriptor)
    return descriptors


def use_descriptors_for_unreachable(descriptors: dict[str, int]) -> None:
    """Import through descriptors from folders that this user cannot reach by name.

    An example is an interpreter in root's home. Descriptors of reachable folders are closed.
    """
    names = {}
    for path, descriptor in descriptors.items():
        if os.access(path, os.R_OK | os.X_OK):
            os.close(descriptor)
        else:
            names[path] = f"/proc/self/fd/{descriptor}"

    def translate(path: str) -> str:
        for folder in sorted(names, key=len, reverse=True):
            if path == folder or path.startswith(folder + "/"):
                return names[folder] + path[len(folder) :]
        return path

    sys.path[:] = [translate(entry) for entry in sys.path]
    for module in list(sys.modules.values()):
        paths = getattr(module, "__path__", None)
        if isinstance(paths, list):
            paths[:] = [translate(entry) for entry in paths]
    sys.path_importer_cache.clear()
