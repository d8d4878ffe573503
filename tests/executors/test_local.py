"""LocalExecutor, with real worker processes: order, failures, deaths, and nothing left behind."""

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
from gapft_harness.executors.local import LocalExecutor
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import Job
from tests.executors import job_functions

PATIENCE_S = 60


def job(function, label="", **arguments):
    return Job(label or function, f"tests.executors.job_functions:{function}", arguments)


def silent(*report):
    pass


def alive(pid):
    """Whether a process runs; a zombie that nobody has waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def wait_until(holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def hanging(folder):
    return [int(path.name.removeprefix("pid-")) for path in folder.glob("pid-*")]


@pytest.fixture
def executor():
    made = load_plugins().create_executor({"name": "local", "workers": 2, "threads": 3}, ())
    assert isinstance(made, LocalExecutor)
    yield made
    made.close()


def test_a_job_is_a_function_and_its_arguments(executor):
    made = Job.of("say it", job_functions.echo, text="ä")
    assert made == Job("say it", "tests.executors.job_functions:echo", {"text": "ä"})
    assert Job.of("say it", partial(job_functions.echo, text="ä")) == made
    assert executor.run([made], silent) == [{"text": "ä"}]


def test_a_function_that_no_other_process_finds_is_refused(executor):
    def nested(progress):
        return {}

    for function in (nested, lambda progress: {}, Path("x").touch):
        with pytest.raises(
            PluginError, match=r"job 'x': other processes cannot import the function .*"
        ):
            Job.of("x", function)
    with pytest.raises(TypeError, match="by name"):
        Job.of("x", job_functions.echo, "positional")


def test_a_function_of_a_plugin_file_is_found_by_the_worker(executor, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from gapft_harness import hookimpl\n"
        "def twice(value, plugin_files, progress): return {'value': 2 * value}\n"
        "@hookimpl\n"
        "def register_selectors(register): register('mine', lambda pool, n, rng: [])\n"
    )
    files = [str(tmp_path / "mine.py")]
    twice = load_plugins(files).get("selector", "mine").value.__globals__["twice"]
    made = Job.of("double", twice, value=21, plugin_files=files)
    assert executor.run([made], silent) == [{"value": 42}]


def test_results_are_in_the_order_of_the_jobs(executor):
    jobs = [job("nap", value=i, seconds=0.2 if i == 0 else 0) for i in range(6)]
    results = executor.run(jobs, silent)
    assert [result["value"] for result in results] == list(range(6))
    assert executor.run([], silent) == []


def test_jobs_run_side_by_side(executor, tmp_path):
    jobs = [job("meet", folder=str(tmp_path), me=me, other=other) for me, other in ("ab", "ba")]
    assert executor.run(jobs, silent) == [{"met": "b"}, {"met": "a"}]


def test_a_free_worker_takes_the_next_job(executor, tmp_path):
    """The third job meets the first, so the second one's worker must have taken it."""
    jobs = [
        job("meet", folder=str(tmp_path), me="a", other="c"),
        job("nap", value=0),
        job("meet", folder=str(tmp_path), me="c", other="a"),
    ]
    assert executor.run(jobs, silent)[2] == {"met": "a"}


def test_workers_are_reused_and_never_more_than_jobs(executor):
    first = executor.run([job("nap", value=0)], silent)[0]["pid"]
    assert first != os.getpid()
    assert executor.run([job("nap", value=1)], silent)[0]["pid"] == first
    assert len(executor._workers) == 1
    executor.run([job("nap", value=i) for i in range(5)], silent)
    assert len(executor._workers) == 2


def test_no_process_of_an_engine_outlives_the_stage(executor):
    def engine(value):
        return dataclasses.replace(job("nap", value=value), own_process=True)

    used = {found["pid"] for found in executor.run([engine(i) for i in range(5)], silent)}
    assert 1 <= len(used) <= 2
    assert not any(alive(pid) for pid in used)
    assert executor.run([job("nap", value=0)], silent)[0]["pid"] not in used


def test_an_idle_worker_that_died_is_replaced(executor):
    pid = executor.run([job("nap", value=0)], silent)[0]["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: executor._workers[0].process.poll() is not None)
    assert executor.run([job("nap", value=1)], silent)[0]["value"] == 1


def test_workers_get_threads_folder_and_import_path(executor):
    found = executor.run([job("settings")], silent)[0]
    assert [found[key] for key in ("threads", "mkl", "blas")] == ["3"] * 3
    assert found["waiting"] == os.environ.get("OMP_WAIT_POLICY", "PASSIVE"), "they do not spin"
    assert found["tokenizers"] == "false"
    assert found["cwd"] == os.getcwd()
    assert found["path"] == [os.path.abspath(entry) for entry in sys.path]


@pytest.mark.parametrize("kind", [GapftError, UserError, PluginError])
def test_errors_for_people_keep_class_and_message(executor, kind):
    text = "line 3: found α,\nexpected β"
    with pytest.raises(GapftError) as caught:
        executor.run([job("fail", kind=kind.__name__, text=text)], silent)
    assert type(caught.value) is kind
    assert str(caught.value) == text


@pytest.mark.parametrize("kind", ["ValueError", "SystemExit", "KeyboardInterrupt"])
def test_any_other_exception_names_the_job_and_shows_where(executor, kind):
    with pytest.raises(GapftError) as caught:
        executor.run([job("fail", "train gapft-0", kind=kind, text="the cause")], silent)
    message = str(caught.value)
    assert type(caught.value) is GapftError
    assert message.startswith(f"train gapft-0: {kind}: the cause\n")
    assert "job_functions.py" in message


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        (Job("x", "tests.executors.no_such_module:f", {}), "ModuleNotFoundError"),
        (job("no_such_function"), "AttributeError"),
        (job("nap", wrong=1), "TypeError"),
        (job("give", what="list"), "returned list, expected a dict"),
        (job("give", what="unprintable"), "not JSON serializable"),
    ],
)
def test_a_job_that_breaks_the_contract_is_an_error(executor, broken, cause):
    with pytest.raises(GapftError, match=cause):
        executor.run([broken], silent)
    assert executor.run([job("nap", value=1)], silent)[0]["value"] == 1


@pytest.mark.parametrize(
    ("how", "said"),
    [("SIGKILL", "signal SIGKILL"), ("SIGSEGV", "signal SIGSEGV"), ("exit", "exit status 7")],
)
def test_a_dead_worker_names_job_cause_and_last_words(executor, how, said):
    with pytest.raises(GapftError) as caught:
        executor.run([job("die", "audit base-1", how=how, words="last words")], silent)
    message = str(caught.value)
    assert message.startswith("audit base-1: ")
    assert said in message
    assert "run the same command again" in message
    assert "last words" in message


def test_a_dead_worker_is_noticed_though_its_child_holds_the_pipe(executor):
    with pytest.raises(GapftError, match="SIGKILL"):
        executor.run([job("die", how="SIGKILL", leave_child=True)], silent)


def test_a_worker_that_cannot_start_is_an_error(executor, monkeypatch):
    monkeypatch.setattr(processes, "_BOOT", "raise OSError('no start')")
    large = job("echo", "first", text="x" * 10_000_000)  # more than the pipe holds
    with pytest.raises(GapftError, match=r"(?s)first: .*exit status 1.*no start"):
        executor.run([large], silent)


def test_the_first_failure_stops_the_others(executor, tmp_path):
    jobs = [job("hang", folder=str(tmp_path)), job("fail_after", folder=str(tmp_path), text="it")]
    with pytest.raises(UserError, match="it"):
        executor.run(jobs, silent)
    (pid,) = hanging(tmp_path)
    assert not alive(pid)


def test_ctrl_c_stops_the_jobs_and_passes_on(executor, tmp_path):
    def interrupt(*report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor.run([job("hang", folder=str(tmp_path))], interrupt)
    (pid,) = hanging(tmp_path)
    assert not alive(pid)


def test_output_of_a_job_reaches_neither_the_terminal_nor_the_protocol(executor, capfd):
    jobs = [job("shout", lines=2000), job("nap", value=1), job("shout", lines=2000)]
    results = executor.run(jobs, silent)
    assert results[0] == {"stdin": ""}
    assert results[1]["value"] == 1
    assert capfd.readouterr() == ("", "")


def test_an_error_shows_its_own_jobs_output_only():
    with contextlib.closing(LocalExecutor({"workers": 1, "threads": 1})) as one:
        one.run([job("shout", lines=10)], silent)
        with pytest.raises(GapftError) as caught:
            one.run([job("die", how="exit", words="mine")], silent)
    assert "mine" in str(caught.value)
    assert "from a child" not in str(caught.value)


def test_large_arguments_and_results(executor):
    text = "ä" * 3_000_000
    assert executor.run([job("echo", text=text)] * 3, silent) == [{"text": text}] * 3


def test_progress_arrives_in_order_and_ends_complete(executor):
    seen = []
    jobs = [job("count", label, total=20_000) for label in ("one", "two")]
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


def test_close_ends_the_workers(executor):
    results = executor.run([job("nap", value=i, seconds=0.1) for i in range(2)], silent)
    executor.close()
    executor.close()
    assert not any(alive(result["pid"]) for result in results)
    with pytest.raises(ValueError, match="closed"):
        executor.run([job("nap", value=1)], silent)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_a_parent_that_is_killed(tmp_path, sent):
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
        wait_until(lambda: len(hanging(tmp_path)) == 2)
        assert all(alive(pid) for pid in hanging(tmp_path))
    finally:
        parent.send_signal(sent)
        parent.wait(PATIENCE_S)
    wait_until(lambda: not any(alive(pid) for pid in hanging(tmp_path)))
