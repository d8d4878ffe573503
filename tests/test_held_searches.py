"""A task that is edited between two searches, or on another machine that searches a shard."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.loading import registrations
from gapft_harness.hooks.manager import _load, load_plugins
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import FORMAT
from gapft_harness.stages.integrity.rests_on import SECTION, searched_in
from gapft_harness.stages.search.stage import merge_all
from tests.command import gapft, succeed
from tests.letters_task import CONTAINS, write_letters
from tests.recording_run import Letters, letters

RECIPE = (
    "name: r\ndata: {task: letters}\n"
    "model: {backend: dummy, args: {pretrained: none}}\nexecutor: {workers: 1}\n"
)


def test_a_task_edited_between_pool_and_audit_is_noticed_before_the_audit_is_searched(
    tmp_path: Path,
) -> None:
    write_letters(tmp_path, {"pool": 5, "audit": 4})
    (tmp_path / "contains.py").write_text(CONTAINS)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    again = ("run", "--run-dir", "run", "--only", "search", "--plugin", "contains.py")
    given = (*again, "--include-path", "tasks")
    succeed(*given, "recipe.yaml", "--split", "pool", cwd=tmp_path)
    task = tmp_path / "tasks/letters.yaml"
    before = task.read_text()
    task.write_text(before.replace("max_gen_toks: 12", "max_gen_toks: 12, until: [x]"))
    refused = gapft(*given, "--split", "audit", cwd=tmp_path)
    assert refused.returncode == 2
    assert '  task, generation_kwargs.until: ["x"] now, [] then' in refused.stderr
    assert list((tmp_path / "run").glob("audit/*")) == []
    # to calibrate on later: neither pool nor audit is read from it
    task.write_text(f"{before}\nvalidation_split: later\n")
    succeed(*again, "--split", "audit", cwd=tmp_path)  # it looks where the pool's search looked
    task.write_text(before)
    plan = ("recipe.yaml", "--dry-run", "--run-dir", "run", "--plugin", "contains.py")
    assert "pool 5, audit 4" in gapft("run", *plan, cwd=tmp_path).stdout  # no model is here
    manifest = RunDirectory.open(tmp_path / "run").manifest()
    assert {"pool/responses.parquet", "audit/responses.parquet"} <= manifest["files"].keys()


def test_a_search_looks_where_the_first_one_looked_in_what_is_there_still(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    places = [str(tmp_path / name) for name in ("gone", "kept")]
    assert searched_in(tmp_path) == []
    (tmp_path / "manifest.json").write_text(
        json.dumps({"format": FORMAT, SECTION: {"include_paths": places}})
    )
    assert searched_in(tmp_path) == places[1:]


@pytest.fixture
def task(tmp_path: Path) -> Letters:
    return letters(tmp_path, pool=8, audit=6)


def test_a_run_in_which_nothing_was_generated_takes_the_task_as_it_is(task: Letters) -> None:
    run = task.run("r", splits=())
    run.update_manifest(lambda manifest: manifest.update({SECTION: {"data": {"pool": {}}}}))
    assert run.is_empty()
    again = task.run("r")
    assert again.manifest()[SECTION]["data"]["pool"]["problems"] == 8


def test_shards_whose_golds_differ_are_not_merged(task: Letters) -> None:
    """The ids are the same: a problem's content is its question."""
    first = task.run("r", shard="1/2", at="one")
    file = task.folder / "tasks" / "audit.jsonl"
    file.write_text(file.read_text().replace('"answer": "a"', '"answer": "e"'))
    log = {"args": {"log": f"{task.folder / 'r'}.log"}}
    second = task.run("r", shard="2/2", at="two", model=log)
    with pytest.raises(UserError, match=r"other grounds than .*data, audit: 6 problems"):
        merge_all(task.context(first), [second])
    assert "pool/problems.parquet" not in first.manifest()["files"]


def test_a_merged_run_rests_on_what_its_shards_do(task: Letters) -> None:
    runs = [task.run("r", shard=f"{n}/2", at=f"part{n}") for n in (1, 2)]
    whole = RunDirectory.create_or_open(task.folder / "whole", runs[0].recipe)
    merge_all(task.context(whole, splits=("pool",)), runs)
    assert whole.manifest()[SECTION] == runs[0].manifest()[SECTION]


PLUGIN = """
from functools import partial
from gapft_harness.api import hookimpl

def pick(pool, n, rng, limit=5):
    return pool.draw(pool.solved, n, rng)

@hookimpl
def register_selectors(register):
    register("plain", pick)
    register("partial", partial(pick, limit=5))
    register("lambda", lambda pool, n, rng: pick(pool, n, rng))
"""


def test_a_part_of_a_plugin_goes_by_the_hash_of_its_file(tmp_path: Path) -> None:
    file, seen = tmp_path / "mine.py", set()
    for text in (PLUGIN, PLUGIN.replace("limit=5", "limit=6"), f"{PLUGIN}# a remark\n"):
        file.write_text(text)
        _load.cache_clear()
        plugins = load_plugins([str(file)])
        codes = {plugins.code("selector", name) for name in ("plain", "partial", "lambda")}
        assert codes == {hashlib.sha256(file.read_bytes()).hexdigest()}
        seen |= codes
    assert len(seen) == 3


def test_what_a_package_defines_in_another_module_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "picking"
    package.mkdir()
    registering, own = package / "__init__.py", package / "own.py"
    registering.write_text(PLUGIN.replace("def pick", "def other") + "from picking.own import pick")
    own.write_text("def pick(pool, n, rng):\n    return []\n")
    monkeypatch.syspath_prepend(tmp_path)

    def code() -> str:
        importlib.invalidate_caches()
        for name in ("picking", "picking.own"):
            sys.modules.pop(name, None)
        registered = registrations("picking", importlib.import_module("picking"))
        return next(entry.code for entry in registered if entry.name == "plain")

    before = code()
    own.write_text("def pick(pool, n, rng):\n    return [1]\n")
    edited = code()
    registering.write_text(registering.read_text() + "\n")
    assert len({before, edited, code()}) == 3


def test_a_run_of_which_only_a_shard_is_searched_is_verified_so_far(tmp_path: Path) -> None:
    task = letters(tmp_path, pool=8, audit=8)
    run = task.run("r", splits=("pool",), shard="1/2")
    done = succeed("verify", run.path, "--plugin", task.plugins[0])
    assert "not yet: the pool is not searched" in done.stdout
    assert "verified so far: " in done.stdout
    assert "verified: the arms" not in done.stdout
