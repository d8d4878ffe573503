"""Pool and audit share no problem: before anything is generated, and as they are sealed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.integrity.disjoint import (
    DuplicateIndex,
    require_disjoint,
    warn_of_near_duplicates,
)
from gapft_harness.stages.pipeline import STAGES
from gapft_harness.stages.verify.run import verify
from tests.command import gapft, succeed
from tests.letters_task import CONTAINS, write_letters
from tests.recording_run import Letters, letters
from tests.verify.tampering import change_manifest, read_rows, write_rows

KEYED = st.tuples(
    st.builds("{}-{:012x}".format, st.sampled_from("abc"), st.integers(0, 3)),
    st.sampled_from(["x", " x", "x\n", "X", "y  z", "y z"]),
)


@settings(deadline=None)
@given(st.lists(KEYED, max_size=6), st.lists(KEYED, max_size=6))
def test_two_splits_share_a_problem_from_either_side(
    one: list[tuple[str, str]], other: list[tuple[str, str]]
) -> None:
    """By the hash in the id or by the prompt, white space at its ends apart."""

    def same(a: tuple[str, str], b: tuple[str, str]) -> bool:
        return a[0][-12:] == b[0][-12:] or a[1].strip() == b[1].strip()

    shared = [a for a in sorted(one) if any(same(a, b) for b in other)]
    found = DuplicateIndex(other).list_shared(one)
    assert [name for name, _ in found] == [name for name, _ in shared]
    assert all(any(b[0] == there for b in other) for _, there in found)
    assert bool(found) == bool(DuplicateIndex(one).list_shared(other))
    if not found:
        require_disjoint(one, other, "pool", "audit", "t")
        return
    said = rf"{len(found)} of {len(one)} pool problems .* first: {found[0][0]} .*drop_shared=true"
    with pytest.raises(UserError, match=said):
        require_disjoint(one, other, "pool", "audit", "t")


def test_case_and_inner_white_space_are_told_and_no_more() -> None:
    pool = [("a", "Add  1 and 2"), ("b", "add 1 and 3"), ("c", "add 1")]
    audit = [("x", "add 1 and 2"), ("y", "Add 1\nand 3")]
    assert warn_of_near_duplicates(pool, audit).startswith(
        "2 pool problems differ from an audit problem only in case or white space, first: a (there"
    )
    assert warn_of_near_duplicates(pool[2:], audit) == ""


RECIPE = (
    "name: r\ndata: {task: letters}\n"
    "model: {backend: dummy, args: {pretrained: none}}\nexecutor: {workers: 1}\n"
)
SEARCH = ("run", "recipe.yaml", "--run-dir", "run", "--only", "search", "--include-path", "tasks")
OPTIONS = ("--plugin", "contains.py")


@pytest.fixture
def given_files(tmp_path: Path) -> Path:
    write_letters(tmp_path, {"pool": 6, "audit": 4})
    (tmp_path / "contains.py").write_text(CONTAINS)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


@pytest.mark.parametrize("split", ["pool", "audit"])
def test_an_audit_that_is_the_pool_is_refused_before_anything_is_generated(
    given_files: Path, split: str
) -> None:
    tasks = given_files / "tasks"
    (tasks / "audit.jsonl").write_text((tasks / "pool.jsonl").read_text())
    done = gapft(*SEARCH, "--split", split, *OPTIONS, cwd=given_files)
    assert done.returncode == 2
    assert "6 of 6 pool problems are also in the audit, first: pool0-" in done.stderr
    assert "data.drop_shared=true" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (given_files / "run").exists()
    told = gapft("run", "recipe.yaml", *SEARCH[6:], *OPTIONS, "--dry-run", cwd=given_files)
    assert "6 of 6 pool problems are also in the audit" in told.stdout


def test_what_is_shared_can_be_left_out_of_the_pool_with_a_count(given_files: Path) -> None:
    tasks = given_files / "tasks"
    pool = [json.loads(line) for line in (tasks / "pool.jsonl").read_text().splitlines()]
    again = [{**record, "id": "other", "question": f"{record['question']} "} for record in pool[:2]]
    with (tasks / "audit.jsonl").open("a") as audit:
        audit.writelines(json.dumps(record) + "\n" for record in again)
    given = (*SEARCH, *OPTIONS, "--set", "data.drop_shared=true")
    told = " ".join(succeed(*given, cwd=given_files).stderr.split())
    assert "pool: 2 of 6 problems dropped because they are also in the audit (drop_shared)" in told
    run = given_files / "run"
    assert [len(read_rows(run / s / "problems.parquet")) for s in ("pool", "audit")] == [4, 6]
    assert (
        "no problem of one split is in another (pool, audit)"
        in succeed("verify", "run", *OPTIONS, cwd=given_files).stdout
    )


def test_what_is_shared_can_be_kept_and_is_counted_everywhere(given_files: Path) -> None:
    """Two pool problems are one audit problem: two of six, and one of five."""
    tasks = given_files / "tasks"
    pool = [json.loads(line) for line in (tasks / "pool.jsonl").read_text().splitlines()]
    shared = {**pool[0], "id": "other", "question": f"{pool[0]['question']} "}
    with (tasks / "audit.jsonl").open("a") as audit:
        audit.write(json.dumps(shared) + "\n")
    again = {**pool[1], "id": "again", "question": pool[0]["question"]}
    (tasks / "pool.jsonl").write_text("".join(json.dumps(r) + "\n" for r in [*pool[:5], again]))
    said = (
        "2 of 6 pool problems are also in the audit, where they are 1 of 5 problems; they are kept"
    )
    kept = ("--set", "data.keep_shared=true")
    asked = ("run", "recipe.yaml", *SEARCH[6:], *OPTIONS, "--dry-run", *kept)
    dry = gapft(*asked, cwd=given_files).stdout
    assert f"# warnings\npool: {said}" in dry
    told = " ".join(succeed(*SEARCH, *OPTIONS, *kept, cwd=given_files).stderr.split())
    assert f"warning: {said}" in told
    run = given_files / "run"
    assert [len(read_rows(run / s / "problems.parquet")) for s in ("pool", "audit")] == [6, 5]
    warnings = json.loads((run / "manifest.json").read_text())["warnings"]
    assert [line for line in warnings if line.startswith(said)]
    assert not [line for line in warnings if "case or white space" in line]
    done = succeed("verify", "run", *OPTIONS, cwd=given_files).stdout
    assert "no problem of one split is in another, except those that are kept (pool, audit)" in done
    assert said in done
    both = gapft(*asked, "--set", "data.drop_shared=true", cwd=given_files)
    assert both.returncode == 2
    assert "cannot be true together with data.drop_shared" in both.stderr


@pytest.fixture
def task(tmp_path: Path) -> Letters:
    return letters(tmp_path, pool=8, audit=6)


def share(run: RunDirectory) -> None:
    """Makes a pool problem's prompt that of an audit problem, in sealed tables, sealed again."""
    path = run.path / "pool/problems.parquet"
    rows = read_rows(path)
    rows[0]["prompt"] = read_rows(run.path / "audit/problems.parquet")[0]["prompt"]
    write_rows(path, rows)
    change_manifest(run.path, lambda m: m["files"].update({"pool/problems.parquet": sha256(path)}))


def test_a_run_whose_sealed_splits_share_a_problem_is_found(task: Letters) -> None:
    run = task.run("r", ("states", "select"), ("pool", "audit"), conditions=["gapft"])
    assert verify(run.path, task.plugins).differences == []
    share(run)
    said = "1 of 8 pool problems are also in the audit"
    assert [said in line for line in verify(run.path, task.plugins).differences] == [True]
    with pytest.raises(UserError, match=said):
        STAGES["search"](task.context(run))


def test_a_difference_in_case_alone_is_told_once(task: Letters) -> None:
    with (task.folder / "tasks" / "audit.jsonl").open("a") as file:
        file.write(json.dumps({"id": "n", "question": "POOL 0?", "answer": "a"}) + "\n")
    run = task.run("r", splits=("pool", "audit"))
    STAGES["search"](task.context(run))
    told = [line for line in run.manifest()["warnings"] if "case or white space" in line]
    assert len(told) == 1
    assert told[0].startswith("1 pool problem differs from an audit problem")
    assert pq.read_table(run.path / "pool/problems.parquet").num_rows == 8
