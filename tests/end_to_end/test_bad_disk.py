"""A full disk, a read-only folder and a second process: clear errors, and nothing lost."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.letters_run import Letters, chunks, content, result

pytestmark = pytest.mark.xdist_group("resume")

_PAGE = 4096


@contextlib.contextmanager
def small_disk(folder: Path, pages: int) -> Iterator[None]:
    """Mounts a tmpfs of so many pages on a folder; skips where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={pages * _PAGE}", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        # lazily: a worker of an interrupted test may still be there
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


def pages(run: Path, *patterns: str) -> int:
    """Pages that the files of a finished run take, in whole pages each."""
    files = [p for pattern in patterns for p in run.glob(pattern) if p.is_file()]
    return sum(-(-p.stat().st_size // _PAGE) for p in files)


def check_nothing_half_written(run: Path) -> None:
    """Whole files only: journals end with what is committed, tables can be read, no leftovers."""
    import pyarrow.parquet as pq

    assert list(run.rglob("*.partial")) == []
    for journal in run.glob("*/*.jsonl"):
        assert content(journal) == b"" or content(journal).splitlines()[-1].startswith(b'{"chunk"')
    for table in run.glob("*/*.parquet"):
        pq.read_table(table)
    for document in run.glob("*.json"):
        json.loads(document.read_text())


def check_refused(done: subprocess.CompletedProcess[str], reason: str) -> str:
    """Exit status 1 and the reason in one line without a traceback; gives the file it names."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    found = re.search(r"^gapft: (\S+): cannot be written: (.*)$", done.stderr, re.MULTILINE)
    assert found is not None, done.stderr
    assert found[2].startswith(reason)
    assert "make room: the same command goes on" in found[2]
    return found[1]


def test_a_full_disk_ends_a_run_in_any_stage_and_it_goes_on_when_there_is_room(
    letters: Letters, tmp_path: Path
) -> None:
    whole = letters.folder / "whole"
    manifest = pages(whole, "manifest.json")
    kept = pages(whole, "*.*", "pool/*", "audit/*", "selections/*") + manifest
    reported = kept + pages(whole, "adapters/*/*", "decisions/*")
    disk = tmp_path / "disk"
    run = disk / "full"
    with small_disk(disk, manifest):
        for room, stage, named in (
            (manifest + 2, "search", r"responses\.jsonl$"),
            (kept + 7, "train", r"adapters/"),
            (reported + 60, "report", r"report$"),
        ):
            remount(disk, f"size={room * _PAGE}")
            done = letters.try_(run)
            refused = check_refused(done, "No space left on device")
            assert re.findall(r"^(\w+) at ", done.stderr, re.MULTILINE)[-1] == stage
            assert re.search(named, refused), refused
            check_nothing_half_written(run)
        remount(disk, "size=64m")
        letters.finish(run)
        assert result(run) == result(whole)
        calls = Counter(letters.calls("full"))
        assert set(calls) == set(letters.whole_calls)
        assert calls.total() <= len(letters.whole_calls) + 1, "the chunk that found no room"


def test_a_limit_on_the_size_of_files_is_told_like_a_full_disk(letters: Letters) -> None:
    run = letters.folder / "limited"
    limit = (letters.folder / "whole" / "manifest.json").stat().st_size
    done = letters.try_(run, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit,) * 2))
    assert check_refused(done, "File too large").endswith("responses.jsonl")
    check_nothing_half_written(run)
    kept = chunks(content(run / "pool/responses.jsonl"))
    assert kept > 0
    letters.finish(run)
    assert result(run) == result(letters.folder / "whole")
    assert len(letters.calls("limited")) == len(letters.whole_calls) + 1, "the chunk in flight"


def test_a_read_only_folder_is_refused_before_anything_expensive(
    letters: Letters, tmp_path: Path
) -> None:
    with read_only(tmp_path / "disk", "begun") as folder:
        for name in ("new", "begun"):
            run = folder / name
            done = letters.try_(run)
            assert done.returncode == 2, done.stderr
            assert f"gapft: run directory {run}: cannot be written" in done.stderr
            assert "Traceback" not in done.stderr
            assert letters.calls(name) == [], "no model was asked"


@contextlib.contextmanager
def read_only(folder: Path, begun: str) -> Iterator[Path]:
    """A folder in which nothing can be written, with the lock of an earlier run in it."""
    if os.getuid() == 0:  # permissions do not bind root
        with small_disk(folder, 16):
            (folder / begun).mkdir()
            (folder / begun / "run.lock").touch()
            remount(folder, "ro")
            yield folder
            remount(folder, "rw")
        return
    (folder / begun).mkdir(parents=True)
    (folder / begun / "run.lock").touch()
    (folder / begun).chmod(0o555)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    (folder / begun).chmod(0o755)


def test_a_second_command_on_a_run_is_refused_and_told_of_the_first(letters: Letters) -> None:
    run = letters.folder / "shared"
    child = letters.start(run)
    while chunks(content(run / "pool/responses.jsonl")) < 1:
        assert child.process.poll() is None, child.output.read_text()
        time.sleep(0.01)
    calls = len(letters.calls("shared"))
    done = letters.try_(run)
    assert done.returncode == 2
    since = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    found = re.search(rf"in use by process (\d+) on \S+ since {since}; wait for it", done.stderr)
    assert found is not None, done.stderr
    assert int(found[1]) == child.process.pid
    assert calls > 0
    assert child.process.wait(900) == 0, "the first goes on undisturbed"
    assert result(run) == result(letters.folder / "whole")
    assert letters.calls("shared") == letters.whole_calls, "the second asked no model"
