"""What every executor does with jobs, with real worker processes; an executor is a row."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.api import Executor, Job
from gapft_harness.core.errors import GapftError, PluginError, UserError
from gapft_harness.hooks.manager import load_plugins
from tests.executors import job_functions
from tests.executors.jobs import build_job, ignore_report, list_pids
from tests.kit.plugins import write_plugin
from tests.kit.running_commands import wait_for_end

#: The settings of each executor. Starting Ray takes long.
ROWS: Mapping[str, dict[str, Any]] = {
    "local": {"name": "local", "workers": 2, "threads": 1},
    "ray": {"name": "ray", "workers": 2, "threads": 1},
}


@pytest.fixture(scope="module", params=["local", pytest.param("ray", marks=pytest.mark.thorough)])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    made = load_plugins().create_executor(ROWS[request.param], ())
    yield made
    made.close()
    made.close()
    with pytest.raises(ValueError, match="closed"):
        made.run([build_job("nap", value=1)], ignore_report)


def test_every_executor_has_a_row() -> None:
    assert ROWS.keys() == {e.name for e in load_plugins().all() if e.kind == "executor"}


def test_job_names_function_and_arguments(executor: Executor) -> None:
    echo_job = Job.of("say it", job_functions.echo, text="ä")
    assert echo_job == Job("say it", "tests.executors.job_functions:echo", {"text": "ä"})
    assert executor.run([echo_job], ignore_report) == [{"text": "ä"}]
    assert executor.run([], ignore_report) == []


def test_worker_imports_function_of_plugin_file(executor: Executor, tmp_path: Path) -> None:
    source = "def twice(value, plugin_files, progress): return {'value': 2 * value}\n"
    selectors = ["'mine', lambda pool, n, rng: []"]
    files = [write_plugin(tmp_path / "mine.py", source, selectors=selectors)]
    twice = load_plugins(files).get("selector", "mine").value.__globals__["twice"]
    plugin_job = Job.of("double", twice, value=21, plugin_files=files)
    assert executor.run([plugin_job], ignore_report) == [{"value": 42}]


def test_results_follow_job_order(executor: Executor) -> None:
    jobs = [build_job("nap", value=i, seconds=0.2 if i == 0 else 0) for i in range(6)]
    results = executor.run(jobs, ignore_report)
    assert [result["value"] for result in results] == list(range(6))
    assert os.getpid() not in {result["pid"] for result in results}


def test_free_worker_starts_next_job(executor: Executor, tmp_path: Path) -> None:
    """Jobs run side by side; the third waits for the first, so the second's worker must run it."""
    jobs = [
        build_job("meet", folder=str(tmp_path), me="a", other="c"),
        build_job("nap", value=0),
        build_job("meet", folder=str(tmp_path), me="c", other="a"),
    ]
    first, _, third = executor.run(jobs, ignore_report)
    assert (first, third) == ({"met": "c"}, {"met": "a"})


def test_own_process_job_leaves_no_process(executor: Executor) -> None:
    engines = [dataclasses.replace(build_job("nap", value=i), own_process=True) for i in range(3)]
    used = [result["pid"] for result in executor.run(engines, ignore_report)]
    wait_for_end(used)
    assert executor.run([build_job("nap", value=0)], ignore_report)[0]["pid"] not in used


def test_workers_get_threads_folder_and_import_path(
    executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = dataclasses.replace(build_job("read_settings"), own_process=True)
    executor.run([own], ignore_report)  # ends local workers that idle in the former folder
    monkeypatch.chdir(tmp_path)
    settings = executor.run([own], ignore_report)[0]
    assert [settings[key] for key in ("threads", "mkl", "blas")] == ["1"] * 3
    assert settings["tokenizers"] == "false"
    assert settings["cwd"] == str(tmp_path)
    assert str(Path(__file__).parents[2]) in settings["path"]


@pytest.mark.parametrize("kind", [GapftError, UserError, PluginError])
def test_package_errors_keep_class_and_message(executor: Executor, kind: type) -> None:
    text = "line 3: found α,\nexpected β"
    with pytest.raises(GapftError) as caught:
        executor.run([build_job("fail", kind=kind.__name__, text=text)], ignore_report)
    assert type(caught.value) is kind
    assert str(caught.value) == text


@pytest.mark.parametrize("kind", ["ValueError", "SystemExit", "KeyboardInterrupt"])
def test_other_exceptions_name_job_and_traceback(executor: Executor, kind: str) -> None:
    with pytest.raises(GapftError) as caught:
        executor.run(
            [build_job("fail", "train gapft-0", kind=kind, text="the cause")], ignore_report
        )
    assert type(caught.value) is GapftError
    assert str(caught.value).startswith(f"train gapft-0: {kind}: the cause\n")
    assert "job_functions.py" in str(caught.value)


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        (Job("x", "tests.executors.no_such_module:f", {}), "ModuleNotFoundError"),
        (build_job("no_such_function"), "AttributeError"),
        (build_job("nap", wrong=1), "TypeError"),
        (build_job("return_invalid", kind="list"), "return_invalid"),
        (build_job("return_invalid", kind="unprintable"), "TypeError"),
    ],
)
def test_rejects_invalid_jobs_and_results(executor: Executor, broken: Job, cause: str) -> None:
    with pytest.raises(GapftError, match=cause):
        executor.run([broken], ignore_report)
    assert executor.run([build_job("nap", value=1)], ignore_report)[0]["value"] == 1


def test_first_failure_stops_other_jobs(executor: Executor, tmp_path: Path) -> None:
    jobs = [
        build_job("hang", folder=str(tmp_path)),
        build_job("fail_after", folder=str(tmp_path), text="it"),
    ]
    with pytest.raises(UserError, match="it"):
        executor.run(jobs, ignore_report)
    (pid,) = list_pids(tmp_path)
    wait_for_end([pid])


def test_ctrl_c_stops_jobs_and_propagates(executor: Executor, tmp_path: Path) -> None:
    def interrupt(*report: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        executor.run([build_job("hang", folder=str(tmp_path))], interrupt)
    (pid,) = list_pids(tmp_path)
    wait_for_end([pid])


def test_large_arguments_and_results(executor: Executor) -> None:
    text = "ä" * 3_000_000
    assert executor.run([build_job("echo", text=text)] * 3, ignore_report) == [{"text": text}] * 3


def test_progress_is_ordered_and_complete(executor: Executor) -> None:
    seen: list[Any] = []
    jobs = [build_job("count", label, total=2_000) for label in ("one", "two")]
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
