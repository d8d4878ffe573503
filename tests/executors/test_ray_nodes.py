"""A cluster of two nodes on this machine that loses one of them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gapft_harness.core.files import sha256
from gapft_harness.executors.ray import RayExecutor
from gapft_harness.executors.ray_cluster import RAY_ENVIRONMENT
from gapft_harness.hooks.protocols import Executor
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.pipeline import run_stages
from tests.executors.jobs import wait_until
from tests.kit.patience import PATIENCE_S
from tests.kit.plugins import ANSWERING, build_plugin
from tests.kit.recording_run import InProcessExecutor, LettersTask, write_letters_task

pytestmark = pytest.mark.thorough

POOL, K, CHUNK, WORKERS = 24, 2, 4, 2

#: Logs its requests, and in its second chunk waits for the file ``go``.
_SOURCE = f"""
import json
import pathlib
import time


class Waiting(Answering):
    def __init__(self, settings, adapter):
        super().__init__(settings, adapter)
        self._folder = pathlib.Path(self._args["folder"])
        self._calls = 0

    def generate(self, requests, decoding, report):
        asked = [[request.problem_id, request.indices] for request in requests]
        with open(self._folder / "log", "a") as file:
            file.write(json.dumps(asked) + "\\n")
        self._calls += 1
        if self._calls == 2 and not (self._folder / "go").exists():
            import ray

            node = ray.get_runtime_context().get_node_id()
            (self._folder / f"on-{{node}}").touch()
            deadline = time.monotonic() + {PATIENCE_S}
            while not (self._folder / "go").exists():
                if time.monotonic() > deadline:
                    raise TimeoutError("no file go")
                time.sleep(0.02)
        return super().generate(requests, decoding, report)

    def _write(self, request, index):
        return request.prompt[-1] * (index + 2)
"""
_PLUGIN = build_plugin(ANSWERING + _SOURCE, samplers=['"waiting", Waiting, operational=["folder"]'])


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


def run_search(task: LettersTask, executor: Executor, name: str) -> RunDirectory:
    """Search the pool with two workers; folder ``name`` gets the run, store and sampler's log."""
    (task.folder / name).mkdir(exist_ok=True)
    plugin = task.folder / "waiting.py"
    plugin.write_text(_PLUGIN)
    content = {
        "name": "r",
        "data": {"task": "letters"},
        "model": {
            "backend": "waiting",
            "args": {"pretrained": "none", "folder": str(task.folder / name)},
        },
        "search": {"k": K, "chunk": CHUNK},
        "executor": {"workers": WORKERS},
    }
    run = RunDirectory.create_or_open(task.folder / name / "run", check_recipe(content, "test"))
    here: Context = task.context(run, ("pool",))
    context = dataclasses.replace(
        here, executor=executor, plugin_files=[*here.plugin_files, str(plugin)]
    )
    run_stages(context, ["search"], lambda stage: None)
    return run


def read_requests(folder: Path) -> list[list[Any]]:
    """Read the sampler's requests, one list per call."""
    return [json.loads(line) for line in (folder / "log").read_text().splitlines()]


def kill_node(node: Any) -> None:
    """Send SIGKILL to all processes of a node, including its jobs."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    for process in [raylet, *raylet.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended with its raylet
            process.send_signal(signal.SIGKILL)


def test_jobs_of_lost_node_rerun_on_other_node(cluster: Any, tmp_path: Path) -> None:
    task = write_letters_task(tmp_path, POOL)
    folder = tmp_path / "lost"
    [doomed] = cluster.worker_nodes

    def lose_a_node() -> None:
        wait_until(lambda: len(list(folder.glob("on-*"))) == WORKERS)
        kill_node(doomed)
        (folder / "go").touch()

    killer = threading.Thread(target=lose_a_node)
    killer.start()
    executor = RayExecutor({"address": cluster.address, "workers": 1, "threads": 1})
    try:
        run = run_search(task, executor, "lost")
    finally:
        executor.close()
        killer.join()
    nodes = {path.name.removeprefix("on-") for path in folder.glob("on-*")}
    assert nodes == {cluster.head_node.node_id, doomed.node_id}, "each node had a share"

    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "go").touch()
    undisturbed = run_search(task, InProcessExecutor(), "whole")
    for table in ("problems", "responses"):
        file = f"pool/{table}.parquet"
        assert sha256(run.path / file) == sha256(undisturbed.path / file)
    times = Counter(map(json.dumps, read_requests(folder)))
    assert times.keys() == set(map(json.dumps, read_requests(tmp_path / "whole")))
    assert sorted(times.values())[-2:] == [1, 2], "only the chunk in flight is generated again"
