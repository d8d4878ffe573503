"""Start Ray on this machine or join a cluster; build the environment of its workers."""

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
from gapft_harness.core.processes import build_thread_environment
from gapft_harness.executors.jobs import RESUME_HINT

#: Seconds to wait for a cluster's answer.
ANSWER_TIMEOUT_S = 10.0

#: How many times starting Ray on this machine is tried.
_START_ATTEMPTS = 3

#: Ray logs errors only, and does not print the output of jobs.
_LOGGING_OPTIONS: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}

#: Size of Ray's object store in bytes: arguments and results are small JSON.
_STORE_BYTES = 100_000_000

#: Environment of a Ray that this process starts; ray reads it at import. No usage reports. Workers
#: with the priority of this process (Ray's default is a niceness of 15). Long timeouts for its
#: servers: the default of 30 s each is too short on a busy machine. Idle workers stay for the next
#: stage with torch imported (Ray ends them after a second by default), and no worker starts before
#: it is needed. All servers on the loopback interface, as Ray does on macOS; on Linux they would
#: listen on all interfaces without authentication.
RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_gcs_server_port_wait_time_s": "120",
    "RAY_raylet_start_wait_time_s": "120",
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_idle_worker_killing_time_threshold_ms": "600000",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}

#: Environment variables of the command that change a job, so they are passed to all nodes.
_FORWARDED = re.compile(r"VLLM_.*|GAPFT_.*|(HF_HUB|HF_DATASETS|TRANSFORMERS)_OFFLINE")

#: Exceptions. Keys: anyone who can query Ray's state sees a task's environment. vLLM's addresses
#: and folders: each machine has its own.
_NOT_FORWARDED = re.compile(
    r".*(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)"
    r"|VLLM_(.*_)?(IP|HOST|PORT|RANK|RANK_LOCAL|PATH|ROOT|DIR|FOLDER|CACHE)"
)


def start_ray(cpus: int) -> None:
    """Start Ray on this machine, on loopback; ``RAY_ENVIRONMENT`` fills in unset variables.

    Args:
        cpus: number of CPUs that Ray may use.

    Raises:
        GapftError: Ray did not start in ``_START_ATTEMPTS`` attempts.
    """
    for name, value in RAY_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray

    _start_with_retries(ray, cpus)


def _start_with_retries(ray: Any, cpus: int) -> None:
    for attempt in range(1, _START_ATTEMPTS + 1):
        try:
            ray.init(
                address="local",
                num_cpus=cpus,
                object_store_memory=_STORE_BYTES,
                include_dashboard=False,
                **_LOGGING_OPTIONS,
            )
            return
        except Exception as error:  # Ray raises a plain Exception here
            ray.shutdown()
            if attempt == _START_ATTEMPTS:
                raise GapftError(
                    f"executor ray: Ray did not start on this machine in {_START_ATTEMPTS} "
                    f"attempts: {' '.join(str(error).split())}. {RESUME_HINT}"
                ) from error


def join_cluster(address: str) -> None:
    """Join the cluster at an address, ``auto`` or host:port.

    Raises:
        UserError: no cluster answers at the address.
    """
    _check_connection(address)
    import ray

    try:
        ray.init(address=address, **_LOGGING_OPTIONS)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(
            f"executor.address {address!r}: cannot join a Ray cluster at this address "
            f"({' '.join(str(error).split())}); start one with ray start --head, or "
            "remove the key to start Ray on this machine"
        ) from error


def build_worker_environment(threads: int) -> dict[str, str]:
    """Build a worker's environment: thread limits, import path, and forwarded variables.

    Each node has its own interpreter, packages, keys and caches, so the folders of the interpreter
    and of installed packages are removed from the import path.

    Args:
        threads: CPU threads of a worker, as for local workers.
    """
    installed_folders = [
        sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ]
    # Debian's Python, and a virtual environment that sees its packages, have more folders.
    installed_folders += [*site.getsitepackages(), site.getusersitepackages()]
    paths = [
        path
        for path in map(os.path.abspath, sys.path)
        if not any(Path(path).is_relative_to(folder) for folder in installed_folders)
    ]
    settings = {
        name: value
        for name, value in os.environ.items()
        if (_FORWARDED.fullmatch(name) and not _NOT_FORWARDED.fullmatch(name))
        or decides_results(name)
    }
    return {
        **settings,
        **build_thread_environment(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join(paths),
    }


def _check_connection(address: str) -> None:
    """Connect to host:port before Ray does, since Ray's own timeout is long.

    Raises:
        UserError: nothing answers.
    """
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT_S).close()
    except OSError as error:
        raise UserError(
            f"executor.address {address!r}: no answer ({error.strerror or error}); "
            "expected the address of a Ray cluster, as printed by ray start --head"
        ) from error
