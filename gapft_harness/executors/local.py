"""The local executor: runs jobs in worker processes on this machine.

A worker does one job after another, over several stages, so each worker imports torch and the model
library once. A job with ``own_process`` ends the workers after its stage. The output of a job goes
to a file, which is shown only with an error. Workers divide the visible GPUs among them.
"""

from __future__ import annotations

import collections
import os
import selectors
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.numerics import ALL_GPUS, VISIBLE_GPUS
from gapft_harness.core.processes import WorkerProcess, build_thread_environment, end_all
from gapft_harness.executors.jobs import RESUME_HINT, job_error
from gapft_harness.hooks.protocols import Job, Progress

#: Seconds between two checks that the workers are alive. Usually the closed pipe of a dead worker
#: is noticed at once; this is for a worker whose own child process still holds the pipe.
_POLL_INTERVAL_S = 1.0

_WORKER_FUNCTION = "gapft_harness.executors.worker:run_worker"


@dataclass(slots=True, eq=False)
class _JobWorker(WorkerProcess):
    """A worker process.

    Attributes:
        job: the number of its current job; None if it is idle.
        place: its number among the executor's workers, which decides its GPUs.
    """

    job: int | None = None
    place: int = 0


def list_gpus() -> list[str]:
    """List the GPUs that this process sees, as in ``CUDA_VISIBLE_DEVICES``."""
    if not Path("/proc/driver/nvidia").exists():  # without one, torch is not imported
        return []
    import torch

    visible = os.environ.get(VISIBLE_GPUS)
    names = list(map(str, range(torch.cuda.device_count())))
    return names if visible is None else visible.split(",")[: len(names)]


def divide_gpus(gpus: Sequence[str], workers: int) -> list[list[str]]:
    """Divide GPUs among workers evenly; if there are fewer GPUs, several workers share one."""
    return [
        list(gpus[place::workers]) or [gpus[place % len(gpus)]] if gpus else []
        for place in range(workers)
    ]


class LocalExecutor:
    """Runs jobs in worker processes on this machine.

    Workers start when they are first needed. They end with ``close``, with the first failure, or
    with this process, however it ends. Use an executor from one thread only.

    Args:
        settings: the recipe's ``executor`` section: ``workers`` (maximum number of parallel
            processes, among which visible GPUs are divided) and ``threads`` (CPU threads of each).
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
            results = self._run_jobs(jobs, progress)
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

    def _run_jobs(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        queue = collections.deque(range(len(jobs)))
        results: dict[int, dict[str, Any]] = {}
        while len(results) < len(jobs):
            self._assign_jobs(queue, jobs)
            for worker in self._wait_for_reports():
                number = worker.job
                assert number is not None  # only busy workers report
                job = jobs[number]
                reports = worker.receive()
                if reports is None:
                    raise _worker_died_error(job, worker)
                for kind, *fields in reports:
                    if kind == "progress":
                        progress(job.label, *fields)
                    elif kind == "error":
                        name, text, trace = fields
                        raise job_error(job.label, name, text, trace, _format_output(worker))
                    else:
                        results[number] = fields[0]
                        worker.job = None
        return [results[number] for number in range(len(jobs))]

    def _assign_jobs(self, queue: collections.deque[int], jobs: Sequence[Job]) -> None:
        """Assign queued jobs to idle workers; start workers up to the maximum."""
        while queue:
            idle_worker = next((worker for worker in self._workers if worker.job is None), None)
            if idle_worker is None:
                if len(self._workers) >= self._count:
                    return
                idle_worker = self._start_worker()  # keep what it prints when it fails to start
            else:
                idle_worker.forget_output()
            idle_worker.job = queue.popleft()
            job = jobs[idle_worker.job]
            idle_worker.send({"function": job.function, "arguments": dict(job.arguments)})

    def _start_worker(self) -> _JobWorker:
        environment = {**build_thread_environment(self._threads), "TOKENIZERS_PARALLELISM": "false"}
        place = min({*range(self._count)} - {worker.place for worker in self._workers})
        if gpus := divide_gpus(list_gpus(), self._count)[place]:
            environment[ALL_GPUS] = os.environ.get(VISIBLE_GPUS, "all")
            environment[VISIBLE_GPUS] = ",".join(gpus)
        worker = _JobWorker.start(_WORKER_FUNCTION, [os.getpid()], environment)
        worker.place = place
        self._workers.append(worker)
        return worker

    def _wait_for_reports(self) -> list[_JobWorker]:
        """Wait until busy workers have sent a report or died, and return these workers."""
        busy_workers = [worker for worker in self._workers if worker.job is not None]
        with selectors.DefaultSelector() as selector:
            for worker in busy_workers:
                selector.register(worker.reports, selectors.EVENT_READ, worker)
            ready_workers: list[_JobWorker] = []
            while not ready_workers:
                # Check for dead workers before the pipes: their last reports are in the pipe then.
                dead_workers = [
                    worker for worker in busy_workers if worker.process.poll() is not None
                ]
                ready_workers = [
                    key.data for key, _ in selector.select(0 if dead_workers else _POLL_INTERVAL_S)
                ] or dead_workers
        return ready_workers


def _worker_died_error(job: Job, worker: _JobWorker) -> GapftError:
    ending = worker.describe_death()
    cause = " (often because memory ran out)" if "SIGKILL" in ending else ""
    return GapftError(
        f"{job.label}: its worker process died, {ending}{cause}. "
        f"{RESUME_HINT}{_format_output(worker)}"
    )


def _format_output(worker: _JobWorker) -> str:
    tail = worker.read_tail()
    return f"\nIts last output:\n{tail}" if tail else ""
