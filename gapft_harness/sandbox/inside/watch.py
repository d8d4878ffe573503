"""Watch a program's process: enforce its limits and send it the inputs of its calls.

A function program answers several calls in one process. The next input is sent only when the
program can no longer change the previous answer, so no test has a second chance. Data is copied
from descriptor to descriptor: no byte of an input or an answer enters the worker's memory.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gapft_harness.sandbox.inside.crowd import LOOK_INTERVAL_S, Crowd
from gapft_harness.sandbox.inside.execute import NEXT
from gapft_harness.sandbox.inside.messages import (
    ERROR_BYTES,
    LENGTH_BYTES,
    MAX_SHARED_AGE_S,
    AnsweredCall,
    Usage,
)

#: Seconds between two counts of a program's threads.
_COUNT_INTERVAL_S = 0.02
_CORES = os.cpu_count() or 1
#: Maximum bytes of answers and output of a process's calls; beyond it, there is no further call.
_MAX_STORED_BYTES = 1 << 16


@dataclass(slots=True)
class Calls:
    """The inputs of a function program, and its answered calls.

    Attributes:
        channel: descriptor of the socket to the program.
        inputs: descriptor of all inputs, each after its length.
        files: descriptors of standard output, standard error and report; the program has them too.
        answer_file: descriptor of the stored answers; the program does not have it.
        file_bytes: the size of the largest file that can be written.
        is_folder_untouched: checks whether the working folder is unchanged.
        answered: the answered calls except the last.
    """

    channel: int
    inputs: int
    files: tuple[int, int, int]
    answer_file: int
    file_bytes: int
    is_folder_untouched: Callable[[], bool]
    answered: list[AnsweredCall] = field(default_factory=list)
    _position: int = 0
    _end: int = 0

    @classmethod
    def open(
        cls, descriptors: Sequence[int], file_bytes: int, is_folder_untouched: Callable[[], bool]
    ) -> tuple[Calls, int]:
        """Create the calls, and return them with the program's end of their channel.

        Args:
            descriptors: inputs, standard output, standard error, report, source, stored answers.
            file_bytes: see the attribute.
            is_folder_untouched: see the attribute.
        """
        inputs, output, errors, report, _, answer_file = descriptors
        own_socket, program_socket = socket.socketpair()
        own_socket.setblocking(False)
        files = (output, errors, report)
        return cls(
            own_socket.detach(), inputs, files, answer_file, file_bytes, is_folder_untouched
        ), program_socket.detach()

    def events(self) -> int:
        """Return the event to wait for: a word from the program, or space for more of an input."""
        return select.POLLIN if self._position == self._end else select.POLLOUT

    def send(self) -> None:
        """Send as much of the input as the socket accepts without blocking."""
        try:
            self._position += os.sendfile(
                self.channel, self.inputs, self._position, self._end - self._position
            )
        except BlockingIOError:
            pass
        except OSError:  # the program closed its end of the socket, so nothing more can be sent
            self._position = self._end

    def read_word(self) -> bytes | None:
        """Read the program's word that a call is answered; None if it closed its end."""
        with contextlib.suppress(OSError):
            return os.read(self.channel, 1) or None
        return None

    def send_next_input(self) -> None:
        """Start to send the next input."""
        length = int.from_bytes(os.pread(self.inputs, LENGTH_BYTES, self._end), "little")
        self._end += LENGTH_BYTES + length
        self.send()

    def try_next_call(self, word: bytes, spent: Usage) -> bool:
        """Send the next input if there is one and this process may take a further call.

        The data that the program has written so far is its answer; later data does not change it.

        Returns:
            Whether a next call was sent; if not, the answer stays in ``files``.
        """
        sizes = [os.fstat(file).st_size for file in self.files]
        room = min(_MAX_STORED_BYTES, self.file_bytes) - os.lseek(self.answer_file, 0, os.SEEK_CUR)
        more = self._end < os.fstat(self.inputs).st_size
        if not more or word != NEXT or sum(sizes) > room or not self.is_folder_untouched():
            return False
        _, errors, report = self.files
        report_size = self._store_range(report, 0, sizes[2])
        error_size = self._store_range(errors, max(0, sizes[1] - ERROR_BYTES), sizes[1])
        self.answered.append(
            AnsweredCall(spent.cpu_s, spent.wall_s, report_size, error_size, max(sizes))
        )
        for file, size in zip(self.files, sizes, strict=True):
            if size:
                os.ftruncate(file, 0)
                os.lseek(file, 0, os.SEEK_SET)
        self.send_next_input()
        return True

    def _store_range(self, file: int, start: int, end: int) -> int:
        """Store a part of a file, less if the program truncates it; return the number of bytes."""
        position = start
        while position < end and (
            copied := os.sendfile(self.answer_file, file, position, end - position)
        ):
            position += copied
        return position - start


class Watch:
    """Watch a program's process from its fork to its end.

    Args:
        child: its process id.
        cpu_s: CPU limit of a test in seconds.
        wall_s: wall limit of a test in seconds.
        control: descriptor of the socket to the harness; any event on it ends the worker.
        crowd: measures the delay by other processes.
        calls: the calls of a function program; None for a stdin program.
    """

    def __init__(
        self,
        child: int,
        cpu_s: float,
        wall_s: float,
        control: int,
        crowd: Crowd,
        calls: Calls | None,
    ) -> None:
        self._child = child
        self._cpu_s = cpu_s
        self._wall_s = wall_s
        self._control = control
        self._crowd = crowd
        self._calls = calls
        self._end = os.pidfd_open(child)
        crowd.watch_process(self._end)
        self._poll = select.poll()
        self._poll.register(self._end, select.POLLIN)
        self._poll.register(control, select.POLLIN)
        if calls is not None:
            self._poll.register(calls.channel, calls.events())
        self._started = self._since = time.monotonic()
        self._used = self._used_before = 0.0
        self._has_input = False

    def wait(self) -> tuple[int, Usage, Sequence[AnsweredCall]]:
        """Wait until the process ends, or stop it.

        Returns:
            The exit status of the last test (0 if its call was answered), the time it used, and the
            calls answered before it.
        """
        answered_calls = self._calls.answered if self._calls is not None else ()
        spent = self._wait_until_over()
        os.kill(self._child, signal.SIGKILL)  # the id stays valid until wait4, even for a zombie
        _, status, usage = os.wait4(self._child, 0)
        os.close(self._end)
        if spent is None:
            self._used = usage.ru_utime + usage.ru_stime
            spent = self._measure_usage()
        elif not spent.stopped:
            return 0, spent, answered_calls
        return os.waitstatus_to_exitcode(status), spent, answered_calls

    def _wait_until_over(self) -> Usage | None:
        """Return the last test's time if it was answered or stopped; None if the process ended."""
        clock = ~self._child << 3 | 2  # the CPU clock of all its threads
        excused = 0.0  # the wall time in which it ran or had to wait for a CPU
        last_look = self._since
        while True:
            left = self._wall_s + excused - (time.monotonic() - self._since)
            wait = min(
                (self._cpu_s - (self._used - self._used_before)) / _CORES, left, LOOK_INTERVAL_S
            )
            if self._crowd.counts_threads:
                wait = min(wait, _COUNT_INTERVAL_S)
            events = dict(self._poll.poll(max(2.0, 1000 * wait)))
            if self._control in events:  # the harness ended or closed the socket
                os.kill(self._child, signal.SIGKILL)
                os._exit(1)
            try:
                self._used = time.clock_gettime(clock)
            except OSError:
                return None
            if self._crowd.counts_threads:
                self._crowd.check_threads(self._child)
            spent = self._measure_usage()
            if spent.stopped:
                return spent
            if self._calls is not None and self._calls.channel in events:
                if self._read_channel(self._calls, spent, ended=self._end in events):
                    return spent
            elif self._end in events:
                return None
            elif (current_time := time.monotonic()) >= last_look + LOOK_INTERVAL_S or left <= 0:
                last_look, excused = current_time, self._crowd.compute_excused_time(self._used)
                if spent.wall_s >= self._wall_s + excused:
                    return spent._replace(stopped="wall")

    def _measure_usage(self) -> Usage:
        cpu = self._used - self._used_before
        wall = time.monotonic() - self._since
        return Usage(cpu, wall, "cpu" if cpu >= self._cpu_s else "")

    def _read_channel(self, calls: Calls, spent: Usage, ended: bool) -> bool:
        """Handle an event on the channel; return whether this process's last call is answered."""
        if calls.events() == select.POLLOUT:
            calls.send()
        elif (word := calls.read_word()) is None:
            self._poll.unregister(calls.channel)
            return False
        elif not self._has_input:
            self._has_input = True
            calls.send_next_input()
        else:
            young = max(self._used, time.monotonic() - self._started) < MAX_SHARED_AGE_S
            if ended or not young or not calls.try_next_call(word, spent):
                return True
            self._used_before, self._since = self._used, time.monotonic()
        self._poll.register(calls.channel, calls.events())
        return False
