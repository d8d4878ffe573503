"""The local executor: runs jobs in worker processes on this machine.

A worker does one job after another, over several stages, so each worker imports torch and the model
library once. A job with ``own_process`` ends the workers after its stage. The output of a job goes
to a file, which is shown only with an error.
"""

from __future__ import annotations

import collections
import os
import selectors
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.processes import WorkerProcess, end_all, thread_limits
from gapft_harness.executors.jobs import GO_ON, failure
from gapft_harness.hooks.protocols import Job, Progress

#: Seconds between two checks that the workers are alive. Usually the closed pipe of a dead worker
#: is noticed at once; this is for a worker whose own child process still holds the pipe.
_LOOK_S = 1.0

_SERVE = "gapft_harness.executors.worker:serve"


@dataclass(slots=True, eq=False)
class _JobWorker(WorkerProcess):
    """A worker process; ``job`` is the number of its current job, None if it is idle."""

    job: int | None = None


class LocalExecutor:
    """Runs jobs in worker processes on this machine.

    Workers start when they are first needed. They end with ``close``, with the first failure, or
    with this process, however it ends. Use an executor from one thread only.

    Args:
        settings: the recipe's ``executor`` section: ``workers`` (maximum number of parallel
            processes) and ``threads`` (CPU threads of each process).
        plugin_files: files given by ``--plugin``; unused, since each job has them as an argument.
    """

    def __init__(self, settings: Mapping[str, Any], plugin_files: Sequence[str] = ()) -> None:
        self._count = int(settings["workers"])
        self._threads = int(settings["threads"])
        self._workers: list[_JobWorker] = []
        self._closed = False
        self._finalizer = weakref.finalize(self, end_all, self._workers, os.getpid())

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        """Run all jobs; ``function(progress=..., **arguments)`` must return a dict of JSON values.

        Args:
            jobs: the jobs; each goes to the next free worker, in this order.
            progress: called in this thread with (label, done, total, tokens, note).

        Returns:
            The results in the order of the jobs.

        Raises:
            GapftError: a job failed. The job's own exception if it is a GapftError (UserError and
                PluginError included), else one with the job's name and the end of the traceback.
                The other jobs are stopped.
            ValueError: the executor was closed.
        """
        if self._closed:
            raise ValueError("this executor is closed")
        for worker in [w for w in self._workers if w.process.poll() is not None]:
            self._workers.remove(worker)
            worker.end()
        try:
            results = self._run(jobs, progress)
        except BaseException:  # also after Ctrl-C, no job may continue in the background
            end_all(self._workers, os.getpid())
            raise
        if any(job.own_process for job in jobs):
            end_all(self._workers, os.getpid())
        return results

    def close(self) -> None:
        """End the workers. Closing twice has no further effect."""
        self._closed = True
        self._finalizer()

    def _run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        waiting = collections.deque(range(len(jobs)))
        results: dict[int, dict[str, Any]] = {}
        while len(results) < len(jobs):
            self._hand_out(waiting, jobs)
            for worker in self._heard():
                number = worker.job
                assert number is not None  # only busy workers report
                job = jobs[number]
                reports = worker.receive()
                if reports is None:
                    raise _died(job, worker)
                for kind, *fields in reports:
                    if kind == "progress":
                        progress(job.label, *fields)
                    elif kind == "error":
                        name, text, trace = fields
                        raise failure(job.label, name, text, trace, _output(worker))
                    else:
                        results[number] = fields[0]
                        worker.job = None
        return [results[number] for number in range(len(jobs))]

    def _hand_out(self, waiting: collections.deque[int], jobs: Sequence[Job]) -> None:
        """Assign queued jobs to idle workers; start workers up to the maximum."""
        while waiting:
            idle = next((worker for worker in self._workers if worker.job is None), None)
            if idle is None:
                if len(self._workers) >= self._count:
                    return
                idle = self._start()
            idle.job = waiting.popleft()
            job = jobs[idle.job]
            idle.forget_output()
            idle.send({"function": job.function, "arguments": dict(job.arguments)})

    def _start(self) -> _JobWorker:
        environment = {**thread_limits(self._threads), "TOKENIZERS_PARALLELISM": "false"}
        worker = _JobWorker.start(_SERVE, [os.getpid()], environment)
        self._workers.append(worker)
        return worker

    def _heard(self) -> list[_JobWorker]:
        """Wait until busy workers have sent a report or died, and return these workers."""
        busy = [worker for worker in self._workers if worker.job is not None]
        with selectors.DefaultSelector() as selector:
            for worker in busy:
                selector.register(worker.reports, selectors.EVENT_READ, worker)
            heard: list[_JobWorker] = []
            while not heard:
                # Check for dead workers before the pipes: their last reports are in the pipe then.
                dead = [worker for worker in busy if worker.process.poll() is not None]
                heard = [key.data for key, _ in selector.select(0 if dead else _LOOK_S)] or dead
        return heard


def _died(job: Job, worker: _JobWorker) -> GapftError:
    how = worker.autopsy()
    cause = " (often because memory ran out)" if "SIGKILL" in how else ""
    return GapftError(
        f"{job.label}: its worker process died, {how}{cause}. {GO_ON}{_output(worker)}"
    )


def _output(worker: _JobWorker) -> str:
    tail = worker.tail()
    return f"\nIts last output:\n{tail}" if tail else ""
