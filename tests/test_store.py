"""The store keeps the first content of each file and shares work between processes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from gapft_harness.core import files
from gapft_harness.core.errors import UserError
from gapft_harness.store import digests
from gapft_harness.store.digests import Digests
from gapft_harness.store.store import FORMAT, STORE_VARIABLE, Store, StoreGroup


def find_group(folder: Path) -> StoreGroup:
    group = Store(folder).find_group("generate", 1, {"model": "a"})
    group.create({"source": {"weights_sha256": "abc"}})
    return group


def list_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_keeps_first_content_of_a_name(tmp_path: Path) -> None:
    group = find_group(tmp_path)
    path = group.store_file("a.jsonl", b"first")
    assert group.store_file("a.jsonl", b"second") == path
    assert path.read_bytes() == b"first"
    assert list_names(group.folder) == {"a.jsonl", "made_from.json"}, "nothing partial is left"


@pytest.mark.parametrize("again", [False, True])
def test_keeps_first_content_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    def link(source: Path, place: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    group = find_group(tmp_path)
    path = group.store_file("a.jsonl", b"first")
    if again:
        group.store_file("a.jsonl", b"second")
    assert path.read_bytes() == b"first"
    assert list_names(group.folder) == {"a.jsonl", "made_from.json"}


def test_failed_commit_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group = find_group(tmp_path)

    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UserError, match=STORE_VARIABLE):
        group.store_file("a.jsonl", b"first")
    assert list_names(group.folder) == {"made_from.json"}


def test_key_covers_step_version_and_inputs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    made_from = {"model": {"files": {"a": "1"}}, "decoding": {"until": ["\n"]}}
    group = store.find_group("generate", 1, made_from)
    turned = dict(reversed(made_from.items()))
    assert store.find_group("generate", 1, turned).folder == group.folder
    others = [
        store.find_group("other", 1, made_from),
        store.find_group("generate", 2, made_from),
        store.find_group("generate", 1, {**made_from, "model": {"files": {"a": "2"}}}),
        store.find_group("generate", 1, {**made_from, "more": None}),
    ]
    assert len({store_group.folder for store_group in (group, *others)}) == 5
    assert not any(store_group.exists() for store_group in others)


#: Holds a claim, reports it, and releases it when a line is read or the process is killed.
HOLDER = """
import sys
from pathlib import Path
from gapft_harness.store.store import Store
group = Store(Path(sys.argv[1])).find_group("generate", 1, {"model": "a"})
with group.claim_file("a.jsonl", wait=False) as held:
    print(held, flush=True)
    sys.stdin.readline()
    if sys.argv[2:]:
        group.store_file("a.jsonl", b"of the holder")
"""


def start_holder(folder: Path, *more: str) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), *more],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdout.readline() == "True\n"
    return holder


def test_claim_excludes_another_process(tmp_path: Path) -> None:
    group = find_group(tmp_path)
    with start_holder(tmp_path, "commit") as holder:
        with group.claim_file("a.jsonl", wait=False) as held:
            assert not held
        with group.claim_file("b.jsonl", wait=False) as held:
            assert held, "of another file"
        assert holder.stdin is not None
        holder.stdin.write("\n")
        holder.stdin.flush()
        with group.claim_file("a.jsonl", wait=True) as held:
            assert held
            assert (group.folder / "a.jsonl").read_bytes() == b"of the holder"
            waiting = subprocess.run(
                [sys.executable, "-c", HOLDER, str(tmp_path)],
                input="\n", capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert waiting.stdout == "False\n", "and the other one is excluded now"
    assert holder.returncode == 0
    assert list_names(group.folder) == {"a.jsonl", "made_from.json"}, "no lock is left"


def test_killed_process_holds_no_claim(tmp_path: Path) -> None:
    group = find_group(tmp_path)
    with start_holder(tmp_path) as holder:
        holder.kill()
        holder.wait()
        with group.claim_file("a.jsonl", wait=False) as held:
            assert held


def test_claim_ends_when_its_block_fails(tmp_path: Path) -> None:
    group = find_group(tmp_path)
    with pytest.raises(KeyboardInterrupt), group.claim_file("a.jsonl", wait=False):
        raise KeyboardInterrupt
    with group.claim_file("a.jsonl", wait=False) as held:
        assert held


def test_next_claimant_keeps_the_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process does not remove the second one's lock file."""
    group = find_group(tmp_path)
    second = FileLock(group.folder / ".a.jsonl.lock")
    release = FileLock.release

    def release_and_acquire(lock: FileLock, force: bool = False) -> None:
        release(lock, force)
        if lock is not second:
            second.acquire(timeout=0)

    with monkeypatch.context() as changed:
        changed.setattr(FileLock, "release", release_and_acquire)
        with group.claim_file("a.jsonl", wait=False) as held:
            assert held
    with group.claim_file("a.jsonl", wait=False) as held:
        assert not held
    second.release()


#: A process on a file system without locks: locking fails before the store is imported.
WITHOUT_LOCKS = """
import errno, fcntl, os
def refuse(*arguments):
    raise OSError(getattr(errno, os.environ["LOCK_ERROR"]), "no locks here")
fcntl.flock = refuse
"""


@pytest.mark.parametrize("error", ["ENOSYS", "EOPNOTSUPP", "ENOTSUP", "ENOLCK"])
def test_file_lock_excludes_until_its_process_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    group, code = find_group(tmp_path), WITHOUT_LOCKS + HOLDER
    monkeypatch.setenv("LOCK_ERROR", error)
    start = [sys.executable, "-W", "error", "-c", code, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(start, **pipes) as holder:  # type: ignore[call-overload]
        assert holder.stdout.readline() == "True\n"
        assert len(list_names(group.folder)) == 2, "one lock, beside the description"
        other = subprocess.run(start, input="\n", capture_output=True, text=True, check=True)
        assert other.stdout == "False\n"
        holder.kill()
        holder.wait()
    monkeypatch.setattr(fcntl, "flock", lambda *_: refuse_lock(getattr(errno, error)))
    with group.claim_file("a.jsonl", wait=True) as held:
        assert held, "it is taken over from the dead process"
    assert list_names(group.folder) == {"made_from.json"}


def refuse_lock(number: int) -> None:
    raise OSError(number, os.strerror(number))


def test_other_lock_errors_are_not_missing_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = find_group(tmp_path)
    monkeypatch.setattr(fcntl, "flock", lambda *_: refuse_lock(errno.EIO))
    with pytest.raises(UserError, match=STORE_VARIABLE), group.claim_file("a.jsonl", wait=True):
        pass


@pytest.mark.parametrize("content", [{"format": FORMAT + 1}, {}])
def test_rejects_store_of_another_format(tmp_path: Path, content: dict[str, int]) -> None:
    (tmp_path / "store.json").write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"store\.json.*format"):
        Store(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_rejects_unreadable_store(tmp_path: Path, content: str) -> None:
    (tmp_path / "store.json").write_text(content)
    with pytest.raises(UserError, match=r"store\.json"):
        Store(tmp_path)


def test_reopens_written_store(tmp_path: Path) -> None:
    facts = find_group(tmp_path).read_facts()
    again = Store(tmp_path).find_group("generate", 1, {"model": "a"})
    assert again.read_facts() == facts == {"source": {"weights_sha256": "abc"}}
    again.create({"source": "another"})
    assert again.read_facts() == facts, "the first ones stay"


@pytest.mark.parametrize(
    "use",
    [
        lambda group: group.create({}),
        lambda group: group.store_file("a.jsonl", b""),
        lambda group: group.claim_file("a.jsonl", wait=True).__enter__(),
    ],
    ids=["open", "commit", "claim"],
)
def test_names_unwritable_place_and_its_setting(
    tmp_path: Path, use: Callable[[StoreGroup], object]
) -> None:
    """A file is in the folder's place, so even root cannot write."""
    (tmp_path / "file").write_text("")
    group = Store(tmp_path / "file").find_group("generate", 1, {})
    with pytest.raises(UserError, match=STORE_VARIABLE):
        use(group)


@pytest.mark.parametrize("inside", ["", "store", "pool/store", "../run/store"])
def test_rejects_store_inside_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "run" / inside))
    with pytest.raises(UserError, match=STORE_VARIABLE):
        Store.for_run(tmp_path / "run")


def test_store_is_beside_runs_or_as_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(STORE_VARIABLE, raising=False)
    assert Store.for_run(tmp_path / "run").root == Store.for_run(tmp_path / "other").root
    assert Store.for_run(tmp_path / "run").root.parent == tmp_path
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "run-store"))
    assert Store.for_run(tmp_path / "run").root == tmp_path / "run-store"


@pytest.mark.parametrize("edited", ["model", "step", "facts", "source", "no key", "no JSON"])
def test_rejects_edited_description(tmp_path: Path, edited: str) -> None:
    group = find_group(tmp_path)
    path = group.folder / "made_from.json"
    content = json.loads(path.read_text())
    if edited in ("model", "step"):
        content["key"][edited] = "b"
    elif edited == "facts":
        content["facts"] = 1
    elif edited == "source":
        content["facts"]["source"]["weights_sha256"] = "abd"
    elif edited == "no key":
        del content["key"]
    path.write_text("{" if edited == "no JSON" else json.dumps(content))
    with pytest.raises(UserError, match=r"made_from\.json"):
        group.read_facts()


def test_large_file_is_rehashed_only_after_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "weights"
    weights.write_bytes(b"a" * (1 << 20))
    expected, hashed = files.sha256(weights), []
    monkeypatch.setattr(digests, "sha256", lambda path: hashed.append(path) or files.sha256(path))
    hash_file = Digests(tmp_path / "store").hash_file
    assert hash_file(weights) == hash_file(weights) == expected
    assert len(hashed) == 2, "it was written just now"
    monkeypatch.setattr(digests, "RECENT_CHANGE_NS", -(10**12))
    assert (
        hash_file(weights)
        == hash_file(weights)
        == Digests(tmp_path / "store").hash_file(weights)
        == expected
    )
    assert len(hashed) == 3
    weights.write_bytes(b"b" * (1 << 20))
    assert hash_file(weights) == files.sha256(weights) != expected
    (tmp_path / "store" / "digests.json").write_text("{")
    assert hash_file(weights) == files.sha256(weights)
