"""What only local workers do: reuse, GPUs, dead workers, their output, cleanup."""

import contextlib
import os
import signal

import pytest

from gapft_harness.core import processes
from gapft_harness.core.errors import GapftError
from gapft_harness.executors import local
from gapft_harness.executors.local import LocalExecutor, divide_gpus
from gapft_harness.hooks.manager import load_plugins
from tests.executors.jobs import build_job, ignore_report, wait_until


@pytest.fixture
def executor():
    create = load_plugins().get("executor", "local").value
    local_executor = create({"name": "local", "workers": 2, "threads": 3}, ())
    assert isinstance(local_executor, LocalExecutor)
    yield local_executor
    local_executor.close()


def test_reuses_workers_up_to_number_of_jobs(executor):
    first = executor.run([build_job("nap", value=0)], ignore_report)[0]["pid"]
    assert first != os.getpid()
    assert executor.run([build_job("nap", value=1)], ignore_report)[0]["pid"] == first
    assert len(executor._workers) == 1
    executor.run([build_job("nap", value=i) for i in range(5)], ignore_report)
    assert len(executor._workers) == 2


@pytest.mark.parametrize(
    ("gpus", "workers", "expected"),
    [
        ("", 2, ["", ""]),
        ("0", 3, ["0", "0", "0"]),
        ("012", 2, ["02", "1"]),
        ("0123", 1, ["0123"]),
        ("456", 5, ["4", "5", "6", "4", "5"]),
    ],
)
def test_divides_gpus_among_workers(gpus, workers, expected):
    assert divide_gpus(gpus, workers) == [list(part) for part in expected]


def test_each_worker_sees_its_own_gpus(executor, tmp_path, monkeypatch):
    """Also one that replaces a dead worker."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    monkeypatch.setattr(local, "list_gpus", lambda: ["4", "6", "7"])
    names = ["CUDA_VISIBLE_DEVICES", "GAPFT_VISIBLE_DEVICES"]
    job = build_job("read_environment", names=names)
    (first,) = executor.run([job], ignore_report)
    assert first == {names[0]: "4,7", names[1]: "4,6,7"}
    meet = [build_job("meet", folder=str(tmp_path), me=a, other=b) for a, b in ("ab", "ba")]
    executor.run(meet, ignore_report)
    os.kill(executor._workers[0].process.pid, signal.SIGKILL)
    wait_until(lambda: executor._workers[0].process.poll() is not None)
    meet = [build_job("meet", folder=str(tmp_path), me=a, other=b) for a, b in ("cd", "dc")]
    executor.run(meet, ignore_report)
    assert [worker.place for worker in executor._workers] == [1, 0]
    (second,) = executor.run([job], ignore_report)
    assert second[names[0]] == "6"


@pytest.mark.parametrize(
    ("how", "cause"),
    [("SIGKILL", "signal SIGKILL"), ("SIGSEGV", "signal SIGSEGV"), ("exit", "exit status 7")],
)
def test_dead_worker_error_names_job_cause_and_output(executor, how, cause):
    with pytest.raises(GapftError) as caught:
        executor.run([build_job("die", "audit base-1", how=how, words="last words")], ignore_report)
    message = str(caught.value)
    assert message.startswith("audit base-1: ")
    assert cause in message
    assert "run the same command again" in message
    assert "last words" in message


def test_reports_worker_that_cannot_start(executor, monkeypatch):
    monkeypatch.setattr(processes, "_BOOT", "raise OSError('no start')")
    large = build_job("echo", "first", text="x" * 10_000_000)  # more than the pipe holds
    with pytest.raises(GapftError, match=r"(?s)first: .*exit status 1.*no start"):
        executor.run([large], ignore_report)


def test_job_output_does_not_reach_terminal_or_protocol(executor, capfd):
    jobs = [
        build_job("shout", lines=2000),
        build_job("nap", value=1),
        build_job("shout", lines=2000),
    ]
    results = executor.run(jobs, ignore_report)
    assert results[0] == {"stdin": ""}
    assert results[1]["value"] == 1
    assert capfd.readouterr() == ("", "")


def test_error_shows_only_output_of_its_job():
    with contextlib.closing(LocalExecutor({"workers": 1, "threads": 1})) as own_executor:
        own_executor.run([build_job("shout", lines=10)], ignore_report)
        with pytest.raises(GapftError) as caught:
            own_executor.run([build_job("die", how="exit", words="mine")], ignore_report)
    assert "mine" in str(caught.value)
    assert "from a child" not in str(caught.value)
