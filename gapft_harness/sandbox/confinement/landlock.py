"""Landlock: permanently restrict a process to the files that were granted."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from gapft_harness.sandbox.confinement.syscalls import BUILD, libc, syscall

_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_TRUNCATE = 1 << 14
#: ABI version -> number of file rights; later versions have the same number as the last.
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_NETWORK_ABI, _SCOPE_ABI, TRUNCATION_ABI = 4, 6, 3
_HIDDEN = ("site-packages", "dist-packages")


def read_abi() -> int:
    """Read the kernel's landlock version; 0 if it has none."""
    number = ctypes.c_long(BUILD["landlock_create_ruleset"])
    version: int = libc.syscall(number, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    return max(0, version)


def create_ruleset(readable: Iterable[str], devices: Iterable[str]) -> int:
    """Create a rule set that permits reading these folders and devices, and writing the devices.

    Args:
        readable: folders whose files may be read. Installed packages below them are not readable.
        devices: device files that may be read and written.

    Returns:
        A file descriptor for ``restrict_process``.

    Raises:
        Refused: the kernel has no landlock, or it is disabled.
    """
    version = read_abi()
    rights = (1 << _RIGHTS.get(version, 16)) - 1
    network = 3 if version >= _NETWORK_ABI else 0
    scope = 3 if version >= _SCOPE_ABI else 0
    handled = struct.pack("QQQ", rights, network, scope)
    size = 24 if version >= _SCOPE_ABI else 16 if version >= _NETWORK_ABI else 8
    number = BUILD["landlock_create_ruleset"]
    rules = syscall("landlock_create_ruleset", number, ctypes.c_char_p(handled), size, 0)
    folders = list(readable)
    for folder in folders:
        inner = [other for other in folders if other.startswith(folder + "/")]
        if not inner and not any((Path(folder) / name).exists() for name in _HIDDEN):
            _grant_rights(rules, folder, _READ_DIR | _READ_FILE)
            continue
        _grant_rights(rules, folder, _READ_DIR)
        for entry in Path(folder).iterdir():
            holds_other = any(f"{other}/".startswith(f"{entry}/") for other in inner)
            if entry.name not in _HIDDEN and not holds_other:
                _grant_rights(rules, str(entry), _READ_FILE)
    for device in devices:
        truncate = _TRUNCATE if version >= TRUNCATION_ABI else 0
        _grant_rights(rules, device, _READ_FILE | _WRITE_FILE | truncate)
    return rules


def restrict_process(rules: int) -> None:
    """Restrict the calling process permanently by a rule set. It needs ``no_new_privs``."""
    syscall("landlock_restrict_self", BUILD["landlock_restrict_self"], rules, 0)


def _grant_rights(rules: int, path: str, rights: int) -> None:
    try:
        target = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a dangling link or a deleted file: nothing to grant
    try:
        rule = struct.pack("=Qi", rights, target)
        number = BUILD["landlock_add_rule"]
        syscall(f"landlock_add_rule {path}", number, rules, 1, ctypes.c_char_p(rule), 0)
    finally:
        os.close(target)
