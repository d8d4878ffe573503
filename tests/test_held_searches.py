"""A task that is edited between two searches, or on another machine that searches a shard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.loading import SOURCES, code_hash
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
    assert '  task, generation_kwargs.until: ["x"] now, ["\\n\\n"] then' in refused.stderr
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


SOURCE = """
import math

TITLE = "a form feed \x0c and a line separator \u2028 end no line"
LIMIT = 3
TABLE = {}
try:
    import fast
except ImportError:
    def slow(x):
        return x * 7
if LIMIT:
    class Judge:
        limit = 5
for key in ():
    TABLE[key] = 9


def helper(x):
    return x + LIMIT


@property
def wanted(x):
    found = slow(x) + Judge.limit
    return helper(x) + math.pi + found


def another(pool):
    found = 11


class Other:
    LIMITS = (1, 2)


def register(register):
    register("wanted", wanted)
"""


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("x + LIMIT", "x - LIMIT", False),
        ("math.pi + found", "math.pi - found", False),
        ("x * 7", "x * 8", False),
        ("limit = 5", "limit = 6", False),
        ("= 9", "= 10", False),
        ("found = 11", "found = 12", True),
        ("def another(pool):", "def found(pool):", True),
        ("def another(pool):", "def another(pool):\n    global LIMIT\n    LIMIT = 2", False),
        ("LIMIT = 3", "LIMIT = 4", False),
        ("@property", "@staticmethod", False),
        ("import math\n", "import math\nprint()\n", False),
        ("import math\n", "import cmath as math\n", False),
        ("(1, 2)", "(1, 3)", True),
        ("\n\nclass Other", "\n\ndef more(): pass\n\n\nclass Other", True),
        ('register("wanted"', 'register("also"', True),
        ("import math\n", "'''Some words.'''\nimport math\n", True),
    ],
)
def test_code_is_new_when_what_it_rests_on_is(old: str, new: str, same: bool) -> None:
    def wanted() -> None: ...

    wanted.__module__, wanted.__qualname__ = "test_plugin", "wanted"
    SOURCES["test_plugin"] = SOURCE
    before = code_hash(wanted, {}, "")
    assert old in SOURCE
    SOURCES["test_plugin"] = SOURCE.replace(old, new)
    assert (code_hash(wanted, {}, "") == before) is same
    assert code_hash(wanted, {"gold": True}, "") != code_hash(wanted, {}, "")


@pytest.mark.parametrize("made", ["partial(judge, 5)", "make(5)", "Judge(5)", "lambda: 5"])
def test_what_an_object_was_made_of_is_its_code_too(made: str) -> None:
    """Arguments stand where it is registered, not in a definition."""
    source = f"""
from functools import partial
def judge(limit): pass
def make(limit):
    def inner(): return limit
    return inner
class Judge:
    def __init__(self, limit): pass
value = {made}
"""
    hashes = []
    for text in (source, source.replace("5", "6")):
        SOURCES["test_plugin"] = text
        names: dict[str, Any] = {"__name__": "test_plugin"}
        exec(text, names)
        hashes.append(code_hash(names["value"], {}, "test_plugin"))
    assert hashes[0] != hashes[1]
    assert "" not in hashes


def test_a_run_of_which_only_a_shard_is_searched_is_verified_so_far(tmp_path: Path) -> None:
    task = letters(tmp_path, pool=8, audit=8)
    run = task.run("r", splits=("pool",), shard="1/2")
    done = succeed("verify", run.path, "--plugin", task.plugins[0])
    assert "not yet: the pool is not searched" in done.stdout
    assert "verified so far: " in done.stdout
    assert "verified: the arms" not in done.stdout
