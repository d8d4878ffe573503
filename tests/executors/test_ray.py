"""RayExecutor on a real Ray of this machine: the same results, errors for people, nothing lost."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gapft_harness.core.errors import GapftError, PluginError, UserError
from gapft_harness.executors import ray as ray_executor
from gapft_harness.executors.ray import RayExecutor
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import Job
from tests.command import gapft, succeed
from tests.end_to_end.letters_run import stored as stored_of
from tests.executors import job_functions

pytestmark = pytest.mark.xdist_group("ray")

PATIENCE_S = 120
SETTINGS = {"name": "ray", "workers": 2, "threads": 1}


def job(function: str, label: str = "", **arguments: Any) -> Job:
    return Job(label or function, f"tests.executors.job_functions:{function}", arguments)


def silent(*report: Any) -> None:
    pass


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def pids(folder: Path) -> list[int]:
    return [int(path.name.removeprefix("pid-")) for path in folder.glob("pid-*")]


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    """The one Ray of this module; it starts with the first job."""
    made = load_plugins().create_executor(SETTINGS, ())
    assert isinstance(made, RayExecutor)
    made.run([job("nap", value=0)], silent)
    yield made
    made.close()


@pytest.fixture(scope="module")
def address(executor: RayExecutor) -> str:
    """Where other processes can join this module's Ray."""
    import ray

    found: str = ray.get_runtime_context().gcs_address
    return found


# Jobs


def test_a_ray_of_our_own_listens_on_loopback_only(address: str) -> None:
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


def test_results_are_in_the_order_of_the_jobs(executor: RayExecutor) -> None:
    jobs = [job("nap", value=i, seconds=0.3 if i == 0 else 0) for i in range(4)]
    assert [result["value"] for result in executor.run(jobs, silent)] == [0, 1, 2, 3]
    assert executor.run([], silent) == []


def test_jobs_run_side_by_side_in_processes_of_their_own(
    executor: RayExecutor, tmp_path: Path
) -> None:
    jobs = [job("meet", folder=str(tmp_path), me=me, other=other) for me, other in ("ab", "ba")]
    assert executor.run(jobs, silent) == [{"met": "b"}, {"met": "a"}]
    assert executor.run([job("nap", value=0)], silent)[0]["pid"] != os.getpid()


def test_workers_get_threads_folder_and_import_path(
    executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = executor.run([job("settings")], silent)[0]
    assert [found[key] for key in ("threads", "mkl", "blas")] == ["1"] * 3
    assert found["tokenizers"] == "false"
    assert found["cwd"] == str(tmp_path)
    assert str(Path(__file__).parents[2]) in found["path"]


def test_workers_get_the_commands_settings_but_no_keys(
    executor: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes of this Ray started before: what they hold themselves is another matter."""
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    names = ["VLLM_BATCH_INVARIANT", "OPENAI_API_KEY"]
    assert executor.run([job("environment", names=names)], silent) == [
        {"VLLM_BATCH_INVARIANT": "1", "OPENAI_API_KEY": None}
    ]


def test_progress_comes_from_a_package_that_is_on_the_import_path_alone(
    executor: RayExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stands in for the whole package, which is installed where these tests run."""
    (tmp_path / "on_the_path.py").write_text(
        "from gapft_harness.executors.ray import ProgressBoard as Installed\n"
        "class ProgressBoard(Installed): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    reports = importlib.import_module("on_the_path").ProgressBoard
    monkeypatch.setattr(ray_executor, "ProgressBoard", reports)
    told = job("be_heard", folder=str(tmp_path), patience_s=PATIENCE_S)
    executor.run([told], lambda *report: (tmp_path / "heard").touch())


@pytest.mark.parametrize("kind", [GapftError, UserError, PluginError])
def test_errors_for_people_keep_class_and_message(executor: RayExecutor, kind: type) -> None:
    text = "line 3: found α,\nexpected β"
    with pytest.raises(GapftError) as caught:
        executor.run([job("fail", kind=kind.__name__, text=text)], silent)
    assert type(caught.value) is kind
    assert str(caught.value) == text


@pytest.mark.parametrize("kind", ["ValueError", "SystemExit"])
def test_any_other_exception_names_the_job_and_shows_where(
    executor: RayExecutor, kind: str
) -> None:
    with pytest.raises(GapftError) as caught:
        executor.run([job("fail", "train gapft-0", kind=kind, text="the cause")], silent)
    assert str(caught.value).startswith(f"train gapft-0: {kind}: the cause\n")
    assert "job_functions.py" in str(caught.value)


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        (Job("x", "tests.executors.no_such_module:f", {}), "ModuleNotFoundError"),
        (job("give", what="list"), "returned list, expected a dict"),
        (job("give", what="unprintable"), "not JSON serializable"),
    ],
)
def test_a_job_that_breaks_the_contract_is_an_error(
    executor: RayExecutor, broken: Job, cause: str
) -> None:
    with pytest.raises(GapftError, match=cause):
        executor.run([broken], silent)


def test_no_process_of_an_engine_outlives_its_job(executor: RayExecutor) -> None:
    engine = dataclasses.replace(job("nap", value=0), own_process=True)
    used = [found["pid"] for found in executor.run([engine] * 3, silent)]
    assert len(set(used)) == 3
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in used))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_workers_job_is_done_again(
    executor: RayExecutor, tmp_path: Path, how: signal.Signals
) -> None:
    """SIGTERM is what ``ray stop``, a preempted node and Slurm send."""
    killed: list[int] = []

    def kill() -> None:
        wait_until(lambda: pids(tmp_path))
        killed.extend(pids(tmp_path))
        os.kill(killed[0], how)

    killer = threading.Thread(target=kill)
    killer.start()
    results = executor.run([job("survive", folder=str(tmp_path)), job("nap", value=1)], silent)
    killer.join()
    assert results[0] == {"before": [f"pid-{killed[0]}"]}
    assert results[1]["value"] == 1
    assert len(pids(tmp_path)) == 2


def test_a_job_that_kills_every_worker_is_given_up(executor: RayExecutor) -> None:
    with pytest.raises(GapftError) as caught:
        executor.run([job("die", "audit base-1", how="SIGKILL")], silent)
    assert str(caught.value).startswith("audit base-1: its worker process was lost")
    assert "run the same command again" in str(caught.value)


def test_the_first_failure_stops_the_others(executor: RayExecutor, tmp_path: Path) -> None:
    jobs = [job("hang", folder=str(tmp_path)), job("fail_after", folder=str(tmp_path), text="it")]
    with pytest.raises(UserError, match="it"):
        executor.run(jobs, silent)
    (pid,) = pids(tmp_path)
    wait_until(lambda: not psutil.pid_exists(pid))


def test_ctrl_c_stops_the_jobs_and_passes_on(executor: RayExecutor, tmp_path: Path) -> None:
    def interrupt(*report: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor.run([job("hang", folder=str(tmp_path))], interrupt)
    (pid,) = pids(tmp_path)
    wait_until(lambda: not psutil.pid_exists(pid))


def test_progress_comes_back_in_order_and_ends_complete(executor: RayExecutor) -> None:
    seen: list[Any] = []
    jobs = [job("count", label, total=2_000) for label in ("one", "two")]
    executor.run(jobs, lambda *call: seen.append(call))
    for label in ("one", "two"):
        done, totals, tokens, notes = zip(
            *(call for name, *call in seen if name == label), strict=True
        )
        assert set(totals) <= {0, 2_000}
        assert list(done) == sorted(done)
        assert tokens == tuple(3 * count for count in done)
        assert [note for note in notes if note] == [f"note {i}" for i in job_functions.NOTED]
        assert done[-1] == 2_000
        assert len(done) < 200, "progress is not held back"


# Mistakes


@pytest.mark.parametrize(
    ("keys", "asked"),
    [({"gpus": 2}, "2 GPUs"), ({"threads": 3}, "3 CPUs"), ({"memory_gb": 9e6}, "9000000.0 GB")],
)
def test_what_no_node_has_is_a_mistake(
    executor: RayExecutor, keys: dict[str, Any], asked: str
) -> None:
    with pytest.raises(UserError, match=rf"no node .*{asked}.* 2 CPUs, 0 GPUs"):
        RayExecutor({**SETTINGS, **keys}).run([job("nap", value=1)], silent)


def test_declared_memory_limits_what_runs_side_by_side(
    executor: RayExecutor, tmp_path: Path
) -> None:
    import ray

    most = ray.nodes()[0]["Resources"]["memory"] / 1e9
    greedy = RayExecutor({**SETTINGS, "memory_gb": 0.6 * most})
    jobs = [job("overlap", folder=str(tmp_path), me=str(i)) for i in range(3)]
    assert [result["others"] for result in greedy.run(jobs, silent)] == [0, 0, 0]


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "ray" else found(name)
    )
    with pytest.raises(UserError, match=r"pip install 'gapft-harness\[ray\]'"):
        RayExecutor(SETTINGS)


def test_a_closed_executor_runs_nothing(executor: RayExecutor) -> None:
    other = RayExecutor(SETTINGS)
    other.close()
    other.close()
    with pytest.raises(ValueError, match="closed"):
        other.run([job("nap", value=1)], silent)
    assert executor.run([job("nap", value=1)], silent)[0]["value"] == 1, "ours is not left"


# Whole runs

DEMO = [
    "demo", "--condition", "gapft", "--condition", "replay", "--seed", 13,
    "--set", "data.pool_limit=60", "--set", "data.audit_limit=20", "--set", "search.k=4",
    "--set", "search.chunk=8", "--set", "executor.workers=4", "--set", "training.repetitions=2",
]  # fmt: skip


def on_ray(address: str) -> list[str]:
    return ["--set", "executor.name=ray", "--set", f"executor.address={address}"]


def fingerprint(run: Path) -> dict[str, str]:
    """Hashes of all that a run sealed, and its results."""
    files: dict[str, str] = json.loads((run / "manifest.json").read_text())["files"]
    return {**files, "results": (run / "report" / "results.json").read_text()}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small demo grid by the local executor."""
    folder = tmp_path_factory.mktemp("ray-runs")
    succeed(*DEMO, "--run-dir", "local", cwd=folder)
    return folder / "local"


def start(arguments: list[Any], folder: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "gapft_harness.cli.main", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def kill_when(child: subprocess.Popen[bytes], moment: Callable[[], object]) -> None:
    """Kills a driver alone, at a moment that its run passes."""

    def due() -> object:
        assert child.poll() is None, "ended before the moment"
        return moment()

    wait_until(due)
    child.kill()
    assert child.wait() < 0


def test_a_run_may_change_between_ray_and_local_and_lose_its_driver_in_both(
    local: Path, address: str
) -> None:
    """Begun with Ray, gone on with locally, ended with Ray: the bytes of one local run."""
    run = local.parent / "changing"
    arguments = [*DEMO, "--run-dir", run.name]
    env = {"GAPFT_STORE": str(local.parent / "changing.store")}  # the other run's has everything

    def stored(split: str) -> list[Path]:
        return stored_of(Path(env["GAPFT_STORE"]), split=split)

    kill_when(start([*arguments, *on_ray(address)], local.parent, env), lambda: stored("pool"))
    assert not (run / "pool/responses.parquet").exists()
    kept = {path: path.stat().st_mtime_ns for path in stored("pool")}
    kill_when(start(arguments, local.parent, env), lambda: stored("audit"))
    done = succeed(*arguments, *on_ray(address), cwd=local.parent, env=env)
    assert kept.items() <= {path: path.stat().st_mtime_ns for path in stored("pool")}.items()
    assert fingerprint(run) == fingerprint(local)
    assert "train gapft-seed13" in done.stderr, "progress is shown"


def test_a_users_mistake_in_a_job_is_told_as_one(tmp_path: Path, address: str) -> None:
    mistake = ["--set", "verifier.params={nonsense: 1}", "--run-dir", "run"]
    done = gapft(*DEMO, *on_ray(address), *mistake, cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot take the parameters {'nonsense': 1}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists(), "nothing was generated, so nothing is left"


def test_an_address_where_nothing_answers_is_a_mistake(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"  # bound, but not listening
        done = gapft(*DEMO, *on_ray(address), "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert f"executor.address '{address}'" in done.stderr
    assert not (tmp_path / "run").exists()
