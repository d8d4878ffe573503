"""A run directory is bound to its recipe, knows its sealed files, and lets one process in."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import replace_file, sha256
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.lock import hold


def recipe(**changes: Any) -> Recipe:
    content = {
        "name": "r",
        "data": {"task": "t"},
        "model": {"args": {"pretrained": "m"}},
        **changes,
    }
    return check_recipe(content, "test")


def test_another_recipe_is_refused_naming_the_keys_that_differ(tmp_path: Path) -> None:
    RunDirectory.create_or_open(tmp_path / "run", recipe())
    with pytest.raises(
        UserError, match=r"made by another recipe; differing: search\.k \(8 there, 4"
    ):
        RunDirectory.create_or_open(tmp_path / "run", recipe(search={"k": 4}))


def test_conditions_seeds_and_executor_may_change(tmp_path: Path) -> None:
    RunDirectory.create_or_open(tmp_path / "run", recipe())
    changed = recipe(conditions=["gapft"], seeds=[1], executor={"workers": 3})
    run = RunDirectory.create_or_open(tmp_path / "run", changed)
    assert run.recipe == changed
    assert RunDirectory.open(tmp_path / "run").recipe == recipe(), "not before it is committed"
    run.commit()
    assert RunDirectory.open(tmp_path / "run").recipe == changed
    assert run.manifest()["recipe"] == changed.model_dump(mode="json")


def test_jobs_are_told_at_once_how_to_run_and_how_to_ask_the_model(tmp_path: Path) -> None:
    """They read the recipe on disk, and begin before anything is selected and committed."""

    def served(at: str, **changes: Any) -> Recipe:
        args = {"pretrained": "m", "base_url": f"http://{at}/v1/completions"}
        return recipe(model={"backend": "local-completions", "args": args}, **changes)

    RunDirectory.create_or_open(tmp_path / "run", served("old"))
    wanted = served("new", executor={"threads": 2}, conditions=["gapft"])
    run = RunDirectory.create_or_open(tmp_path / "run", wanted)
    assert RunDirectory.open(tmp_path / "run").recipe == served("old")
    run.tell_jobs()
    now = served("new", executor={"threads": 2})
    assert RunDirectory.open(tmp_path / "run").recipe == now, "conditions wait for the commit"
    assert run.manifest()["recipe"] == now.model_dump(mode="json"), "as gapft verify compares them"


def test_a_run_with_nothing_in_it_is_taken_away_and_one_with_a_response_is_kept(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run"
    for journalled in ("", "{}\n"):
        run = RunDirectory.create_or_open(path, recipe())
        (path / "pool").mkdir()
        (path / "pool" / "responses.jsonl").write_text(journalled)
        run.discard_if_empty()
        assert (path / "recipe.yaml").exists() == bool(journalled)
        assert (path / "pool").exists() == bool(journalled)


@pytest.mark.parametrize("file", ["pool/responses.parquet", "pool/shards/1-of-2/problems.parquet"])
def test_a_run_with_a_finished_table_is_kept_though_nothing_is_sealed(
    tmp_path: Path, file: str
) -> None:
    run = RunDirectory.create_or_open(tmp_path / "run", recipe())
    replace_file(run.path / file, lambda beside: beside.write_text("rows"))
    run.discard_if_empty()
    assert RunDirectory.create_or_open(run.path, recipe()).manifest() == run.manifest()
    assert (run.path / file).exists()


def test_what_a_kill_left_before_anything_was_generated_is_taken_away(tmp_path: Path) -> None:
    run = RunDirectory.create_or_open(tmp_path / "run", recipe())
    (run.path / "pool" / "shards" / "1-of-2").mkdir(parents=True)
    (run.path / "pool" / ".problems.parquet.partial").write_text("half")
    run.discard_if_empty()
    assert list(run.path.iterdir()) == []


@pytest.mark.parametrize("whole", [True, False])
def test_a_folder_that_was_killed_before_its_recipe_was_there_is_begun_again(
    tmp_path: Path, whole: bool
) -> None:
    folder = RunDirectory.create_or_open(tmp_path / "run", recipe()).path
    (folder / "recipe.yaml").unlink()
    if not whole:
        (folder / "manifest.json").unlink()
        (folder / ".manifest.json.partial").write_text("{")
    run = RunDirectory.create_or_open(tmp_path / "run", recipe())
    assert run.manifest()["recipe"] == RunDirectory.open(run.path).recipe.model_dump(mode="json")


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match=r"holds files, but no recipe\.yaml"):
        RunDirectory.create_or_open(tmp_path, recipe())
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", '{"name": "a web page"}'),
        ("manifest.json", '{"gapft_harness": "0.1.0", "files": {"pool/responses.parquet": "0"}}'),
        ("manifest.json", "["),
        ("film.mkv.partial", "half"),
        ("log.jsonl", ""),
    ],
)
def test_a_folder_with_files_of_like_names_is_refused(
    tmp_path: Path, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=r"holds files, but no recipe\.yaml"):
        RunDirectory.create_or_open(tmp_path, recipe())
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {name: content}


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run directory"):
        RunDirectory.open(tmp_path)


def test_a_sealed_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    run = RunDirectory.create_or_open(tmp_path / "run", recipe())
    path = run.path / "pool" / "x.parquet"
    with pytest.raises(UserError, match="run the stage that writes it first"):
        run.sealed("pool/x.parquet")
    replace_file(path, lambda beside: beside.write_text("one"))
    run.seal("pool/x.parquet")
    assert run.sealed("pool/x.parquet") == path
    path.write_text("two")
    with pytest.raises(UserError, match="was changed after it was sealed"):
        run.sealed("pool/x.parquet")
    with pytest.raises(UserError, match="was changed after it was sealed"):
        run.seal("pool/x.parquet")


def test_a_folders_hash_sees_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("1")
    before = sha256(tmp_path / "a")
    (tmp_path / "a" / "x").rename(tmp_path / "a" / "y")
    renamed = sha256(tmp_path / "a")
    (tmp_path / "a" / "y").write_text("2")
    assert len({before, renamed, sha256(tmp_path / "a")}) == 3


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")

    def write(beside: Path) -> None:
        beside.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(GapftError, match="cannot be written: No space left on device"):
        replace_file(path, write)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_second_process_is_refused_and_told_who_is_first(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, pathlib\nfrom gapft_harness.run_directory.lock import hold\n"
            "with hold(pathlib.Path(sys.argv[1])):\n    print('held', flush=True)\n"
            "    sys.stdin.read()",
            str(tmp_path / "run"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(UserError, match=f"in use by process {holder.pid}"), hold(tmp_path / "run"):
        pass
    holder.kill()
    holder.wait()
    with hold(tmp_path / "run"):
        pass


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    run = RunDirectory.create_or_open(tmp_path / "run", recipe())
    (run.path / "manifest.json").write_text("{")
    with pytest.raises(UserError, match=r"manifest\.json: cannot be read"):
        run.manifest()
    (run.path / "manifest.json").write_text(json.dumps([]))
    with pytest.raises(UserError, match="expected a JSON object"):
        run.manifest()
