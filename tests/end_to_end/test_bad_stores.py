"""Stores on places that lack something: one clear error each, or the same result all the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.generation import made_from
from tests.command import gapft, succeed
from tests.end_to_end.letters_run import killed
from tests.end_to_end.test_bad_disk import pages_of, read_only, remount, small_disk
from tests.training.letters import prepare

pytestmark = pytest.mark.xdist_group("bad_stores")

SEARCH = (
    "run", "demo", "--only", "search", "--split", "pool", "--set", "data.pool_limit=48",
    "--set", "search.chunk=4", "--set", "search.k=4",
)  # fmt: skip

#: Imported by every Python process that has its folder on the path.
WITHOUT_LOCKS = """
import errno, fcntl, os

def refuse(*arguments):
    code = getattr(errno, os.environ["LOCK_ERROR"])
    raise OSError(code, os.strerror(code))

fcntl.flock = fcntl.lockf = refuse
"""
WITHOUT_LINKS = """
import errno, os

def refuse(*arguments, **options):
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))

os.link = refuse
"""


def shim(folder: Path, text: str) -> dict[str, str]:
    """An environment in which every Python process is changed at its start."""
    (folder / "shim").mkdir()
    (folder / "shim/sitecustomize.py").write_text(text)
    return {"PYTHONPATH": str(folder / "shim"), "OMP_NUM_THREADS": "1"}


def start(folder: Path, name: str, env: dict[str, str], *words: str) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.err").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "gapft_harness.cli.main", *(words or SEARCH), "--run-dir", name],
            cwd=folder,
            env={**os.environ, **env},
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )


def rows(run: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = pq.read_table(run / "pool/responses.parquet").to_pylist()
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    succeed(*SEARCH, "--run-dir", "run", cwd=folder)
    return folder / "run"


def test_without_locks_commands_share_a_search_and_a_killed_ones_files_bind_nobody(
    tmp_path: Path, undisturbed: Path
) -> None:
    env = {**shim(tmp_path, WITHOUT_LOCKS), "LOCK_ERROR": "EOPNOTSUPP"}
    first = start(tmp_path, "a", env)
    deadline = time.monotonic() + 120
    while not [*tmp_path.glob(".store/generate/*/.*.locksoft")]:
        assert first.poll() is None, (tmp_path / "a.err").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    refused = start(tmp_path, "a", env)
    assert refused.wait(120) == 2, "a run has one command at a time"
    assert "in use by process" in (tmp_path / "a.err").read_text()
    if first.poll() is None:
        killed(first)
    assert first.wait() in (0, -signal.SIGKILL)
    both = [start(tmp_path, name, env) for name in "ab"]
    assert [process.wait(240) for process in both] == [0, 0], [
        (tmp_path / f"{name}.err").read_text() for name in "ab"
    ]
    assert rows(tmp_path / "a") == rows(tmp_path / "b") == rows(undisturbed)
    errors = (tmp_path / "b.err").read_text()
    assert "Traceback" not in errors
    assert "Warning" not in errors
    left = [path for path in tmp_path.rglob("*") if "lock" in path.name]
    assert {path.name for path in left} <= {"run.lock", "jobs.lock"}


def test_without_hard_links_files_are_copied_and_one_note_says_so(tmp_path: Path) -> None:
    command = prepare(tmp_path)
    env = shim(tmp_path, WITHOUT_LINKS)
    more = (
        *("--seed", "13", "--condition", "gapft", "--set", "executor.workers=1"),
        *("--set", "training.rank=32"),  # large enough for a link
    )

    def run(name: str, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        process = start(tmp_path, name, env, *command[:-1], *more)
        errors = tmp_path / f"{name}.err"
        assert process.wait(300) == 0, errors.read_text()
        files = json.loads((tmp_path / name / "manifest.json").read_text())["files"]
        return " ".join(errors.read_text().split()), files

    first, made = run("first", env)
    assert first.count("copied, not linked") == 1
    second, reused = run("second", env)
    assert "train: 1 reused from first" in second
    assert reused == made
    shutil.rmtree(tmp_path / ".store")
    linked, again = run("third", {"OMP_NUM_THREADS": "1"})
    assert "copied, not linked" not in linked
    assert again == made


@pytest.fixture
def nowhere(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A place for a store that cannot be used."""
    if request.param == "read-only":
        with read_only(tmp_path / "disk", "begun") as folder:
            yield folder / "store"
        return
    place = tmp_path / "store"
    if request.param == "below a file":
        place.write_text("")
        place /= "below"
    elif request.param == "a file":
        place.write_text("")
    else:
        place.mkdir()
        (place / "store.json").write_text('{"format": 99}')
    yield place


@pytest.mark.parametrize(
    "nowhere", ["read-only", "below a file", "a file", "another format"], indirect=True
)
def test_a_store_that_cannot_be_used_is_one_error_and_nothing_is_lost(
    tmp_path: Path, nowhere: Path, undisturbed: Path
) -> None:
    for name in ("new", "begun"):
        if name == "begun":  # its store was deleted
            shutil.copytree(undisturbed, tmp_path / name)
            (tmp_path / name / "pool/responses.parquet").unlink()
            manifest = tmp_path / name / "manifest.json"
            content = json.loads(manifest.read_text())
            del content["files"]["pool/responses.parquet"]
            manifest.write_text(json.dumps(content))
        before = sorted((tmp_path / name).rglob("*"))
        done = gapft(*SEARCH, "--run-dir", name, cwd=tmp_path, env={"GAPFT_STORE": str(nowhere)})
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.count("GAPFT_STORE") == 1
        assert str(nowhere) in done.stderr.replace("\n", "")
        assert set(before) <= {*(tmp_path / name).rglob("*")}
        if name == "new":
            assert not (tmp_path / name).exists()


def test_a_store_on_a_full_disk_is_kept_whole_and_goes_on(
    tmp_path: Path, undisturbed: Path
) -> None:
    """The run's own disk has room."""
    disk, env = tmp_path / "disk", {"GAPFT_STORE": str(tmp_path / "disk/store")}
    files = [file for file in undisturbed.parent.glob(".store/**/*") if file.is_file()]
    with small_disk(disk, pages_of(files) // 2):
        done = gapft(*SEARCH, "--run-dir", "run", cwd=tmp_path, env=env)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert "make room" in done.stderr
        assert str(disk) in done.stderr.replace("\n", "")
        kept = {path: path.read_bytes() for path in disk.glob("store/*/*/*.jsonl")}
        assert kept
        assert not [*disk.glob("store/**/*.partial")]
        remount(disk, "size=64m")
        succeed(*SEARCH, "--run-dir", "run", cwd=tmp_path, env=env)
        assert rows(tmp_path / "run") == rows(undisturbed)
        assert all(path.read_bytes() == content for path, content in kept.items())


def test_another_version_of_the_package_shares_responses_and_no_verdicts(
    undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a release changes of generation or training is told by the step's own version."""
    from gapft_harness.hooks.manager import load_plugins
    from gapft_harness.store.store import Store

    run, plugins = RunDirectory.open(undisturbed), load_plugins()
    task = run.manifest()["task"]
    verifier = plugins.create_verifier(task["verifier"], task["verifier_params"])
    store = Store.for_run(undisturbed)

    def key() -> str:
        made = made_from.describe_verifier(task, plugins, verifier)
        return store.find_group("judge", 1, {"verifier": made}).key

    before = key()
    monkeypatch.setattr(made_from, "__version__", "99.0")
    assert key() != before


def test_a_run_of_an_old_format_is_refused_and_left_as_it_is(
    tmp_path: Path, undisturbed: Path
) -> None:
    run = Path(shutil.copytree(undisturbed, tmp_path / "old"))
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "format": 1}))
    (run / "run.lock").unlink()  # says who held it last
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for command in (SEARCH, ("report",), ("verify",)):
        place = ("--run-dir", "old") if command is SEARCH else ("old",)
        words = ("run", "old", "--only", "report") if command == ("report",) else (*command, *place)
        done = gapft(*words, cwd=tmp_path)
        status = 1 if command == ("verify",) else 2  # there it is a difference
        assert done.returncode == status, (words, done.stderr)
        assert "format" in done.stderr
        assert "Traceback" not in done.stderr
    assert before.items() <= {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}.items()
