"""A cluster of two nodes on this machine that loses one of them."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gapft_harness.executors.ray import RayExecutor
from gapft_harness.executors.ray_cluster import RAY_ENVIRONMENT
from tests.executors.jobs import build_job, ignore_report, list_pids, wait_until

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start two nodes of one CPU each on loopback, that detect a lost node quickly."""
    with pytest.MonkeyPatch.context() as patch:
        quick = {"RAY_health_check_period_ms": "500", "RAY_health_check_timeout_ms": "5000"}
        for name, value in {**RAY_ENVIRONMENT, **quick}.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster

        ray_cluster = Cluster()
        try:
            for _ in range(2):
                ray_cluster.add_node(
                    num_cpus=1,
                    object_store_memory=100_000_000,
                    include_dashboard=False,
                    node_ip_address="127.0.0.1",
                )
            yield ray_cluster
        finally:
            ray_cluster.shutdown()


def kill_node(node: Any) -> None:
    """Send SIGKILL to all processes of a node, including its jobs."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    for process in [raylet, *raylet.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended with its raylet
            process.send_signal(signal.SIGKILL)


def test_job_of_lost_node_reruns_on_other_node(cluster: Any, tmp_path: Path) -> None:
    """Each node has a job; the other node's job is not disturbed."""
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    [doomed] = cluster.worker_nodes

    def lose_a_node() -> None:
        wait_until(lambda: all(map(list_pids, folders)))
        kill_node(doomed)
        for folder in folders:
            (folder / "go").touch()

    killer = threading.Thread(target=lose_a_node)
    killer.start()
    executor = RayExecutor({"address": cluster.address, "workers": 2, "threads": 1})
    try:
        jobs = [build_job("survive", folder=str(folder)) for folder in folders]
        results = executor.run(jobs, ignore_report)
    finally:
        executor.close()
        killer.join()
    assert sorted(len(result["before"]) for result in results) == [0, 1]
    assert sorted(len(list_pids(folder)) for folder in folders) == [1, 2]
