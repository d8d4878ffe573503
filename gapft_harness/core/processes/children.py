"""Child processes: how many threads they take, how they end with their parent, who closes them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

_PR_SET_PDEATHSIG = 1


def thread_limits(threads: int) -> dict[str, str]:
    """What a child's environment says of the threads that its libraries may take."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return dict.fromkeys(names, str(threads))


def open_standard_streams() -> None:
    """Opens descriptors 0 to 2 where they are closed, so that nothing else gets these numbers.

    Whoever starts a process moves its streams onto these numbers: what it is handed besides, under
    one of them, would be lost.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def die_with(parent: int) -> None:
    """Has the kernel kill this process when its parent dies, where the kernel can (Linux).

    The listening thread does the same everywhere, but not while a long call in C keeps the
    interpreter's lock.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the kernel was asked
        os._exit(1)


class Closing(ABC):
    """Closes itself at the end of a ``with`` statement."""

    @abstractmethod
    def close(self) -> None:
        """Ends what it holds. Closing twice is no error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
