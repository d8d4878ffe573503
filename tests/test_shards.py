"""Shards: a stable division, searched apart; merged they are the split, or an error says why."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.records import Problem
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.shards import Shard, chunks_of, ids_hash, part_of, take_part
from gapft_harness.stages.pipeline import run_stages
from gapft_harness.stages.search import merging
from gapft_harness.stages.search.merging import merge_facts
from gapft_harness.stages.search.stage import merge_all
from gapft_harness.stages.verify.run import verify
from tests.command import gapft
from tests.recording_run import Letters, letters

SEARCH = {"k": 4, "chunk": 3}


@pytest.fixture
def task(tmp_path: Path) -> Letters:
    return letters(tmp_path)


def search(task: Letters, shard: str, at: str = "", **keys: Any) -> RunDirectory:
    """One shard of pool and audit, in a run directory of its own unless ``at`` says which."""
    folder = at or "part-" + shard.replace("/", "-")
    keys = {"search": SEARCH, **keys}
    return task.run("r", splits=("pool", "audit"), shard=shard, at=folder, **keys)


def whole(task: Letters, name: str = "r", **keys: Any) -> RunDirectory:
    return task.run(name, splits=("pool", "audit"), search=SEARCH, **keys)


def merge(task: Letters, at: str, *sources: RunDirectory) -> RunDirectory:
    recipe = (sources[0] if sources else RunDirectory.open(task.folder / at)).recipe
    run = RunDirectory.create_or_open(task.folder / at, recipe)
    merge_all(task.context(run), sources)
    return run


def rows(run: RunDirectory, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(run.path / f"{table}.parquet").to_pylist()
    return found


TABLES = [f"{split}/{file}" for split in ("pool", "audit") for file in ("problems", "responses")]


def hashes(run: RunDirectory) -> list[str]:
    return [sha256(run.path / f"{table}.parquet") for table in TABLES]


# The division


@given(st.lists(st.text(max_size=5), unique=True), st.integers(1, 9), st.integers(1, 12))
def test_whole_chunks_are_dealt_to_shards(ids: list[str], chunk: int, of: int) -> None:
    """Every problem is of exactly one shard, and a shard is cut into chunks of the whole split."""
    problems = [Problem(problem_id, problem_id[1:], "gold") for problem_id in ids]
    dealt = [take_part(problems, shard, chunk, {})[0] for shard in Shard.all(of)]
    assert sorted(problem.id for part in dealt for problem in part) == sorted(ids)
    chunks = [members for part in dealt for members in chunks_of(part, chunk)]
    assert sorted(map(repr, chunks)) == sorted(map(repr, chunks_of(problems, chunk)))
    counts = [len(chunks_of(part, chunk)) for part in dealt]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0/4", "out of range; expected 1/4 to 4/4"),
        ("5/4", "out of range; expected 1/4 to 4/4"),
        ("1/0", "at least 1 shard"),
        ("3", "expected I/N"),
        ("a/b", "expected I/N"),
        ("-1/4", "expected I/N"),
    ],
)
def test_a_shard_that_there_is_not_is_an_error(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Shard.parse(text)


def test_the_command_refuses_a_shard_out_of_range_and_leaves_nothing(tmp_path: Path) -> None:
    done = gapft(
        "run", "demo", "--run-dir", "run", "--only", "search", "--shard", "9/8", cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr == "gapft: shard 9/8: the number is out of range; expected 1/8 to 8/8\n"
    assert not (tmp_path / "run").exists()


@given(st.lists(st.text()), st.lists(st.text()))
def test_the_hash_of_ids_tells_lists_apart(a: list[str], b: list[str]) -> None:
    assert (ids_hash(a) == ids_hash(b)) == (a == b)


# Merging


@pytest.mark.parametrize(("of", "pool", "audit"), [(1, 24, 21), (3, 24, 21), (7, 6, 5)])
def test_shards_make_the_whole_split(tmp_path: Path, of: int, pool: int, audit: int) -> None:
    """All is as in an undivided search. Of seven shards of two chunks five are empty."""
    task = letters(tmp_path, pool, audit)
    parts = [search(task, str(shard)) for shard in Shard.all(of)]
    merged, undivided = merge(task, "merged", *parts), whole(task)
    for table in TABLES:
        assert rows(merged, table) == rows(undivided, table)
    for key in ("task", "source", "verdict_counts", "finish_reasons", "judged_by", "warnings"):
        assert merged.manifest()[key] == undivided.manifest()[key]
    assert merged.manifest()["shards"] == {"pool": of, "audit": of}
    for split in ("pool", "audit"):
        of_parts = [
            {row["problem_id"] for row in rows(part, f"{part_of(split, shard)}/problems")}
            for part, shard in zip(parts, Shard.all(of), strict=True)
        ]
        assert sum(map(len, of_parts)) == len(set().union(*of_parts)), "disjoint"


def test_any_order_gives_the_same_bytes_and_so_does_one_run_directory(task: Letters) -> None:
    parts = [search(task, str(shard)) for shard in Shard.all(3)]
    merged = [
        hashes(merge(task, f"merged{i}", *order))
        for i, order in enumerate(itertools.permutations(parts))
    ]
    assert all(each == merged[0] for each in merged)
    inside = whole(task, "inside", executor={"shards": 3})
    assert [row["seed"] for row in rows(inside, "pool/responses")] == [
        row["seed"] for row in rows(RunDirectory.open(task.folder / "merged0"), "pool/responses")
    ]
    for shard in Shard.all(3):
        search(task, str(shard), at="one")
    assert hashes(merge(task, "one")) == merged[0]


def test_row_groups_and_batches_split_no_problem(
    task: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [search(task, str(shard)) for shard in Shard.all(3)]
    before = rows(merge(task, "merged", *parts), "pool/responses")
    monkeypatch.setattr(merging, "_READ", 3)  # fewer than a problem's five rows
    monkeypatch.setattr(merging, "_WRITE", 7)
    small = merge(task, "small", *parts)
    assert rows(small, "pool/responses") == before
    assert pq.ParquetFile(small.path / "pool/responses.parquet").num_row_groups > 5


def test_every_sample_has_a_seed_of_its_own_in_any_division(task: Letters) -> None:
    first, again = whole(task, "a", executor={"shards": 3}), whole(task, "b")
    assert rows(first, "pool/responses") == rows(again, "pool/responses")
    samples = [
        row
        for split in ("pool", "audit")
        for row in rows(first, f"{split}/responses")
        if row["index"] >= 0
    ]
    assert len({row["seed"] for row in samples}) == len(samples)


def test_a_merged_run_goes_on_as_any_other(task: Letters) -> None:
    keys = {"conditions": ["gapft"]}
    parts = [search(task, str(shard), **keys) for shard in Shard.all(2)]
    merged, undivided = merge(task, "merged", *parts), whole(task, **keys)
    for run in (merged, undivided):
        run_stages(task.context(run), ["search", "states", "select"], lambda stage: None)
    assert rows(merged, "pool/states") == rows(undivided, "pool/states")
    assert merged.manifest()["budgets"] == undivided.manifest()["budgets"]
    assert merged.manifest()["budgets"]


def test_a_merge_given_again_changes_nothing_and_a_killed_one_is_finished(task: Letters) -> None:
    parts = [search(task, str(shard)) for shard in Shard.all(2)]
    run = merge(task, "merged", *parts)
    before, manifest = hashes(run), run.manifest()
    assert hashes(merge(task, "merged", *parts)) == before
    assert run.manifest() == manifest
    (run.path / "audit" / "responses.parquet").unlink()
    assert hashes(merge(task, "merged", *parts)) == before


def test_samples_that_repeat_are_noticed_though_each_shard_is_too_small(task: Letters) -> None:
    alike = {"model": {"args": {"alike": True}}}
    parts = [search(task, str(shard), **alike) for shard in Shard.all(3)]
    assert all(len(rows(p, f"pool/shards/{i + 1}-of-3/problems")) < 20 for i, p in enumerate(parts))
    warnings = merge(task, "merged", *parts).manifest()["warnings"]
    expected = "pool: all 4 samples are the same on every one of 24 problems"
    assert len([line for line in warnings if expected in line]) == 1


def test_counts_are_added_lists_joined_and_warnings_kept() -> None:
    def facts(passed: int, differ: list[str], device: str) -> dict[str, Any]:
        return {
            "task": {"name": "t", "dropped": ["pool: 1 repeated"]},
            "source": {"device": device, "pretrained": device},
            "judged_by": {"tier": "namespaces"},
            "verdicts": {"pass": passed} | ({"error": 1} if differ else {}),
            "finish_reasons": {"stop": passed},
            "executions": {"times": 3, "episodes": 2, "verdicts_differ": differ},
            "warnings": ["some"] if differ else [],
            "shard": {},
            "recipe": {},
        }

    parts = [(Shard(1, 2), facts(3, ["b"], "cpu")), (Shard(2, 2), facts(4, [], "cuda"))]
    assert merge_facts(parts) == {
        "task": {"name": "t", "dropped": ["pool: 1 repeated"]},
        "source": {"device": "cpu", "pretrained": "cpu"},
        "judged_by": {"tier": "namespaces"},
        "verdicts": {"pass": 7, "error": 1},
        "finish_reasons": {"stop": 7},
        "executions": {"times": 3, "episodes": 4, "verdicts_differ": ["b"]},
        "warnings": [
            "shard 1/2: some",
            "shard 2/2 ran otherwise than 1/2: source.device is 'cuda', not 'cpu'",
        ],
    }


# Mistakes


def test_no_shards_missing_shards_and_shards_given_twice(task: Letters) -> None:
    parts = [search(task, str(shard)) for shard in Shard.all(3)]
    with pytest.raises(UserError, match=r"1 of 3 shards are missing: 2/3"):
        merge(task, "merged", parts[0], parts[2])
    copy = task.folder / "copy"
    shutil.copytree(parts[0].path, copy)
    with pytest.raises(UserError, match=r"shard 1/3 is there twice: in .*part-1-3 and in .*copy"):
        merge(task, "merged", *parts, RunDirectory.open(copy))
    with pytest.raises(UserError, match=r"no shards in .*expected pool/shards/I-of-N"):
        merge(task, "empty", task.run("r", splits=(), search=SEARCH, at="nothing"))
    assert hashes(merge(task, "merged", *parts, parts[0])), "the same folder twice is no mistake"


def test_shards_of_two_divisions_are_refused(task: Letters) -> None:
    parts = [search(task, "1/2"), search(task, "2/3")]
    with pytest.raises(UserError, match=r"different divisions: 1/2 in .*part-1-2, 2/3 in .*2-3"):
        merge(task, "merged", *parts)


def test_shards_of_another_recipe_are_refused_naming_the_keys(task: Letters) -> None:
    parts = [search(task, "1/2"), search(task, "2/2", search={**SEARCH, "temperature": 0.3})]
    with pytest.raises(
        UserError, match=r"shard 2/2 in .*differing: search\.temperature \(0\.7 there, 0\.3 here"
    ):
        merge(task, "merged", *parts)


def test_shards_of_another_task_are_refused(task: Letters) -> None:
    first = search(task, "1/2")
    file = task.folder / "tasks" / "letters.yaml"
    file.write_text(file.read_text().replace("version: 1", "version: 2"))
    with pytest.raises(
        UserError, match=r"searched on other grounds than .*: task, metadata.version: 2 now, 1 then"
    ):
        merge(task, "merged", first, search(task, "2/2"))


def test_shards_of_other_data_are_refused(task: Letters) -> None:
    first = search(task, "1/2")
    task.write("pool", range(25))
    with pytest.raises(
        UserError, match=r"on other grounds than .*data, pool: 25 problems .* now, 24 "
    ):
        merge(task, "merged", first, search(task, "2/2"))


def test_shards_of_another_model_are_refused(task: Letters) -> None:
    first = search(task, "1/2")
    (task.folder / "weights").write_text("others")
    with pytest.raises(UserError, match=r"is of another model than shard 1/2.*'others'.*None"):
        merge(task, "merged", first, search(task, "2/2"))


def test_a_changed_and_an_unfinished_shard_are_refused(task: Letters) -> None:
    parts = [search(task, str(shard)) for shard in Shard.all(2)]
    table = parts[1].path / "pool/shards/2-of-2/responses.parquet"
    content = table.read_bytes()
    pq.write_table(pq.read_table(table), table)
    with pytest.raises(UserError, match="was changed after it was sealed"):
        merge(task, "merged", *parts)
    table.unlink()
    with pytest.raises(UserError, match=r"shard 2/2 in .* is not finished; .* --shard 2/2 again"):
        merge(task, "merged", *parts)
    table.write_bytes(content)
    assert hashes(merge(task, "merged", *parts))


def test_a_split_stays_in_the_division_it_was_begun_in(task: Letters) -> None:
    run = search(task, "1/3", at="r")
    with pytest.raises(UserError, match=r"was begun in 3 shards \(2 not begun\)"):
        whole(task)
    with pytest.raises(UserError, match=r"was begun in 3 shards"):
        whole(task, executor={"shards": 2})
    with pytest.raises(UserError, match=r"was begun in 3 shards"):
        search(task, "2/2", at="r")
    assert not (run.path / "pool" / "responses.jsonl").exists()
    journalled = task.run("j", splits=(), search=SEARCH)
    (journalled.path / "pool").mkdir()
    (journalled.path / "pool" / "responses.jsonl").write_text('{"chunk": "x", "problems": 0}\n')
    with pytest.raises(UserError, match="was begun undivided"):
        task.run("j", search=SEARCH, executor={"shards": 2})
    with pytest.raises(UserError, match="was begun undivided"):
        task.run("j", search=SEARCH, shard="1/2")


def test_a_whole_split_is_left_alone(task: Letters) -> None:
    run = whole(task)
    before = hashes(run)
    assert hashes(whole(task, executor={"shards": 4})) == before, "nothing is searched again"
    with pytest.raises(UserError, match="is searched already; shard 1/2 would add nothing"):
        search(task, "1/2", at="r")
    part = search(task, "1/1")
    with pytest.raises(UserError, match="is searched already, and not from these shards"):
        merge(task, "r", part)


def test_shards_begun_by_one_command_are_finished_by_another(task: Letters) -> None:
    """Two of three shards by hand, the rest and the merge by the search stage."""
    search(task, "3/3", at="r")
    search(task, "1/3", at="r")
    log = task.log("r")
    run = whole(task, executor={"shards": 3})
    again = task.log("r")[len(log) :]
    asked = {call["id"] for call in again if "id" in call}
    of_shard = {
        row["problem_id"]
        for split in ("pool", "audit")
        for row in rows(run, f"{split}/shards/2-of-3/problems")
    }
    assert asked == of_shard
    assert hashes(run) == hashes(whole(task, "x", executor={"shards": 3}, model=logged(task)))


def logged(task: Letters) -> dict[str, Any]:
    """Model arguments that name run r's log, so that the recipes are the same."""
    return {"args": {"log": str(task.folder / "r.log")}}


def test_shards_of_a_merged_run_may_be_removed_and_others_not(task: Letters) -> None:
    run = whole(task, executor={"shards": 2})
    part = search(task, "1/2")
    for folder in (run.path, part.path):
        for split in ("pool", "audit"):
            shutil.rmtree(folder / split / "shards")
    assert verify(run.path, task.plugins).differences == []
    assert len(verify(part.path, task.plugins).differences) == 4
    run_stages(task.context(run), ["states"], lambda stage: None)


def test_the_facts_of_a_part_say_what_it_is(task: Letters) -> None:
    run = search(task, "2/3")
    metadata = pq.read_metadata(run.path / "pool/shards/2-of-3/responses.parquet").metadata
    facts = json.loads(metadata[b"gapft"])
    assert (facts["shard"]["number"], facts["shard"]["of"]) == (2, 3)
    assert facts["shard"]["split_problems"] == 24
    assert facts["recipe"] == run.recipe.identity()
