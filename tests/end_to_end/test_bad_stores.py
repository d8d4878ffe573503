"""Stores without locks, hard links, permissions or space: one clear error or the same result."""

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
from tests.end_to_end.letters_run import kill_command
from tests.end_to_end.test_bad_disk import (
    count_file_pages,
    make_read_only,
    mount_small_disk,
    remount,
)
from tests.kit.command import gapft, succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.patience import PATIENCE_S

SEARCH = (
    "run", "demo", "--only", "search", "--split", "pool", "--set", "data.pool_limit=48",
    "--set", "search.chunk=4", "--set", "search.k=4",
)  # fmt: skip

#: Every Python process with this folder on its path imports it.
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


def patch_python(folder: Path, text: str) -> dict[str, str]:
    """Return an environment that patches every Python process at its start."""
    (folder / "shim").mkdir()
    (folder / "shim/sitecustomize.py").write_text(text)
    return {"PYTHONPATH": str(folder / "shim"), "OMP_NUM_THREADS": "1"}


def start_command(
    folder: Path, name: str, env: dict[str, str], *words: str
) -> subprocess.Popen[bytes]:
    with (folder / f"{name}.err").open("wb") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", "gapft_harness.cli.main", *(words or SEARCH), "--run-dir", name],
            cwd=folder,
            env={**os.environ, **env},
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )


def read_rows(run: Path) -> list[dict[str, object]]:
    records: list[dict[str, object]] = pq.read_table(run / "pool/responses.parquet").to_pylist()
    return records


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    succeed(*SEARCH, "--run-dir", "run", cwd=folder)
    return folder / "run"


def test_commands_share_a_search_without_locks(tmp_path: Path, whole_run: Path) -> None:
    env = {**patch_python(tmp_path, WITHOUT_LOCKS), "LOCK_ERROR": "EOPNOTSUPP"}
    first = start_command(tmp_path, "a", env)
    deadline = time.monotonic() + PATIENCE_S
    while not [*tmp_path.glob(".store/generate/*/.*.locksoft")]:
        assert first.poll() is None, (tmp_path / "a.err").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    refused = start_command(tmp_path, "a", env)
    assert refused.wait(120) == 2, "a run has one command at a time"
    assert "in use by process" in (tmp_path / "a.err").read_text()
    if first.poll() is None:
        kill_command(first)
    assert first.wait() in (0, -signal.SIGKILL)
    both = [start_command(tmp_path, name, env) for name in "ab"]
    assert [process.wait(240) for process in both] == [0, 0], [
        (tmp_path / f"{name}.err").read_text() for name in "ab"
    ]
    assert read_rows(tmp_path / "a") == read_rows(tmp_path / "b") == read_rows(whole_run)
    errors = (tmp_path / "b.err").read_text()
    assert "Traceback" not in errors
    assert "Warning" not in errors
    left = [path for path in tmp_path.rglob("*") if "lock" in path.name]
    assert {path.name for path in left} <= {"run.lock", "jobs.lock"}


def test_copies_files_without_hard_links(tmp_path: Path) -> None:
    command = prepare_letters_run(tmp_path)
    env = patch_python(tmp_path, WITHOUT_LINKS)
    more = (
        *("--seed", "13", "--condition", "gapft", "--set", "executor.workers=1"),
        *("--set", "training.rank=32"),  # large enough to be linked
    )

    def run(name: str, env: dict[str, str]) -> tuple[str, dict[str, str]]:
        process = start_command(tmp_path, name, env, *command[:-1], *more)
        errors = tmp_path / f"{name}.err"
        assert process.wait(300) == 0, errors.read_text()
        files = json.loads((tmp_path / name / "manifest.json").read_text())["files"]
        return " ".join(errors.read_text().split()), files

    first, copies = run("first", env)
    assert first.count("copied, not linked") == 1
    second, reused = run("second", env)
    assert "train: 1 reused from first" in second
    assert reused == copies
    shutil.rmtree(tmp_path / ".store")
    linked, again = run("third", {"OMP_NUM_THREADS": "1"})
    assert "copied, not linked" not in linked
    assert again == copies


@pytest.fixture
def unusable_store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A store path that cannot be used."""
    if request.param == "read-only":
        with make_read_only(tmp_path / "disk", "begun") as folder:
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
    "unusable_store", ["read-only", "below a file", "a file", "another format"], indirect=True
)
def test_unusable_store_loses_nothing(
    tmp_path: Path, unusable_store: Path, whole_run: Path
) -> None:
    for name in ("new", "begun"):
        if name == "begun":  # its store was deleted
            shutil.copytree(whole_run, tmp_path / name)
            (tmp_path / name / "pool/responses.parquet").unlink()
            manifest = tmp_path / name / "manifest.json"
            content = json.loads(manifest.read_text())
            del content["files"]["pool/responses.parquet"]
            manifest.write_text(json.dumps(content))
        before = sorted((tmp_path / name).rglob("*"))
        done = gapft(
            *SEARCH, "--run-dir", name, cwd=tmp_path, env={"GAPFT_STORE": str(unusable_store)}
        )
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.count("GAPFT_STORE") == 1
        assert str(unusable_store) in done.stderr.replace("\n", "")
        assert set(before) <= {*(tmp_path / name).rglob("*")}
        if name == "new":
            assert not (tmp_path / name).exists()


def test_full_store_disk_keeps_files_and_resumes(tmp_path: Path, whole_run: Path) -> None:
    """The run's own disk has room."""
    disk, env = tmp_path / "disk", {"GAPFT_STORE": str(tmp_path / "disk/store")}
    files = [file for file in whole_run.parent.glob(".store/**/*") if file.is_file()]
    with mount_small_disk(disk, count_file_pages(files) // 2):
        done = gapft(*SEARCH, "--run-dir", "run", cwd=tmp_path, env=env)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert "free disk space" in done.stderr
        assert str(disk) in done.stderr.replace("\n", "")
        stored_content = {path: path.read_bytes() for path in disk.glob("store/*/*/*.jsonl")}
        assert stored_content
        assert not [*disk.glob("store/**/*.partial")]
        remount(disk, "size=64m")
        succeed(*SEARCH, "--run-dir", "run", cwd=tmp_path, env=env)
        assert read_rows(tmp_path / "run") == read_rows(whole_run)
        assert all(path.read_bytes() == content for path, content in stored_content.items())


def test_other_package_version_shares_responses_not_verdicts(
    whole_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step's own version marks changes to generation or training in a release."""
    from gapft_harness.hooks.manager import load_plugins
    from gapft_harness.store.store import Store

    run, plugins = RunDirectory.open(whole_run), load_plugins()
    task = run.manifest()["task"]
    verifier = plugins.create_verifier(task["verifier"], task["verifier_params"])
    store = Store.for_run(whole_run)

    def key() -> str:
        description = made_from.describe_verifier(task, plugins, verifier)
        return store.find_group("judge", 1, {"verifier": description}).key

    before = key()
    monkeypatch.setattr(made_from, "__version__", "99.0")
    assert key() != before


def test_rejects_old_run_format_unchanged(tmp_path: Path, whole_run: Path) -> None:
    run = Path(shutil.copytree(whole_run, tmp_path / "old"))
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "format": 1}))
    (run / "run.lock").unlink()  # names its last holder
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for command in (SEARCH, ("report",), ("verify",)):
        place = ("--run-dir", "old") if command is SEARCH else ("old",)
        words = ("run", "old", "--only", "report") if command == ("report",) else (*command, *place)
        done = gapft(*words, cwd=tmp_path)
        status = 1 if command == ("verify",) else 2  # verify reports it as a difference
        assert done.returncode == status, (words, done.stderr)
        assert "format" in done.stderr
        assert "Traceback" not in done.stderr
    assert before.items() <= {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}.items()
