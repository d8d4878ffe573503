"""LocalExecutor with real worker processes: order, failures, dead workers, cleanup."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

import pytest

from gapft_harness.core import processes
from gapft_harness.core.errors import GapftError, PluginError, UserError
from gapft_harness.executors import local
from gapft_harness.executors.local import LocalExecutor, divide_gpus
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import Job
from tests.executors import job_functions
from tests.kit.patience import PATIENCE_S


def build_job(function, label="", **arguments):
    return Job(label or function, f"tests.executors.job_functions:{function}", arguments)


def ignore_report(*report):
    pass


def is_alive(pid):
    """Return whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def wait_until(holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def list_hanging_pids(folder):
    return [int(path.name.removeprefix("pid-")) for path in folder.glob("pid-*")]


@pytest.fixture
def executor():
    local_executor = load_plugins().create_executor(
        {"name": "local", "workers": 2, "threads": 3}, ()
    )
    assert isinstance(local_executor, LocalExecutor)
    yield local_executor
    local_executor.close()


def test_job_names_function_and_arguments(executor):
    echo_job = Job.of("say it", job_functions.echo, text="ä")
    assert echo_job == Job("say it", "tests.executors.job_functions:echo", {"text": "ä"})
    assert Job.of("say it", partial(job_functions.echo, text="ä")) == echo_job
    assert executor.run([echo_job], ignore_report) == [{"text": "ä"}]


def test_rejects_function_that_cannot_be_imported(executor):
    def nested(progress):
        return {}

    for function in (nested, lambda progress: {}, Path("x").touch):
        with pytest.raises(
            PluginError, match=r"job 'x': other processes cannot import the function .*"
        ):
            Job.of("x", function)
    with pytest.raises(TypeError, match="by name"):
        Job.of("x", job_functions.echo, "positional")


def test_worker_imports_function_of_plugin_file(executor, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from gapft_harness.api import hookimpl\n"
        "def twice(value, plugin_files, progress): return {'value': 2 * value}\n"
        "@hookimpl\n"
        "def register_selectors(register): register('mine', lambda pool, n, rng: [])\n"
    )
    files = [str(tmp_path / "mine.py")]
    twice = load_plugins(files).get("selector", "mine").value.__globals__["twice"]
    plugin_job = Job.of("double", twice, value=21, plugin_files=files)
    assert executor.run([plugin_job], ignore_report) == [{"value": 42}]


def test_results_follow_job_order(executor):
    jobs = [build_job("nap", value=i, seconds=0.2 if i == 0 else 0) for i in range(6)]
    results = executor.run(jobs, ignore_report)
    assert [result["value"] for result in results] == list(range(6))
    assert executor.run([], ignore_report) == []


def test_jobs_run_side_by_side(executor, tmp_path):
    jobs = [
        build_job("meet", folder=str(tmp_path), me=me, other=other) for me, other in ("ab", "ba")
    ]
    assert executor.run(jobs, ignore_report) == [{"met": "b"}, {"met": "a"}]


def test_free_worker_starts_next_job(executor, tmp_path):
    """The third job waits for the first, so the second job's worker must run it."""
    jobs = [
        build_job("meet", folder=str(tmp_path), me="a", other="c"),
        build_job("nap", value=0),
        build_job("meet", folder=str(tmp_path), me="c", other="a"),
    ]
    assert executor.run(jobs, ignore_report)[2] == {"met": "a"}


def test_reuses_workers_up_to_number_of_jobs(executor):
    first = executor.run([build_job("nap", value=0)], ignore_report)[0]["pid"]
    assert first != os.getpid()
    assert executor.run([build_job("nap", value=1)], ignore_report)[0]["pid"] == first
    assert len(executor._workers) == 1
    executor.run([build_job("nap", value=i) for i in range(5)], ignore_report)
    assert len(executor._workers) == 2


def test_own_process_job_leaves_no_process(executor):
    def build_engine_job(value):
        return dataclasses.replace(build_job("nap", value=value), own_process=True)

    used = {
        result["pid"]
        for result in executor.run([build_engine_job(i) for i in range(5)], ignore_report)
    }
    assert 1 <= len(used) <= 2
    assert not any(is_alive(pid) for pid in used)
    assert executor.run([build_job("nap", value=0)], ignore_report)[0]["pid"] not in used


def test_replaces_dead_idle_worker(executor):
    pid = executor.run([build_job("nap", value=0)], ignore_report)[0]["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: executor._workers[0].process.poll() is not None)
    assert executor.run([build_job("nap", value=1)], ignore_report)[0]["value"] == 1


def test_workers_get_threads_folder_and_import_path(executor):
    settings = executor.run([build_job("read_settings")], ignore_report)[0]
    assert [settings[key] for key in ("threads", "mkl", "blas")] == ["3"] * 3
    assert settings["waiting"] == os.environ.get("OMP_WAIT_POLICY", "PASSIVE"), "they do not spin"
    assert settings["tokenizers"] == "false"
    assert settings["cwd"] == os.getcwd()
    assert settings["path"] == [os.path.abspath(entry) for entry in sys.path]


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


@pytest.mark.parametrize("kind", [GapftError, UserError, PluginError])
def test_package_errors_keep_class_and_message(executor, kind):
    text = "line 3: found α,\nexpected β"
    with pytest.raises(GapftError) as caught:
        executor.run([build_job("fail", kind=kind.__name__, text=text)], ignore_report)
    assert type(caught.value) is kind
    assert str(caught.value) == text


@pytest.mark.parametrize("kind", ["ValueError", "SystemExit", "KeyboardInterrupt"])
def test_other_exceptions_name_job_and_traceback(executor, kind):
    with pytest.raises(GapftError) as caught:
        executor.run(
            [build_job("fail", "train gapft-0", kind=kind, text="the cause")], ignore_report
        )
    message = str(caught.value)
    assert type(caught.value) is GapftError
    assert message.startswith(f"train gapft-0: {kind}: the cause\n")
    assert "job_functions.py" in message


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        (Job("x", "tests.executors.no_such_module:f", {}), "ModuleNotFoundError"),
        (build_job("no_such_function"), "AttributeError"),
        (build_job("nap", wrong=1), "TypeError"),
        (build_job("return_invalid", kind="list"), "returned list, expected a dict"),
        (build_job("return_invalid", kind="unprintable"), "not JSON serializable"),
    ],
)
def test_rejects_invalid_jobs_and_results(executor, broken, cause):
    with pytest.raises(GapftError, match=cause):
        executor.run([broken], ignore_report)
    assert executor.run([build_job("nap", value=1)], ignore_report)[0]["value"] == 1


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


def test_notices_dead_worker_while_child_holds_pipe(executor):
    with pytest.raises(GapftError, match="SIGKILL"):
        executor.run([build_job("die", how="SIGKILL", leave_child=True)], ignore_report)


def test_reports_worker_that_cannot_start(executor, monkeypatch):
    monkeypatch.setattr(processes, "_BOOT", "raise OSError('no start')")
    large = build_job("echo", "first", text="x" * 10_000_000)  # more than the pipe holds
    with pytest.raises(GapftError, match=r"(?s)first: .*exit status 1.*no start"):
        executor.run([large], ignore_report)


def test_first_failure_stops_other_jobs(executor, tmp_path):
    jobs = [
        build_job("hang", folder=str(tmp_path)),
        build_job("fail_after", folder=str(tmp_path), text="it"),
    ]
    with pytest.raises(UserError, match="it"):
        executor.run(jobs, ignore_report)
    (pid,) = list_hanging_pids(tmp_path)
    assert not is_alive(pid)


def test_ctrl_c_stops_jobs_and_propagates(executor, tmp_path):
    def interrupt(*report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor.run([build_job("hang", folder=str(tmp_path))], interrupt)
    (pid,) = list_hanging_pids(tmp_path)
    assert not is_alive(pid)


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


def test_large_arguments_and_results(executor):
    text = "ä" * 3_000_000
    assert executor.run([build_job("echo", text=text)] * 3, ignore_report) == [{"text": text}] * 3


def test_progress_is_ordered_and_complete(executor):
    seen = []
    jobs = [build_job("count", label, total=20_000) for label in ("one", "two")]
    executor.run(jobs, lambda *call: seen.append(call))
    for label in ("one", "two"):
        done, totals, tokens, notes = zip(
            *(call for name, *call in seen if name == label), strict=True
        )
        assert set(totals) <= {0, 20_000}
        assert list(done) == sorted(done)
        assert tokens == tuple(3 * count for count in done)
        assert [note for note in notes if note] == [f"note {i}" for i in job_functions.NOTED]
        assert done[0] == 0
        assert done[-1] == 20_000
        assert len(done) < 2_000, "progress is not held back"


def test_close_ends_workers(executor):
    results = executor.run(
        [build_job("nap", value=i, seconds=0.1) for i in range(2)], ignore_report
    )
    executor.close()
    executor.close()
    assert not any(is_alive(result["pid"]) for result in results)
    with pytest.raises(ValueError, match="closed"):
        executor.run([build_job("nap", value=1)], ignore_report)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_killed_parent(tmp_path, sent):
    script = textwrap.dedent(
        """
        import signal, sys
        from gapft_harness.executors.local import LocalExecutor
        from gapft_harness.hooks.protocols import Job
        signal.signal(signal.SIGINT, signal.default_int_handler)
        jobs = [Job("hang", "tests.executors.job_functions:hang", {"folder": sys.argv[1]})] * 2
        executor = LocalExecutor({"workers": 2, "threads": 1})
        executor.run(jobs, lambda *call: None)
        """
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: len(list_hanging_pids(tmp_path)) == 2)
        assert all(is_alive(pid) for pid in list_hanging_pids(tmp_path))
    finally:
        parent.send_signal(sent)
        parent.wait(PATIENCE_S)
    wait_until(lambda: not any(is_alive(pid) for pid in list_hanging_pids(tmp_path)))
