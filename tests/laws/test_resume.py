"""The law of killing and resuming: the same command continues, and ends with the same files.

Points come from the record of an uninterrupted run (``tests.kit.kills``): before each file that is
put in place, and before each request to the sampler. So a new stage adds no test; a new executor
adds a row.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import call
from tests.kit.kills import (
    ENDINGS,
    Point,
    WatchedRun,
    check_finished,
    list_changed_files,
    prepare_watched_run,
    read_files,
    read_outcome,
)
from tests.kit.patience import PATIENCE_S
from tests.kit.report_tables import read_results
from tests.kit.running_commands import wait_for_end
from tests.kit.runs import BASES, SNAPSHOTS, RunAt

#: What every Python process of the command runs at its start: a network file system may have
#: neither locks nor hard links.
_WITHOUT_LOCKS_AND_LINKS = """
import errno
import fcntl
import os


def refuse(number):
    def raise_error(*arguments, **options):
        raise OSError(number, os.strerror(number))

    return raise_error


fcntl.flock = fcntl.lockf = refuse(errno.ENOSYS)
os.link = refuse(errno.EOPNOTSUPP)
"""


#: Arguments for each executor.
EXECUTORS: Mapping[str, tuple[str, ...]] = {
    "local": (),
    "local, 2 workers": ("--set", "executor.workers=2"),
    "ray": ("--set", "executor.name=ray", "--set", "executor.workers=2"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> WatchedRun:
    """The uninterrupted run, with one worker."""
    root = tmp_path_factory.mktemp("resume")
    run = prepare_watched_run(root / "whole", root / "model")
    run.finish()
    return run


@pytest.fixture
def make_run(whole: WatchedRun, tmp_path: Path) -> Callable[..., WatchedRun]:
    """Return a function that prepares the same run in a folder of its own."""

    def make(executor: str = "local", disk: str = "", name: str = "killed") -> WatchedRun:
        model = whole.folder.with_name("model")
        run = prepare_watched_run(tmp_path / name, model, *EXECUTORS[executor])
        if disk.startswith("without"):
            run.patch_python(_WITHOUT_LOCKS_AND_LINKS)
        return run

    return make


def choose_points(run: WatchedRun) -> list[Point]:
    """Choose the first points, and a point of each kind: the middle one, in the run's order."""
    points = list(run.list_points())
    kinds: dict[str, list[Point]] = {}
    for point in points:
        kinds.setdefault(point.kind, []).append(point)
    chosen = {*points[:2], *(same_kind[len(same_kind) // 2] for same_kind in kinds.values())}
    return [point for point in points if point in chosen]


def divide_points(run: WatchedRun) -> tuple[list[Point], list[Point]]:
    """Divide the chosen points among two tests; the first list has no links."""
    points = choose_points(run)
    first = [point for point in points[1::2] if ".new.partial" not in point.what]
    return first, [point for point in points if point not in first]


def end_at_each(run: WatchedRun, plan: Iterable[tuple[Point, str]]) -> int:
    """End commands of one run at points, one after another; return how many were ended.

    A point that another worker passed before the command ended is left out.
    """
    ended = 0
    for point, ending in plan:
        if run.is_done(point):
            continue
        done = run.start(point, ending)
        assert run.has_ended_at_plan(), (point, ending, done.stderr)
        assert done.returncode in ENDINGS[ending], (point, ending, done.returncode, done.stderr)
        assert ending == "exception" or "Traceback" not in done.stderr, done.stderr
        if "SIGINT" in ending:
            assert done.stderr.splitlines()[-1].count("again") == 1, done.stderr
        wait_for_end(run.list_processes())
        ended += 1
    return ended


def test_ended_run_goes_on(whole: WatchedRun, make_run: Callable[..., WatchedRun]) -> None:
    """Ended in each way, at points far from each other; two thorough tests take all points."""
    run = make_run("local, 2 workers")
    points = choose_points(whole)
    for number, ending in enumerate(ENDINGS):
        later = points[number * len(points) // len(ENDINGS) :]
        point = next(point for point in later if not run.is_done(point))
        assert end_at_each(run, [(point, ending)]) == 1
    run.finish()
    check_finished(run, whole)


def test_ended_change_of_the_recipe_goes_on(whole: WatchedRun, tmp_path: Path) -> None:
    """Killed when new adapters are in place and not recorded yet; with both recipes in turn.

    No command goes on to the audit: a run may end after any stage.
    """
    stages = ("--only", "select", "--only", "train")
    change = ("--set", "training.repetitions=8", *stages)
    changed = copy_run(whole, tmp_path / "changed", change)
    changed.finish()
    point = next(
        point
        for point in changed.list_points()
        if point.what == "run/run.json" and point.after.startswith("run/adapters/")
    )
    run = copy_run(whole, tmp_path / "killed")
    for settings, expected in ((stages, whole), (change, changed)):
        run.settings = change
        assert end_at_each(run, [(point, "SIGKILL")]) == 1
        run.settings = settings
        run.finish()
        assert read_tables(run) == read_tables(expected)
        (run.folder / "record").write_text("")


def copy_run(run: WatchedRun, folder: Path, settings: tuple[str, ...] = ()) -> WatchedRun:
    """Copy a run with its store, and forget the work that is recorded."""
    shutil.copytree(run.folder, folder)
    (folder / "record").write_text("")
    return WatchedRun(folder, settings)


def read_tables(run: WatchedRun) -> dict[str, Any]:
    """Read what a run has found out, without the report, which tells of changed recipes."""
    outcome = read_outcome(run.path)
    return {name: content for name, content in outcome.items() if not name.startswith("report/")}


@pytest.mark.thorough
def test_run_without_locks_and_links_goes_on(
    whole: WatchedRun, make_run: Callable[..., WatchedRun]
) -> None:
    run = make_run("local, 2 workers", "without locks and links")
    points, _ = divide_points(whole)
    assert end_at_each(run, zip(points, itertools.cycle(ENDINGS))) > len(points) // 2
    run.finish()
    check_finished(run, whole)


@pytest.mark.thorough
def test_ended_run_goes_on_with_another_executor(
    whole: WatchedRun, make_run: Callable[..., WatchedRun]
) -> None:
    """Ray and local workers take turns. Ray replaces a killed worker."""
    run = make_run("ray")
    endings = itertools.cycle(ending for ending in ENDINGS if ending != "worker killed")
    executors = itertools.cycle(["ray", "local", "ray"])
    _, points = divide_points(whole)
    for point, ending in zip(points, endings, strict=False):
        run.settings = EXECUTORS[next(executors)]
        end_at_each(run, [(point, ending)])
    run.settings = EXECUTORS["ray"]
    run.finish()
    check_finished(run, whole)


@pytest.mark.thorough
def test_run_killed_at_random_times_goes_on(
    whole: WatchedRun, make_run: Callable[..., WatchedRun]
) -> None:
    """Also while a file is being written, which is between two points."""
    rng = random.Random(20)
    timed = make_run(name="timed")
    start = time.monotonic()
    assert timed.start_alone().wait(PATIENCE_S) == 0, timed.read_output()
    seconds = time.monotonic() - start
    run = make_run("local, 2 workers")
    for _ in range(10):
        process = run.start_alone()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.1, 0.8) * seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        wait_for_end(run.list_processes())
    run.finish()
    check_finished(run, whole)


def list_requests(run: WatchedRun) -> list[Point]:
    """List the points before the requests of the pool's search."""
    requests = (point for point in run.list_points() if point.what.startswith("generate "))
    return [*itertools.takewhile(lambda point: " pool" in point.what, requests)]


@pytest.mark.parametrize(
    "disk",
    ["with locks", pytest.param("without locks and links", marks=pytest.mark.thorough)],
)
def test_second_command_on_a_run_is_refused(
    whole: WatchedRun, make_run: Callable[..., WatchedRun], disk: str
) -> None:
    run = make_run(disk=disk)
    first = run.start_waiting(list_requests(whole)[1])
    before = run.read_record()
    refused = run.start_again()
    assert refused.returncode == 2, refused.stderr
    assert str(first.pid) in refused.stderr
    assert run.read_record() == before
    run.release()
    assert first.wait(PATIENCE_S) == 0, run.read_output()
    check_finished(run, whole)


@pytest.mark.thorough
def test_killed_run_does_not_stop_another_run_of_the_store(
    whole: WatchedRun, make_run: Callable[..., WatchedRun]
) -> None:
    """The other run makes the response that the first one had claimed; the first uses them all."""
    run, other = make_run(), make_run(name="other")
    other.environment = {"GAPFT_STORE": str(run.folder / ".store")}
    first = run.start_waiting(list_requests(whole)[1])
    second = other.start_waiting(list_requests(whole)[-1])
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(PATIENCE_S)
    other.release()
    assert second.wait(PATIENCE_S) == 0, other.read_output()
    run.finish()
    assert read_outcome(run.path) == read_outcome(other.path) == read_outcome(whole.path)
    work = run.count_work() + other.count_work()
    asked = {what: times for what, times in whole.count_work().items() if " " in what}
    assert {what: work[what] for what in asked} == asked


@pytest.mark.parametrize(
    "base",
    [
        pytest.param(base, marks=[] if base in ("letters", "demo") else pytest.mark.thorough)
        for base in BASES
    ],
)
def test_repeated_command_changes_no_file(run_at: RunAt, base: str) -> None:
    run = run_at("reported", base)
    before = read_files(run.path.parent)
    done = run.resume()
    assert done.returncode == 0, done.stderr
    assert list_changed_files(before, read_files(run.path.parent)) == []
    shutil.rmtree(run.path / "report")
    assert run.resume("--only", "report").returncode == 0
    assert list_changed_files(before, read_files(run.path.parent)) == []


def test_only_another_report_is_written_again(run_at: RunAt) -> None:
    """A run without plugins of others leaves its report, unless a file of it was changed."""
    run = run_at("reported", "demo")
    page, results = run.path / "report/index.html", run.path / "report/results.json"
    before, text = page.stat().st_ino, results.read_text()
    assert run.resume().returncode == 0
    assert page.stat().st_ino == before
    results.chmod(0o644)
    results.write_text(f"{text} ")
    assert run.resume().returncode == 0
    assert results.read_text() == text
    assert run.resume("--only", "report", "--condition", "gapft").returncode == 0
    rows = read_results(run.path)["conditions"]
    assert [row["condition"] for row in rows] == ["source", "gapft"]
    assert run.resume().returncode == 0
    assert results.read_text() == text, "a report on a part does not shrink the next"


@pytest.mark.parametrize("snapshot", [*SNAPSHOTS][:-2])
def test_stage_that_cannot_begin_changes_no_file(run_at: RunAt, snapshot: str) -> None:
    """Of a run that was ended: the stages after the next one need the next one's files."""
    run = run_at(snapshot)
    stages = ["states", "select", "train", "audit", "report"]
    next_stage = {"searched": "select", "selected": "train", "trained": "audit"}[snapshot]
    before = read_files(run.path.parent)
    for stage in stages[stages.index(next_stage) + 1 :]:
        plugins = [word for file in run.plugins for word in ("--plugin", file)]
        done = call("run", run.path, "--only", stage, *plugins)
        assert done.returncode == 2, (stage, done.stderr)
        assert "Traceback" not in done.stderr
        assert list_changed_files(before, read_files(run.path.parent)) == []
