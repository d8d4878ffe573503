"""Namespaces: a process with its own users, mounts, processes, network, IPC and host name.

The order of the steps matters, since each needs the one before; ``Worker`` calls them. At the end
the worker is the first process of its own pid namespace, and its root folder contains only the
folders of the interpreter, loaded packages, shared libraries and time zones, four devices,
placeholders for ``/dev/stdin``, ``stdout`` and ``stderr``, an empty ``/etc`` and an empty working
folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
from collections.abc import Iterable
from pathlib import Path

from gapft_harness.sandbox.confinement import streams
from gapft_harness.sandbox.confinement.syscalls import (
    BUILD,
    Refused,
    check_result,
    find_machine,
    libc,
    syscall,
)

#: Candidates for the working folder: the first that hides no needed folder is used.
_WORK = ("/tmp", "/box")
_NEW_ROOT = "/proc"  # always exists, and nothing in it is mounted in the new root
_HIDDEN = ("site-packages", "dist-packages")

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
NEWPID, _NEWNET = 0x20000000, 0x40000000
_RDONLY, NOSUID, NODEV, NOEXEC, NOATIME = 1, 2, 4, 8, 1024
_BIND = 4096
_REC = 16384
_PRIVATE = 1 << 18
DETACH = 2
_AT_RECURSIVE = 0x8000
_AT_FDCWD = -100
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_CAP_SYS_ADMIN = 21
_PDEATHSIG, _DUMPABLE, _KEEPCAPS, _NO_NEW_PRIVS = 1, 4, 8, 38


def enter_user_namespace(high_id: int | None) -> None:
    """Enter new namespaces of every kind, and map the users.

    Args:
        high_id: for root, a user id without rights outside, which is mapped in addition to root;
            None for an ordinary user, who is mapped to the same id.

    Raises:
        Refused: the kernel or its settings do not permit namespaces.
    """
    uid = os.getuid()
    gid = os.getgid()
    # After setuid a process is not dumpable, and its /proc files belong to root.
    libc.prctl(_DUMPABLE, 1, 0, 0, 0)
    if high_id is None:
        _unshare_namespaces()
        _write_self("setgroups", "deny")
        _write_self("uid_map", f"{uid} {uid} 1")
        _write_self("gid_map", f"{gid} {gid} 1")
        return
    # Only a process outside the new namespace can write two entries, so a helper stays outside.
    ready_in, ready_out = os.pipe()
    parent = os.getpid()
    helper = os.fork()
    if helper == 0:
        with contextlib.suppress(BaseException):
            os.close(ready_out)
            if os.read(ready_in, 1):
                Path(f"/proc/{parent}/uid_map").write_text(f"0 {uid} 1\n1 {high_id} 1\n")
                Path(f"/proc/{parent}/gid_map").write_text(f"0 {gid} 1\n1 {high_id} 1\n")
                os._exit(0)
        os._exit(1)
    os.close(ready_in)
    try:
        os.setgroups([])
        _unshare_namespaces()
        os.write(ready_out, b"x")
    finally:
        os.close(ready_out)
        _, status = os.waitpid(helper, 0)
    if status:
        raise Refused("the user id map of the new namespace could not be written")


def enter_pid_namespace() -> None:
    """Fork; the child returns as first process of the new pid namespace, the parent waits for it.

    The parent stays outside as the process that the harness knows. Each of the two ends with the
    other.
    """
    child = os.fork()
    if child == 0:
        check_result(libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PDEATHSIG)")
        return
    os.closerange(0, 1 << 16)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def build_root(readable: Iterable[str], devices: Iterable[str]) -> str:
    """Mount a new read-only root and unmount the old one.

    Args:
        readable: folders to keep, read-only, under their own names. Installed packages directly
            below them are hidden.
        devices: device files to keep.

    Returns:
        The empty folder for a ``WorkFolder``.
    """
    mount("none", "/", None, _REC | _PRIVATE)
    keep = sorted({path for path in readable if os.path.isdir(path)})
    keep = [path for path in keep if not any(_is_visible(outer, path) for outer in keep)]
    mount("tmpfs", _NEW_ROOT, "tmpfs", NOSUID | NODEV, "size=64k,nr_inodes=2k,mode=755")
    for path in keep:
        target = _NEW_ROOT + path
        if not os.path.isdir(target):
            os.makedirs(target)
        mount(path, target, None, _BIND | _REC)
        _set_read_only(target, recursive=True)
        for name in _HIDDEN:
            if os.path.isdir(f"{target}/{name}"):
                # Still writable: mount points for kept packages are created in it below.
                mount("tmpfs", f"{target}/{name}", "tmpfs", NOSUID | NODEV, "size=64k,mode=755")
    for path in devices:
        target = _NEW_ROOT + path
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _empty_file(target)
        mount(path, target, None, _BIND)
        # The device can be read and written, but its times and mode cannot be changed.
        _set_read_only(target, recursive=False, devices=True)
    for path in streams.NAMES:
        _empty_file(_NEW_ROOT + path, mode=0)
    os.makedirs(_NEW_ROOT + "/etc", exist_ok=True)
    work = next(folder for folder in _WORK if not any(p.startswith(folder + "/") for p in keep))
    os.makedirs(_NEW_ROOT + work, exist_ok=True)
    for path in keep:
        for name in _HIDDEN:
            if os.path.isdir(f"{_NEW_ROOT}{path}/{name}"):
                _set_read_only(f"{_NEW_ROOT}{path}/{name}", recursive=False)
    os.chdir(_NEW_ROOT)
    current_folder = ctypes.c_char_p(b".")
    syscall("pivot_root", find_machine().pivot_root, current_folder, current_folder)
    check_result(libc.umount2(b".", DETACH), "umount of the old root")
    os.chdir("/")
    _set_read_only("/", recursive=False)
    return work


def _empty_file(path: str, mode: int = 0o644) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, mode))


def _is_visible(outer: str, inner: str) -> bool:
    """Check whether mounting ``outer`` makes ``inner`` correctly visible too."""
    if not inner.startswith(outer + "/"):
        return False
    relative = inner[len(outer) :] + "/"
    return not any(f"/{name}/" in relative or os.path.isdir(f"{inner}/{name}") for name in _HIDDEN)


def become_first_user() -> None:
    """Switch from mapped root to the mapped high id, and keep the capabilities."""
    check_result(libc.prctl(_KEEPCAPS, 1, 0, 0, 0), "prctl(KEEPCAPS)")
    os.setresgid(1, 1, 1)
    os.setresuid(1, 1, 1)


def keep_admin_capability() -> None:
    """Drop every capability except the one to mount and to create pid namespaces."""
    _set_capabilities(1 << _CAP_SYS_ADMIN)


def drop_capabilities() -> None:
    """Drop every capability, for the program's own process."""
    check_result(libc.capset(*_NONE), "capset")


def forbid_new_privileges() -> None:
    """Prevent this process and its children from gaining privileges through exec."""
    check_result(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(NO_NEW_PRIVS)")


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent's thread ends."""
    check_result(libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PDEATHSIG)")


def _unshare_namespaces() -> None:
    kinds = _NEWUSER | _NEWNS | NEWPID | _NEWNET | _NEWIPC | _NEWUTS
    check_result(libc.unshare(kinds), "unshare(user, mount, pid, net, ipc, uts)")


def _write_self(name: str, text: str) -> None:
    try:
        Path(f"/proc/self/{name}").write_text(text)
    except OSError as error:
        raise Refused(f"/proc/self/{name}: {error.strerror} (errno {error.errno})") from error


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount a file system or folder.

    Raises:
        Refused: the kernel refused.
    """
    result = libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    check_result(result, f"mount {source} at {target}")


def _set_read_only(path: str, recursive: bool, devices: bool = False) -> None:
    flags = _ATTR_RDONLY | _ATTR_NOSUID | (0 if devices else _ATTR_NODEV)
    attributes = struct.pack("QQQQ", flags, 0, 0, 0)
    syscall(
        f"mount_setattr {path}",
        BUILD["mount_setattr"],
        _AT_FDCWD,
        ctypes.c_char_p(os.fsencode(path)),
        _AT_RECURSIVE if recursive else 0,
        ctypes.c_char_p(attributes),
        len(attributes),
    )


def _set_capabilities(mask: int) -> None:
    check_result(libc.capset(*_pack_capabilities(mask)), "capset")


def _pack_capabilities(mask: int) -> tuple[ctypes.c_char_p, ctypes.c_char_p]:
    low = mask & 0xFFFFFFFF
    high = mask >> 32
    header = struct.pack("Ii", 0x20080522, 0)
    data = struct.pack("IIIIII", low, low, 0, high, high, 0)
    return ctypes.c_char_p(header), ctypes.c_char_p(data)


_NONE = _pack_capabilities(0)
