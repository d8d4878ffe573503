"""State that hostile programs must not change: files, processes, mounts, a listener."""

from __future__ import annotations

import gc
import os
import socket
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

SECRET = "GAPFT_TEST_SECRET"


class World:
    """The parts of this machine that a hostile program could change.

    Args:
        folder: an empty folder that everyone may write to; only the sandbox protects it.
    """

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o777)
        self._folder = folder
        self._canary = folder / "canary"
        self._canary.write_text("untouched")
        self._canary.chmod(0o666)
        self._listener, self._datagrams = open_shared_port()
        self._listener.setblocking(False)
        self._port = self._listener.getsockname()[1]
        self._abstract = socket.socket(socket.AF_UNIX)
        self._abstract.bind(f"\0gapft-test-{os.getpid()}")
        self._abstract.listen()
        for sock in (self._datagrams, self._abstract):
            sock.setblocking(False)
        os.environ[SECRET] = "a secret of the environment"
        gc.collect()  # closes what earlier tests of this process left open
        self._others = list_living_descendants()  # of earlier tests; they may end at any time

    @property
    def given(self) -> dict[str, object]:
        """Return the names passed to hostile programs."""
        return {
            "canary": str(self._canary),
            "here": __file__,
            "pid": os.getpid(),
            "port": self._port,
            "abstract": f"gapft-test-{os.getpid()}",
            "secret": SECRET,
        }

    def state(self) -> dict[str, object]:
        """Return the state that must be equal before and after."""
        status = self._canary.stat()
        return {
            "canary": (self._canary.read_text(), status.st_mode, status.st_uid, status.st_mtime_ns),
            "folder": sorted(os.listdir(self._folder)),
            "mounts": list_mounts(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "priority": os.getpriority(os.PRIO_PROCESS, 0),
            "affinity": os.sched_getaffinity(0),
            "heard": self._heard(),
            "descendants": count_descendants(self._others),
        }

    def find_workers(self) -> list[int]:
        """Return the processes of sandboxes that this process started, outermost first."""
        return list_living_descendants(self._others)

    def _heard(self) -> list[str]:
        heard = []
        for name, receive in (
            ("tcp", self._listener.accept),
            ("unix", self._abstract.accept),
            ("udp", lambda: self._datagrams.recv(10)),
        ):
            try:
                receive()
            except BlockingIOError:
                continue
            heard.append(name)
        return heard

    def close(self) -> None:
        for sock in (self._listener, self._datagrams, self._abstract):
            sock.close()
        del os.environ[SECRET]


def open_shared_port() -> tuple[socket.socket, socket.socket]:
    """Open TCP and UDP sockets on the same port number."""
    while True:
        listener = socket.create_server(("127.0.0.1", 0))
        datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            datagrams.bind(listener.getsockname())
        except OSError:  # another process uses the port
            listener.close()
            datagrams.close()
            continue
        return listener, datagrams


def list_mounts() -> list[str]:
    """List mounts, except those that a concurrent test makes in its own folder."""
    folders = f"{tempfile.gettempdir()}/pytest-of-"
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if not line.split()[1].startswith(folders)]


def count_descendants(others: Collection[int], settle: float = 2.0) -> int:
    """Count living descendants of this process once none of them is ending.

    On a busy machine a killed process remains for a while, so three counts must agree.

    Args:
        others: processes of earlier tests; they and their descendants are not counted.
        settle: maximum seconds to wait.
    """
    deadline = time.monotonic() + settle
    counts = [len(list_living_descendants(others))]
    while time.monotonic() < deadline and not (len(counts) > 2 and len({*counts[-3:]}) == 1):
        time.sleep(0.02)
        counts.append(len(list_living_descendants(others)))
    return counts[-1]


def list_living_descendants(others: Collection[int] = ()) -> list[int]:
    """List descendants of this process but not of others, children before grandchildren."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z" and int(entry) not in others:
                parents[int(entry)] = int(fields[1])
    processes, generation = [], [os.getpid()]
    while generation := [pid for pid, parent in parents.items() if parent in generation]:
        processes += generation
    return processes
