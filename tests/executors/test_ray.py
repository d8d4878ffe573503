"""What only Ray does, on a real one on this machine: lost workers, resources, addresses."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from gapft_harness.core import extras
from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.executors.ray import RayExecutor
from gapft_harness.hooks.manager import load_plugins
from tests.executors.jobs import build_job, ignore_report, list_pids, wait_until
from tests.kit.command import gapft

pytestmark = pytest.mark.thorough

SETTINGS = {"name": "ray", "workers": 2, "threads": 1}


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    """Start this module's Ray; it starts with the first job."""
    ray_executor = load_plugins().get("executor", "ray").value(SETTINGS, ())
    assert isinstance(ray_executor, RayExecutor)
    ray_executor.run([build_job("nap", value=0)], ignore_report)
    yield ray_executor
    ray_executor.close()


@pytest.fixture(scope="module")
def address(executor: RayExecutor) -> str:
    """Return the address at which other processes can join this module's Ray."""
    import ray

    gcs_address: str = ray.get_runtime_context().gcs_address
    return gcs_address


def test_own_ray_listens_on_loopback_only(address: str) -> None:
    listening = set()
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # workers come and go
            listening |= {
                connection.laddr.ip.removeprefix("::ffff:")
                for connection in child.net_connections("tcp")
                if connection.status == psutil.CONN_LISTEN
            }
    assert listening == {"127.0.0.1"}
    assert address.startswith("127.0.0.1:")


def test_workers_get_settings_but_no_secrets(
    executor: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes started earlier, so their own environment is not tested here."""
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    names = ["VLLM_BATCH_INVARIANT", "OPENAI_API_KEY"]
    assert executor.run([build_job("read_environment", names=names)], ignore_report) == [
        {"VLLM_BATCH_INVARIANT": "1", "OPENAI_API_KEY": None}
    ]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_reruns_job_of_killed_worker(
    executor: RayExecutor, tmp_path: Path, how: signal.Signals
) -> None:
    """SIGTERM is what ``ray stop``, a preempted node and Slurm send."""
    killed: list[int] = []

    def kill_worker() -> None:
        wait_until(lambda: list_pids(tmp_path))
        killed.extend(list_pids(tmp_path))
        os.kill(killed[0], how)

    killer = threading.Thread(target=kill_worker)
    killer.start()
    results = executor.run(
        [build_job("survive", folder=str(tmp_path)), build_job("nap", value=1)], ignore_report
    )
    killer.join()
    assert results[0] == {"before": [f"pid-{killed[0]}"]}
    assert results[1]["value"] == 1
    assert len(list_pids(tmp_path)) == 2


def test_gives_up_job_that_kills_workers(executor: RayExecutor) -> None:
    with pytest.raises(GapftError) as caught:
        executor.run([build_job("die", "audit base-1", how="SIGKILL")], ignore_report)
    assert str(caught.value).startswith("audit base-1: its worker process was lost")
    assert "run the same command again" in str(caught.value)


@pytest.mark.parametrize("keys", [{"gpus": 2}, {"threads": 3}, {"memory_gb": 9e6}])
def test_rejects_resources_no_node_has(executor: RayExecutor, keys: dict[str, float]) -> None:
    with pytest.raises(UserError, match="no node"):
        RayExecutor({**SETTINGS, **keys}).run([build_job("nap", value=1)], ignore_report)


def test_declared_memory_limits_parallel_jobs(executor: RayExecutor, tmp_path: Path) -> None:
    import ray

    most = ray.nodes()[0]["Resources"]["memory"] / 1e9
    greedy = RayExecutor({**SETTINGS, "memory_gb": 0.6 * most})
    jobs = [build_job("overlap", folder=str(tmp_path), me=str(i)) for i in range(3)]
    assert [result["others"] for result in greedy.run(jobs, ignore_report)] == [0, 0, 0]


def test_missing_ray_names_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda package: package != "ray")
    with pytest.raises(UserError, match=r"pip install 'gapft-harness\[ray\]'"):
        RayExecutor(SETTINGS)


def test_rejects_address_without_answer(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"  # bound, but not listening
        ray = ("--set", "executor.name=ray", "--set", f"executor.address={address}")
        done = gapft("run", "demo", *ray, "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert f"executor.address '{address}'" in done.stderr
    assert not (tmp_path / "run").exists()
