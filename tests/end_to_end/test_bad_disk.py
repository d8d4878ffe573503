"""A full disk, a read-only folder and a second process give clear errors and lose nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from gapft_harness.stages.generation.stored_files import read_part
from tests.end_to_end.letters_run import (
    CHUNK,
    K,
    Letters,
    count_decodes,
    find_stored_files,
    read_result,
    store_path,
)

_PAGE = 4096


@contextlib.contextmanager
def mount_small_disk(folder: Path, pages: int) -> Iterator[None]:
    """Mount a tmpfs with ``pages`` pages on a folder; skip where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={pages * _PAGE}", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        # lazily: a worker of an interrupted test may still use it
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(folder: Path, option: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=True)


def count_pages(folder: Path, *patterns: str) -> int:
    """Count the whole pages that matching files of a finished run or its store take."""
    return count_file_pages(p for pattern in patterns for p in folder.glob(pattern) if p.is_file())


def count_file_pages(files: Iterable[Path]) -> int:
    """Count the whole pages that files take."""
    return sum(-(-file.stat().st_size // _PAGE) for file in files)


def find_verdict_files(store: Path, responses: Iterable[Path]) -> list[Path]:
    """Return the verdict files for some response files."""
    keys = {path.parent.name for path in responses}
    groups = [path.parent for path in store.glob("judge/*/made_from.json")]
    read = {group: json.loads((group / "made_from.json").read_text()) for group in groups}
    matching = [group for group in groups if read[group]["key"]["responses"] in keys]
    return [file for group in matching for file in group.glob("[!.]*.jsonl")]


def check_no_partial_files(run: Path) -> None:
    """Check that stored files and tables are complete and no temporary files remain."""
    import pyarrow.parquet as pq

    store = store_path(run)
    assert [*run.rglob("*.partial"), *store.rglob("*.partial")] == []
    for path in find_stored_files(store):
        read_part(path)  # its hash is checked
    for table in run.glob("*/*.parquet"):
        pq.read_table(table)
    for document in run.glob("*.json"):
        json.loads(document.read_text())


def check_refused(done: subprocess.CompletedProcess[str], reason: str) -> str:
    """Check exit status 1 and a one-line reason without a traceback; return the named file."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    match = re.search(r"^gapft: (\S+): cannot be written: (.*)$", done.stderr, re.MULTILINE)
    assert match is not None, done.stderr
    assert reason in match[2]
    assert "free disk space" in match[2]
    return match[1]


def test_resumes_after_full_disk_in_any_stage(letters: Letters, tmp_path: Path) -> None:
    whole = letters.folder / "whole"
    manifest = count_pages(whole, "manifest.json")
    store = store_path(whole)
    search_pages = count_pages(whole, "*.*", "pool/*", "audit/*", "selections/*") + manifest
    searched, decoded = (find_stored_files(store, arm=arm) for arm in (False, True))
    search_pages += count_pages(store, "*.json", "*/*/made_from.json")
    search_pages += count_file_pages([*searched, *find_verdict_files(store, searched)])
    reported = search_pages + count_pages(whole, "adapters/*/*", "decisions/*")
    reported += count_file_pages([*decoded, *find_verdict_files(store, decoded)])
    reported += count_file_pages(
        file for file in store.glob("train/*/*") if file.stat().st_nlink == 1
    )
    disk = tmp_path / "disk"
    run = disk / "full"
    with mount_small_disk(disk, manifest):
        for free_pages, stage, pattern in (
            (manifest + 8, "search", r"/generate/"),
            (search_pages + 7, "train", r"adapters/"),
            (reported + 60, "report", r"report$"),
        ):
            remount(disk, f"size={free_pages * _PAGE}")
            done = letters.try_(run)
            refused = check_refused(done, "No space left on device")
            assert re.findall(r"^(\w+) at ", done.stderr, re.MULTILINE)[-1] == stage
            assert re.search(pattern, refused), refused
            check_no_partial_files(run)
        remount(disk, "size=64m")
        letters.finish(run)
        assert read_result(run) == read_result(whole)
        counts, whole_counts = (
            count_decodes(letters.calls("full")),
            count_decodes(letters.whole_calls),
        )
        assert set(counts) == set(whole_counts)
        assert counts.total() <= whole_counts.total() + CHUNK * (1 + K), (
            "the chunk that found no room"
        )


def test_reports_file_size_limit_like_full_disk(letters: Letters) -> None:
    run = letters.folder / "limited"
    [adapter, *_] = letters.folder.glob("whole/adapters/*/adapter_model.safetensors")
    limit = adapter.stat().st_size - 1
    done = letters.try_(run, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit,) * 2))
    assert "/adapters/" in check_refused(done, "File too large")
    check_no_partial_files(run)
    letters.finish(run)
    assert read_result(run) == read_result(letters.folder / "whole")
    assert letters.calls("limited") == letters.whole_calls, "what was stored is not asked again"


def test_rejects_read_only_folder_at_once(letters: Letters, tmp_path: Path) -> None:
    with make_read_only(tmp_path / "disk", "begun") as folder:
        for name in ("new", "begun"):
            run = folder / name
            done = letters.try_(run)
            assert done.returncode == 2, done.stderr
            assert f"gapft: run directory {run}: " in done.stderr
            assert "Traceback" not in done.stderr
            assert letters.calls(name) == [], "no model was asked"


@contextlib.contextmanager
def make_read_only(folder: Path, begun: str) -> Iterator[Path]:
    """Make a folder read-only; it holds the lock of an earlier run."""
    if os.getuid() == 0:  # permissions do not bind root
        with mount_small_disk(folder, 16):
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


def test_second_command_on_a_run_is_refused(letters: Letters) -> None:
    run = letters.folder / "shared"
    child = letters.start(run)
    while not find_stored_files(store_path(run)):
        assert child.process.poll() is None, child.output.read_text()
        time.sleep(0.01)
    calls = len(letters.calls("shared"))
    done = letters.try_(run)
    assert done.returncode == 2
    since = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    match = re.search(rf"in use by process (\d+) on \S+ since {since}; wait for it", done.stderr)
    assert match is not None, done.stderr
    assert int(match[1]) == child.process.pid
    assert calls > 0
    assert child.process.wait(900) == 0, "the first goes on undisturbed"
    assert read_result(run) == read_result(letters.folder / "whole")
    assert letters.calls("shared") == letters.whole_calls, "the second asked no model"
