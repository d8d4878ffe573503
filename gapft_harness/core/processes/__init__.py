"""Child processes: how they are started, spoken to and ended, and how many threads they take."""

from gapft_harness.core.processes.children import (
    Closing,
    die_with,
    open_standard_streams,
    thread_limits,
)

__all__ = ["Closing", "die_with", "open_standard_streams", "thread_limits"]
