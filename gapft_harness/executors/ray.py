"""The Ray executor: jobs as Ray tasks, on this machine or on a cluster.

The same stage functions run as in local workers, on the same run directory. Every node must see
that directory, and all else a job names (task files, plugins, models), under the same paths.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import socket
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.errors import GapftError, UserError
from gapft_harness.executors.jobs import GO_ON, failure
from gapft_harness.executors.ray_task import Reports, work
from gapft_harness.protocols import Job, Progress

#: Times that a job is started again when its worker process or its node is lost.
RETRIES = 3

#: Seconds between two looks at the jobs' progress.
_LOOK_S = 0.2

#: Seconds for cancelled jobs to end, and for a cluster to answer.
_PATIENCE_S = 10.0

#: Times that starting a Ray here is tried.
_STARTS = 3

#: What Ray prints of its own: errors alone, and nothing that jobs print.
_QUIET: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}

#: Bytes of Ray's object store: arguments and results are small JSON.
_STORE = 100_000_000

#: Environment of a Ray that is started here, read when ray is imported: no usage reports; workers
#: of this process's own priority (Ray's default is a niceness of 15); patience with its servers on
#: a busy machine, where Ray's 30 s are too few; workers that wait for the next stage with torch and
#: all else imported (Ray ends idle ones after a second), and none that start before they are asked
#: for; all on the loopback interface (Ray's own way on macOS; on Linux they would listen on all
#: interfaces, and let in whoever comes).
_OWN_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_idle_worker_killing_time_threshold_ms": "600000",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}


class RayExecutor:
    """Runs jobs as Ray tasks with declared CPUs, GPUs and memory.

    Ray is started, or its cluster joined, when the first job comes, and left with ``close``. A Ray
    that this process has joined already is used as it is, and stays.

    Args:
        settings: the recipe's ``executor`` section: ``address``, ``gpus``, ``memory_gb``,
            ``threads`` (CPUs of each job) and, without an address, ``workers`` (Ray gets ``workers
            x threads`` CPUs of this machine).
        plugin_files: files given by ``--plugin``. Not used here: jobs carry them as arguments.

    Raises:
        UserError: ray is not installed.
    """

    def __init__(self, settings: Mapping[str, Any], plugin_files: Sequence[str] = ()) -> None:
        if importlib.util.find_spec("ray") is None:
            raise UserError(
                "executor ray: the package ray is not installed; pip install 'gapft-harness[ray]'"
            )
        self._address: str | None = settings.get("address")
        self._gpus: float | None = settings.get("gpus")
        self._memory = int((settings.get("memory_gb") or 0) * 1e9)
        self._workers = int(settings["workers"])
        self._threads = int(settings["threads"])
        self._joined = False
        self._closed = False

    def run(self, jobs: Sequence[Job], progress: Progress) -> list[dict[str, Any]]:
        """Runs all jobs, as many side by side as the declared resources allow.

        Args:
            jobs: submitted in their order.
            progress: called in this thread with (label, done, total).

        Returns:
            The jobs' results, in the jobs' order.

        Raises:
            GapftError: a job failed: its own error if that is a GapftError (or UserError or
                PluginError), else one that names the job and shows what happened. The other jobs
                are cancelled.
            UserError: no cluster answers, or no node of it has what a job asks for.
            ValueError: the executor was closed.
        """
        if self._closed:
            raise ValueError("this executor is closed")
        if not jobs:
            return []
        if self._address is None:
            for name, value in _OWN_RAY.items():
                os.environ.setdefault(name, value)
        import ray

        self._join(ray)
        options = self._options(ray)
        reports: Any = ray.remote(Reports).options(num_cpus=0, max_restarts=-1).remote()
        # Which GPUs are its own CUDA asks once a process: a worker that had some does nothing else.
        tasks = {False: ray.remote(work), True: ray.remote(max_calls=1)(work)}
        pending = {
            tasks[job.own_process or options["num_gpus"] > 0]
            .options(name=job.label, **options)
            .remote(number, job.function, dict(job.arguments), os.getcwd(), reports): number
            for number, job in enumerate(jobs)
        }
        try:
            return _gather(ray, jobs, pending, reports, progress)
        except BaseException:  # Ctrl-C too: no job goes on behind the person's back
            for ref in pending:
                ray.cancel(ref, force=True)
            if pending:
                ray.wait(list(pending), num_returns=len(pending), timeout=_PATIENCE_S)
            raise
        finally:
            ray.kill(reports)

    def close(self) -> None:
        """Leaves Ray, if this executor joined it. Closing twice is no error."""
        self._closed = True
        if self._joined:
            import ray

            ray.shutdown()
            self._joined = False

    def _join(self, ray: Any) -> None:
        """Starts a Ray here, or joins the cluster at the address.

        Raises:
            UserError: no cluster answers there.
        """
        if ray.is_initialized():
            return
        if self._address is None:
            _start(ray, self._workers * self._threads)
        else:
            _require_answer(self._address)
            try:
                ray.init(address=self._address, **_QUIET)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise UserError(
                    f"executor.address {self._address!r}: no Ray cluster can be joined there "
                    f"({' '.join(str(error).split())}); start one with ray start --head, or "
                    "leave the key out to start a Ray on this machine"
                ) from error
        self._joined = True

    def _options(self, ray: Any) -> dict[str, Any]:
        """What each task declares, after checking that a node can ever meet it.

        Raises:
            UserError: none can.
        """
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = self._gpus
        if gpus is None:
            gpus = 1 if any(node.get("GPU", 0) >= 1 for node in nodes) else 0
        wanted = {"CPU": self._threads, "GPU": gpus, "memory": self._memory}
        if not any(
            all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes
        ):
            there = "; ".join(
                f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs, "
                f"{node.get('memory', 0) / 1e9:.1f} GB"
                for node in nodes
            )
            raise UserError(
                f"executor: each job asks for {self._threads} CPUs (threads), {gpus:g} GPUs (gpus) "
                f"and {self._memory / 1e9:.1f} GB (memory_gb), and no node of the Ray cluster has "
                f"that. Its nodes: {there}"
            )
        return {
            "num_cpus": self._threads,
            "num_gpus": gpus,
            **({"memory": self._memory} if self._memory else {}),
            "max_retries": RETRIES,
            "runtime_env": {"env_vars": _environment(self._threads)},
        }


def _start(ray: Any, cpus: int) -> None:
    """Starts a Ray of this machine. Ray gives its own servers 30 s, too few on a busy machine.

    Raises:
        GapftError: it did not start, several times.
    """
    for attempt in range(1, _STARTS + 1):
        try:
            ray.init(
                address="local",
                num_cpus=cpus,
                object_store_memory=_STORE,
                include_dashboard=False,
                **_QUIET,
            )
            return
        except Exception as error:  # Ray raises a plain Exception here
            ray.shutdown()
            if attempt == _STARTS:
                raise GapftError(
                    f"executor ray: Ray did not start on this machine, {_STARTS} times: "
                    f"{' '.join(str(error).split())}. {GO_ON}"
                ) from error


def _gather(
    ray: Any, jobs: Sequence[Job], pending: dict[Any, int], reports: Any, progress: Progress
) -> list[dict[str, Any]]:
    """Waits for all jobs; takes what has ended out of ``pending``."""
    results: dict[int, dict[str, Any]] = {}
    news = reports.take.remote()
    while pending:
        ended, _ = ray.wait(list(pending), timeout=_LOOK_S)
        if ray.wait([news], timeout=0)[0]:
            with contextlib.suppress(ray.exceptions.RayActorError):
                for number, done, total in ray.get(news):
                    if number not in results:  # what came late is older than the result
                        progress(jobs[number].label, done, total)
            news = reports.take.remote()
        for ref in ended:
            number = pending.pop(ref)
            label = jobs[number].label
            try:
                text, last = ray.get(ref)
            except ray.exceptions.RayError as error:
                raise _lost(label, error) from error
            kind, *fields = json.loads(text)
            if kind == "error":
                raise failure(label, *fields)
            if last is not None:
                progress(label, *last)
            results[number] = fields[0]
    return [results[number] for number in range(len(jobs))]


def _lost(label: str, error: Exception) -> GapftError:
    """Ray gave a job up."""
    why = " ".join(str(error).split())[:600]
    return GapftError(
        f"{label}: its worker was lost, and again in each of {RETRIES} retries: "
        f"{type(error).__name__}: {why}\n{GO_ON}"
    )


def _require_answer(address: str) -> None:
    """Asks a host:port before Ray does, which would take long to give up.

    Raises:
        UserError: nothing answers.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE_S).close()
    except OSError as error:
        raise UserError(
            f"executor.address {address!r}: nothing answers there ({error.strerror or error}); "
            "expected the address of a Ray cluster, as ray start --head prints it"
        ) from error


def _environment(threads: int) -> dict[str, str]:
    """A worker's environment: threads as in local workers, and this process's import path.

    Installed packages are each node's own, so their folders and the interpreter's stay out.
    """
    limits = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    own = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths = [
        path
        for path in map(os.path.abspath, sys.path)
        if not any(Path(path).is_relative_to(folder) for folder in own)
    ]
    return {
        **dict.fromkeys(limits, str(threads)),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join(paths),
    }
