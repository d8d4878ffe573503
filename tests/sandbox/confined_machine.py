"""Make a process lack system calls, as containers do to the programs in them."""

from __future__ import annotations

import ctypes
import errno
import struct

from gapft_harness.sandbox.confinement.namespaces import forbid_new_privileges
from gapft_harness.sandbox.confinement.syscalls import check_result, libc

#: The numbers of system calls on x86_64 that each tier needs.
UNSHARE, LANDLOCK = {"unshare": 272}, {"landlock_create_ruleset": 444}


def refuse_calls(calls: dict[str, int]) -> None:
    """Make system calls fail in this process and its children."""
    forbid_new_privileges()
    # BPF: load the call's number; a call to refuse returns EPERM, any other one is allowed.
    steps = [(0x20, 0, 0, 0)]
    for call in calls.values():
        steps += [(0x15, 0, 1, call), (0x06, 0, 0, 0x00050000 | errno.EPERM)]
    steps.append((0x06, 0, 0, 0x7FFF0000))
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    check_result(libc.prctl(22, 2, ctypes.c_char_p(header), 0, 0), "seccomp")
