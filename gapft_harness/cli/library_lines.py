"""What libraries log or warn of in the command's own process: no part of what it has to say.

Such lines are held back, and shown if the command fails, since they may say why. Errors that a
library logs are shown at once. What a job prints goes to a file of its worker in any case.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import sys
from collections.abc import Iterator

#: Lines that a failure shows.
_SHOWN = 20


class _Held(logging.Handler):
    """Keeps the last lines below an error; writes errors to standard error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: collections.deque[str] = collections.deque(maxlen=_SHOWN)
        self.setFormatter(logging.Formatter("%(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Takes one record."""
        line = self.format(record)
        if record.levelno >= logging.ERROR:
            print(line, file=sys.stderr)
        else:
            self.lines.append(line)


_HELD = _Held()


def hold_back() -> None:
    """From here on; where logging is set up already, it stays as it is."""
    logging.captureWarnings(True)
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(_HELD)


@contextlib.contextmanager
def shown_on_failure() -> Iterator[None]:
    """Shows the held lines if what is done inside fails."""
    try:
        yield
    except BrokenPipeError:
        raise
    except Exception:
        if _HELD.lines:
            print("The last that libraries said before this failure:", file=sys.stderr)
            print(*_HELD.lines, sep="\n", file=sys.stderr)
        raise
