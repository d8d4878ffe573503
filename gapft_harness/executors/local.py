"""The local executor: jobs in worker processes on this machine that outlive the job.

A worker takes the next job when it has done one, and stays for the next stage, so torch and the
model library are imported once a worker; after jobs that want a process of their own it ends. What
a job prints goes to a file that only an error shows.
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

#: Seconds between two looks at whether the workers live. A dead one is seen at once by its closed
#: pipe, unless it left a child of its own that still holds the pipe.
_LOOK_S = 1.0

_SERVE = "gapft_harness.executors.worker:serve"


@dataclass(slots=True, eq=False)
class _JobWorker(WorkerProcess):
    """One worker; ``job`` is the number of the job it is doing, None when idle."""

    job: int | None = None


class LocalExecutor:
    """Runs jobs in worker processes on this machine.

    Workers start when first needed, and end with ``close``, with the first failure, or with this
    process, however it ends. To be used from one thread.

    Args:
        settings: the recipe's ``executor`` section: ``workers`` (most processes side by side) and
            ``threads`` (CPU threads of each).
        plugin_files: files given by ``--plugin``. Not used here: jobs carry them as arguments.
    """

    def __init__(self, settings: Mapping[str, Any], plugin_files: Sequence[str] = ()) -> None:
        self._count = int(settings["workers"])
        self._threads = int(settings["threads"])
        self._workers: list[_JobWorker] = []
        self._closed = False
        self._finalizer = weakref.finalize(self, end_all, self._workers, os.getpid())

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        """Runs all jobs; ``function(progress=..., **arguments)`` must return a dict of JSON values.

        Args:
            jobs: taken in their order by whichever worker is free.
            progress: called in this thread with (label, done, total).

        Returns:
            The jobs' results, in the jobs' order.

        Raises:
            GapftError: a job failed: its own error if that is a GapftError (or UserError or
                PluginError), else one that names the job and shows what happened. The other jobs
                are stopped.
            ValueError: the executor was closed.
        """
        if self._closed:
            raise ValueError("this executor is closed")
        for worker in [w for w in self._workers if w.process.poll() is not None]:
            self._workers.remove(worker)
            worker.end()
        try:
            results = self._run(jobs, progress)
        except BaseException:  # Ctrl-C too: no job goes on behind the person's back
            end_all(self._workers, os.getpid())
            raise
        if any(job.own_process for job in jobs):
            end_all(self._workers, os.getpid())
        return results

    def close(self) -> None:
        """Ends the workers. Closing twice is no error."""
        self._closed = True
        self._finalizer()

    def _run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        waiting = collections.deque(range(len(jobs)))
        results: dict[int, dict[str, Any]] = {}
        while len(results) < len(jobs):
            self._hand_out(waiting, jobs)
            for worker in self._heard():
                number = worker.job
                assert number is not None  # only busy workers are heard
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
        """Gives waiting jobs to idle workers, and starts workers while there are too few."""
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
        """Waits for reports; the busy workers that sent something or died."""
        busy = [worker for worker in self._workers if worker.job is not None]
        with selectors.DefaultSelector() as selector:
            for worker in busy:
                selector.register(worker.reports, selectors.EVENT_READ, worker)
            heard: list[_JobWorker] = []
            while not heard:
                # The dead first: all that they reported is in the pipe by then, and is read.
                dead = [worker for worker in busy if worker.process.poll() is not None]
                heard = [key.data for key, _ in selector.select(0 if dead else _LOOK_S)] or dead
        return heard


def _died(job: Job, worker: _JobWorker) -> GapftError:
    how = worker.autopsy()
    cause = " (often the system's answer to too little memory)" if "SIGKILL" in how else ""
    return GapftError(
        f"{job.label}: its worker process died, {how}{cause}. {GO_ON}{_output(worker)}"
    )


def _output(worker: _JobWorker) -> str:
    tail = worker.tail()
    return f"\nThe last it printed:\n{tail}" if tail else ""
