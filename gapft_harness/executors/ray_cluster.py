"""A Ray of this machine, or one that is there; and the environment that its workers get."""

from __future__ import annotations

import logging
import os
import re
import site
import socket
import sys
import sysconfig
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.numerics import decides_results
from gapft_harness.core.processes import thread_limits
from gapft_harness.executors.jobs import GO_ON

#: Seconds for a cluster to answer.
PATIENCE_S = 10.0

#: Times that starting a Ray here is tried.
_STARTS = 3

#: What Ray prints of its own: errors alone, and nothing that jobs print.
_QUIET: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}

#: Bytes of Ray's object store: arguments and results are small JSON.
_STORE = 100_000_000

#: Environment of a Ray that is started here, read when ray is imported: no usage reports; workers
#: of this process's own priority (Ray's default is a niceness of 15); patience with its servers on
#: a busy machine, where Ray's 30 s for each are too few; workers that wait for the next stage with
#: torch and all else imported (Ray ends idle ones after a second), and none that start before they
#: are asked for; all on the loopback interface (Ray's own way on macOS; on Linux they would listen
#: on all interfaces, and let in whoever comes).
OWN_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_gcs_server_port_wait_time_s": "120",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_idle_worker_killing_time_threshold_ms": "600000",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}

#: Variables of the command that change what a job does, wherever it runs.
_PASSED_ON = re.compile(r"VLLM_.*|GAPFT_.*|(HF_HUB|HF_DATASETS|TRANSFORMERS)_OFFLINE")

#: Not among them: keys, since Ray shows a task's environment to all who can ask for its state; and
#: vLLM's addresses and folders, which are each machine's own.
_KEPT_HERE = re.compile(
    r".*(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)"
    r"|VLLM_(.*_)?(IP|HOST|PORT|RANK|RANK_LOCAL|PATH|ROOT|DIR|FOLDER|CACHE)"
)


def start(cpus: int) -> None:
    """Starts a Ray of this machine, on loopback, with ``OWN_RAY`` where nothing else is set.

    Raises:
        GapftError: it did not start, several times.
    """
    for name, value in OWN_RAY.items():
        os.environ.setdefault(name, value)
    import ray

    _try_to_start(ray, cpus)


def _try_to_start(ray: Any, cpus: int) -> None:
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


def join(address: str) -> None:
    """Joins the cluster at an address, ``auto`` or host:port.

    Raises:
        UserError: no cluster answers there.
    """
    _require_answer(address)
    import ray

    try:
        ray.init(address=address, **_QUIET)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(
            f"executor.address {address!r}: no Ray cluster can be joined there "
            f"({' '.join(str(error).split())}); start one with ray start --head, or "
            "leave the key out to start a Ray on this machine"
        ) from error


def worker_environment(threads: int) -> dict[str, str]:
    """A worker's environment: threads as in local workers, this process's import path and settings.

    Installed packages are each node's own, so their folders and the interpreter's stay out. So are
    keys and caches.
    """
    own = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    # Debian's own Python, and an environment that sees its packages, have folders besides.
    own += [*site.getsitepackages(), site.getusersitepackages()]
    paths = [
        path
        for path in map(os.path.abspath, sys.path)
        if not any(Path(path).is_relative_to(folder) for folder in own)
    ]
    settings = {
        name: value
        for name, value in os.environ.items()
        if (_PASSED_ON.fullmatch(name) and not _KEPT_HERE.fullmatch(name)) or decides_results(name)
    }
    return {
        **settings,
        **thread_limits(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join(paths),
    }


def _require_answer(address: str) -> None:
    """Asks a host:port before Ray does, which would take long to give up.

    Raises:
        UserError: nothing answers.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE_S).close()
    except OSError as error:
        raise UserError(
            f"executor.address {address!r}: nothing answers there ({error.strerror or error}); "
            "expected the address of a Ray cluster, as ray start --head prints it"
        ) from error
