"""What bad input gets: one clear line, exit status 2, no traceback, nothing half-written."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gapft_harness.recipe.reading import check_recipe
from gapft_harness.run_directory.directory import RunDirectory
from tests.command import gapft

TINY = "name: r\ndata: {task: gapft_demo}\nmodel: {args: {pretrained: 'bundled:demo'}}\n"

CASES = {
    "a misspelt key": (TINY + "serch: {k: 2}\n", [], "unknown key 'serch'; did you mean 'search'?"),
    "a wrong type": (TINY + "search: {k: many}\n", [], "key 'search.k': input should be a valid"),
    "an unknown task": (TINY, ["--set", "data.task=gapft_dmo"], "gapft_demo"),
    "an unknown verifier": (TINY, ["--set", "verifier.name=nope"], "unknown verifier 'nope'"),
    "a wrong verifier parameter": (
        TINY,
        ["--set", "verifier={name: option_letter, params: {rule: frist_explicit}}"],
        "recipe, section verifier: option_letter: unknown rule 'frist_explicit'; did you mean",
    ),
    "an unknown condition": (
        TINY,
        ["--condition", "gapf"],
        "unknown selector 'gapf'; did you mean 'gapft'?",
    ),
    "an unknown backend": (TINY, ["--set", "model.backend=hff"], "did you mean 'hf'?"),
    "an unknown response rule": (TINY, ["--set", "evidence.keep=shortst"], "'shortest'"),
    "an unknown executor": (TINY, ["--set", "executor.name=locl"], "did you mean 'local'?"),
    "an unknown trainer": (TINY, ["--set", "training.trainer=lor"], "did you mean 'lora'?"),
    "a folder that is no model": (
        TINY,
        ["--set", "model.args.pretrained=EMPTY"],
        "EMPTY",
    ),
    "an unknown model argument": (TINY, ["--set", "model.args.dtyp=float32"], "dtyp"),
    "a plugin that is not there": (TINY, ["--plugin", "none.py"], "none.py: there is no such file"),
    "a recipe that is no YAML": ("name: [", [], "is not valid YAML"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_one_line_and_exit_status_2(name: str, tmp_path: Path) -> None:
    recipe, arguments, expected = CASES[name]
    (tmp_path / "recipe.yaml").write_text(recipe)
    (tmp_path / "EMPTY").mkdir()
    done = gapft("run", "recipe.yaml", "--run-dir", "out", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    message = [line for line in done.stderr.splitlines() if line.startswith("gapft: ")]
    assert len(message) == 1, done.stderr
    assert expected in message[0]
    assert not (tmp_path / "out").exists(), sorted((tmp_path / "out").rglob("*"))


def test_the_corrected_command_may_use_the_same_run_dir(tmp_path: Path) -> None:
    """With another K: nothing of the mistaken recipe is left that the run would be bound to."""
    recipe, arguments, _ = CASES["an unknown model argument"]
    (tmp_path / "recipe.yaml").write_text(recipe)
    done = gapft("run", "recipe.yaml", "--run-dir", "out", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    again = ["run", "recipe.yaml", "--run-dir", "out", "--set", "search.k=3"]
    done = gapft(*again, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    corrected = check_recipe({**yaml.safe_load(recipe), "search": {"k": 3}}, "test")
    assert RunDirectory.create_or_open(tmp_path / "out", corrected).recipe == corrected


def test_an_unknown_recipe_lists_the_bundled_ones(tmp_path: Path) -> None:
    done = gapft("run", "dmo", cwd=tmp_path)
    assert done.returncode == 2
    assert "no recipe 'dmo'" in done.stderr
    assert "did you mean 'demo'?" in done.stderr


def test_a_stage_before_its_time_says_which_stage_is_missing(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(TINY)
    done = gapft("states", "nowhere", cwd=tmp_path)
    assert done.returncode == 2
    assert "nowhere: is no run directory" in done.stderr
    assert not (tmp_path / "nowhere").exists()


def test_nothing_given_is_explained(tmp_path: Path) -> None:
    done = gapft("run", cwd=tmp_path)
    assert done.returncode == 2
    assert "give a recipe, or --task with --model-args" in done.stderr


def test_an_unknown_option_is_refused(tmp_path: Path) -> None:
    done = gapft("run", "demo", "--sett", "a=b", cwd=tmp_path)
    assert done.returncode == 2
    assert "--sett" in done.stderr
