"""The Ray executor: runs jobs as Ray tasks, on this machine or on a cluster.

The stage functions and the run directory are the same as with local workers. Every node must see
the run directory and all other files of a job (task files, plugins, models) under the same paths.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.extras import require_package
from gapft_harness.executors.jobs import RESUME_HINT, encode_error, job_error, run_job
from gapft_harness.executors.ray_cluster import (
    ANSWER_TIMEOUT_S,
    build_worker_environment,
    join_cluster,
    start_ray,
)
from gapft_harness.hooks.protocols import Job, Progress

#: Minimum seconds between two progress reports of a job.
_REPORT_INTERVAL_S = 0.2


#: A job's progress report: done, total, tokens, note.
_Report = tuple[int, int, int, str]


class ProgressBoard:
    """An actor that keeps the reports of jobs until the driver takes them."""

    def __init__(self) -> None:
        self._reports: list[tuple[int, _Report]] = []

    def put(self, number: int, report: _Report) -> None:
        """Add a progress report of a job."""
        self._reports.append((number, report))

    def take(self) -> list[tuple[int, _Report]]:
        """Return the (job number, report) pairs since the last call, and forget them."""
        taken = self._reports
        self._reports = []
        return taken


def run_task(
    number: int, function: str, arguments: Mapping[str, Any], folder: str, reports: Any
) -> tuple[str, list[_Report]]:
    """Do one job in the driver's working directory.

    Args:
        number: the job's number.
        function: the job's function, ``module:name``.
        arguments: its arguments.
        folder: the driver's working directory, the base of relative paths.
        reports: a handle of the ``ProgressBoard`` actor.

    Returns:
        The outcome (see ``jobs.run_job``), and reports that the driver may not have received: all
        notes, with the last progress.
    """
    last = (0, 0, 0)
    notes: list[str] = []
    sent_at = float("-inf")

    def progress(done: int, total: int, tokens: int = 0, note: str = "") -> None:
        nonlocal last, sent_at
        last = (int(done), int(total), int(tokens))
        if note or time.monotonic() - sent_at >= _REPORT_INTERVAL_S:
            reports.put.remote(number, (*last, note))
            sent_at = time.monotonic()
        if note:
            notes.append(note)

    try:
        os.chdir(folder)
    except OSError as error:
        return encode_error(
            UserError(
                f"folder {folder}: not accessible on {platform.node()} ({error.strerror}); all "
                "workers must see it under the same path"
            )
        ), []
    with _die_on_sigterm():
        text = run_job(function, arguments, progress)
    return text, [(*last, note) for note in (*notes, "")]


@contextlib.contextmanager
def _die_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end the process at once, as SIGKILL does, so that Ray restarts its job.

    ``ray stop``, a preempted node and Slurm send SIGTERM. Ray's own handler would raise SystemExit
    in the job, which cannot be distinguished from a job that calls ``sys.exit``.
    """
    with _keep_sigterm_handler():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        yield


@contextlib.contextmanager
def _keep_sigterm_handler() -> Iterator[None]:
    """Restore the handler of SIGTERM: in a command, Ray's looks like a failure of the executor."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


#: How many times a job is restarted after its worker process or its node was lost.
RETRIES = 3

#: Seconds between two checks of the jobs' progress.
_POLL_INTERVAL_S = 0.2


class RayExecutor:
    """Runs jobs as Ray tasks with declared CPUs, GPUs and memory.

    The first ``run`` starts Ray or joins the cluster at the address; ``close`` disconnects. If this
    process is already connected to Ray, the executor uses that connection and leaves it open.

    Args:
        settings: the recipe's ``executor`` section: ``address``, ``gpus``, ``memory_gb``,
            ``threads`` (CPUs of each job) and, without an address, ``workers`` (Ray gets ``workers
            x threads`` CPUs of this machine).
        plugin_files: files given by ``--plugin``; unused, since each job has them as an argument.

    Raises:
        UserError: ray is not installed.
    """

    def __init__(self, settings: Mapping[str, Any], plugin_files: Sequence[str] = ()) -> None:
        require_package("ray")
        self._address: str | None = settings.get("address")
        self._gpus: float | None = settings.get("gpus")
        self._memory = int((settings.get("memory_gb") or 0) * 1e9)
        self._workers = int(settings["workers"])
        self._threads = int(settings["threads"])
        self._has_joined = False
        self._closed = False

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        """Run all jobs, as many in parallel as the declared resources allow.

        Args:
            jobs: the jobs, submitted in this order.
            progress: called in this thread with (label, done, total, tokens, note).

        Returns:
            The results in the order of the jobs.

        Raises:
            GapftError: a job failed. The job's own exception if it is a GapftError (UserError and
                PluginError included), else one with the job's name and the end of the traceback.
                The other jobs are cancelled.
            UserError: no cluster answers, or no node has the resources of a job.
            ValueError: the executor was closed.
        """
        if self._closed:
            raise ValueError("this executor is closed")
        if not jobs:
            return []
        self._connect()
        import ray

        options = self._choose_options(ray)
        actor = {"num_cpus": 0, "max_restarts": -1, "runtime_env": options["runtime_env"]}
        reports: Any = ray.remote(ProgressBoard).options(**actor).remote()
        # CUDA reads the visible GPUs once per process, so a worker with GPUs does one job only.
        tasks = {False: ray.remote(run_task), True: ray.remote(max_calls=1)(run_task)}
        pending = {
            tasks[job.own_process or options["num_gpus"] > 0]
            .options(name=job.label, **options)
            .remote(number, job.function, dict(job.arguments), os.getcwd(), reports): number
            for number, job in enumerate(jobs)
        }
        try:
            return _wait_for_jobs(ray, jobs, pending, reports, progress)
        except BaseException:  # also after Ctrl-C, no job may continue in the background
            for ref in pending:
                ray.cancel(ref, force=True)
            if pending:
                ray.wait(list(pending), num_returns=len(pending), timeout=ANSWER_TIMEOUT_S)
            raise
        finally:
            ray.kill(reports)

    def close(self) -> None:
        """Disconnect from Ray if this executor connected. Closing twice has no further effect."""
        self._closed = True
        if self._has_joined:
            import ray

            ray.shutdown()
            self._has_joined = False

    def _connect(self) -> None:
        """Start Ray on this machine or join the cluster at the address, unless connected.

        Raises:
            GapftError: Ray did not start.
            UserError: no cluster answers at the address.
        """
        # Not imported before ``start_ray`` has set the variables that ray reads at import.
        ray_module = sys.modules.get("ray")
        if ray_module is not None and ray_module.is_initialized():
            return
        with _keep_sigterm_handler():
            if self._address is None:
                start_ray(self._workers * self._threads)
            else:
                join_cluster(self._address)
        self._has_joined = True

    def _choose_options(self, ray: Any) -> dict[str, Any]:
        """Return the options of each Ray task, after a check that some node has the resources.

        Raises:
            UserError: no node has them.
        """
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = self._gpus
        if gpus is None:
            gpus = 1 if any(node.get("GPU", 0) >= 1 for node in nodes) else 0
        request = {"CPU": self._threads, "GPU": gpus, "memory": self._memory}
        if not any(
            all(node.get(name, 0) >= amount for name, amount in request.items()) for node in nodes
        ):
            node_texts = "; ".join(
                f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs, "
                f"{node.get('memory', 0) / 1e9:.1f} GB"
                for node in nodes
            )
            raise UserError(
                f"executor: no node of the Ray cluster has the resources of one job: expected "
                f"{self._threads} CPUs (threads), {gpus:g} GPUs (gpus) and "
                f"{self._memory / 1e9:.1f} GB (memory_gb); found the nodes: {node_texts}. Lower "
                "these keys or add a node"
            )
        return {
            "num_cpus": self._threads,
            "num_gpus": gpus,
            **({"memory": self._memory} if self._memory else {}),
            "max_retries": RETRIES,
            "runtime_env": {"env_vars": build_worker_environment(self._threads)},
        }


def _wait_for_jobs(
    ray: Any, jobs: Sequence[Job], pending: dict[Any, int], reports: Any, progress: Progress
) -> list[dict[str, Any]]:
    """Wait for all jobs and return their results; remove ended tasks from ``pending``."""
    results: dict[int, dict[str, Any]] = {}
    shown_notes: set[tuple[int, str]] = set()
    board_reports = reports.take.remote()
    while pending:
        ended_refs, _ = ray.wait(list(pending), timeout=_POLL_INTERVAL_S)
        if ray.wait([board_reports], timeout=0)[0]:
            with contextlib.suppress(ray.exceptions.RayActorError):
                for number, report in ray.get(board_reports):
                    if number not in results:  # a late report is older than the result
                        progress(jobs[number].label, *report)
                        shown_notes.add((number, report[-1]))
            board_reports = reports.take.remote()
        for ref in ended_refs:
            number = pending.pop(ref)
            label = jobs[number].label
            try:
                text, late_reports = ray.get(ref)
            except ray.exceptions.RayError as error:
                raise _worker_lost_error(label, error) from error
            kind, *fields = json.loads(text)
            if kind == "error":
                raise job_error(label, *fields)
            for report in late_reports:
                if not report[-1] or (number, report[-1]) not in shown_notes:
                    progress(label, *report)
            results[number] = fields[0]
    return [results[number] for number in range(len(jobs))]


def _worker_lost_error(label: str, error: Exception) -> GapftError:
    """Build the error for a job that Ray does not restart any more."""
    reason = " ".join(str(error).split())[:600]
    return GapftError(
        f"{label}: its worker process was lost, also in {RETRIES} retries: "
        f"{type(error).__name__}: {reason}\n{RESUME_HINT}"
    )
