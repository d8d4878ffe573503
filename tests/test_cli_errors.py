"""Errors of bad input: one clear line, exit status 2, no traceback, no partial files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from gapft_harness.cli.main import app
from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.json_values import describe_change
from gapft_harness.recipe.bundled import find_recipe
from gapft_harness.recipe.reading import Setting, check_recipe, read_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.verdicts.log_files import find_runs
from tests.kit.command import gapft

#: The options that an import needs to create its run.
TINY_TASK = ("--task", "gapft_demo", "--model-args", "pretrained=bundled:demo")
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
    "a plugin that is not there": (TINY, ["--plugin", "none.py"], "none.py: no such file"),
    "a recipe that is no YAML": ("name: [", [], "is not valid YAML"),
}


@pytest.mark.parametrize("name", CASES)
def test_mistake_prints_one_line_and_exits_2(name: str, tmp_path: Path) -> None:
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


def test_corrected_command_reuses_run_dir(tmp_path: Path) -> None:
    """With another K, since the failed command leaves no recipe in the folder."""
    recipe, arguments, _ = CASES["an unknown model argument"]
    (tmp_path / "recipe.yaml").write_text(recipe)
    done = gapft("run", "recipe.yaml", "--run-dir", "out", *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    again = ["run", "recipe.yaml", "--run-dir", "out", "--set", "search.k=3"]
    done = gapft(*again, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    corrected = check_recipe({**yaml.safe_load(recipe), "search": {"k": 3}}, "test")
    assert RunDirectory.create_or_open(tmp_path / "out", corrected).recipe == corrected


def test_suggests_nearest_bundled_recipe(tmp_path: Path) -> None:
    done = gapft("run", "dmo", cwd=tmp_path)
    assert done.returncode == 2
    assert "unknown recipe 'dmo'" in done.stderr
    assert "did you mean 'demo'?" in done.stderr


def test_rejects_stage_without_run_directory(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(TINY)
    done = gapft("run", "--run-dir", "nowhere", "--only", "states", cwd=tmp_path)
    assert done.returncode == 2
    assert "nowhere: not a run directory" in done.stderr
    assert not (tmp_path / "nowhere").exists()


def test_run_without_arguments_explains_usage(tmp_path: Path) -> None:
    done = gapft("run", cwd=tmp_path)
    assert done.returncode == 2
    assert "RECIPE" in done.stderr
    assert "--task" in done.stderr


def test_rejects_unknown_option(tmp_path: Path) -> None:
    done = gapft("run", "demo", "--sett", "a=b", cwd=tmp_path)
    assert done.returncode == 2
    assert "--sett" in done.stderr


#: Every command that takes a path; ? stands for the path.
PATHS = {
    "run": ["run", "?"],
    "run --dry-run": ["run", "?", "--dry-run"],
    "run --run-dir": ["run", "demo", "--set", "data.task=nope", "--run-dir", "?"],
    "run --plugin": ["run", "demo", "--dry-run", "--plugin", "?"],
    "import --recipe": ["import", "R", "f.json", "--recipe", "?"],
    "run --include-path": ["run", "demo", "--dry-run", "--include-path", "?"],
    **{
        f"run --only {stage}": ["run", "?", "--only", stage]
        for stage in ("search", "states", "select", "train", "audit", "experiments", "report")
    },
    "run --run-dir --only": ["run", "--run-dir", "?", "--only", "states"],
    "demo --plugin": ["demo", "--plugin", "?"],
    "verify": ["verify", "?"],
    "gap": ["gap", "?"],
    "study": ["study", "?"],
    "study --run-dir": ["study", "s.yaml", "--dry-run", "--run-dir", "?"],
    "study --scaling": ["study", "--scaling", "?"],
    "study --scaling --out": ["study", "--scaling", "R", "--out", "?"],
    "export": ["export", "?", "--to", "trl", "--out", "O"],
    "export --out": ["export", "R", "--to", "trl", "--out", "?"],
    "compare": ["compare", "?", "?"],
    "compare --out": ["compare", "L", "L", "--out", "?"],
    "import": ["import", "?", "f.json"],
    "import, a file": ["import", "R", "?", *TINY_TASK],
    "rejudge": ["rejudge", "?", "--verifier", "option_letter"],
    "rejudge --out": ["rejudge", "L", "--verifier", "option_letter", "--out", "?"],
    "rejudge --include-path": ["rejudge", "L", "--verifier", "math", "--include-path", "?"],
    "list --plugin": ["list", "plugins", "--plugin", "?"],
    "judge": ["judge", "?"],
}
ODD = (
    "", ".", "/", "..", "d", "nope.yaml", "f.json", "f.json/x", "/proc", "/proc/self/mem",
    "/proc/x",
)  # fmt: skip
#: Valid paths: any folder may have tasks, and a new folder may become a run.
GOOD = {"run --include-path": ("", ".", "..", "d", "/", "/proc"), "run --run-dir": ("nope.yaml",)}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        (name, path)
        for name in PATHS
        for path in ODD
        if path != "/" or name not in ("compare", "rejudge")  # these search all of it
        if path not in GOOD.get(name, ())
    ],
)
def test_invalid_path_fails_without_files(
    name: str, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f.json").write_text("{}\n")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/kept").touch()
    (tmp_path / "s.yaml").write_text("name: s\ncells: {a: {recipe: nope}}\n")
    files_before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    words = [path if word == "?" else word for word in PATHS[name]]
    done = CliRunner().invoke(app, words)
    if isinstance(done.exception, SystemExit):
        assert done.exit_code == 2
    else:
        assert isinstance(done.exception, GapftError), repr(done.exception)
        assert done.exception.exit_status == 2
        assert "unexpectedly" not in str(done.exception)
    assert sorted(tmp_path.rglob("*")) == files_before


@pytest.mark.parametrize("words", [["run"], ["verify"], ["compare", "L"], ["study", "--scaling"]])
def test_rejects_impossible_file_name(words: list[str], tmp_path: Path) -> None:
    done = gapft(*words, "x" * 300, cwd=tmp_path)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("gapft: ")
    assert not list(tmp_path.iterdir())


def test_log_search_ignores_vanished_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below /proc. An unreadable folder is an error, since it may contain logs."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "b/samples_t.jsonl").touch()
    really, failing = os.scandir, FileNotFoundError(errno.ENOENT, "gone", str(tmp_path / "a"))

    def scandir(path: str) -> object:
        if str(path) == str(tmp_path / "a"):
            raise failing
        return really(path)

    monkeypatch.setattr(os, "scandir", scandir)
    [run] = find_runs(str(tmp_path))
    assert [log.path for log in run.logs] == [tmp_path / "b/samples_t.jsonl"]
    failing = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "a"))
    with pytest.raises(UserError, match="a: cannot be read: Permission denied"):
        find_runs(str(tmp_path))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "r"], "r: is a run directory"),
        (["run", "r"], "gapft run r/recipe.yaml --run-dir r"),
        (["study", "r"], "gapft run r/recipe.yaml --run-dir r"),
        (["run", "s"], "gapft study s/study.yaml --run-dir s"),
        (["study", "s"], "s: is a study's folder"),
        (["run", "."], ".: is a folder"),
        (["run", "nope.yaml"], "recipe nope.yaml: no such file"),
        (["study", "/nope"], "study /nope: no such file"),
        (["run", "dmo.yaml"], "did you mean 'demo'?"),
        (["run", "xyz"], "neither a file nor bundled; see gapft list recipes"),
        (["run", ""], "recipe '': expected a file or a bundled name"),
        (["run", "demo", "--run-dir", ""], "'': expected a folder"),
        (["run", "demo", "--run-dir", "s3://b/r"], "s3://b/r: expected a folder"),
        (["verify", ""], "'': expected a folder"),
    ],
)
def test_explains_wrong_recipe_argument(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in ("r/recipe.yaml", "s/study.yaml"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text("name: x\n")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, words)
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)
    assert "known:" not in str(done.exception)


def test_stored_recipe_continues_the_run(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(TINY)
    recipe = check_recipe({**yaml.safe_load(TINY)}, "test")
    run = RunDirectory.create_or_open(tmp_path / "r", recipe)
    recipe_file = find_recipe(str(run.path / "recipe.yaml"))
    again = check_recipe(read_recipe(recipe_file), "test")
    assert RunDirectory.create_or_open(run.path, again).recipe == recipe


def test_verify_rejects_run_without_search(tmp_path: Path) -> None:
    recipe = check_recipe(yaml.safe_load(TINY), "test")
    RunDirectory.create_or_open(tmp_path / "r", recipe)
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "r")])
    assert "verified" not in done.output
    assert isinstance(done.exception, GapftError)
    assert "nothing to verify yet" in str(done.exception)
    assert "not yet: the pool is not searched" in str(done.exception)
    cell = f"name: s\ncells: {{a: {{run: {tmp_path / 'r'}}}}}\n"
    (tmp_path / "study.yaml").write_text(cell)
    done = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert "nothing to verify yet" in str(done.exception)


def test_study_compares_attempts_before_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = "{a: {recipe: demo}, b: {recipe: demo, set: {data.task: gapft_demo_code}}}"
    (tmp_path / "study.yaml").write_text(f"name: s\ncells: {cells}\n")
    for more in ([], ["--dry-run"]):
        done = CliRunner().invoke(app, ["study", "study.yaml", *more])
        assert isinstance(done.exception, UserError)
        assert "'a' → 'b': episode.attempts 1 → 3" in str(done.exception)
        assert not (tmp_path / "runs").exists()
    same = cells.replace("data.task:", "episode.attempts: 1, episode.executions: 1, data.task:")
    (tmp_path / "study.yaml").write_text(f"name: s\ncells: {same}\n")
    done = CliRunner().invoke(app, ["study", "study.yaml", "--dry-run"])
    assert "episode" not in str(done.exception)


@pytest.mark.parametrize(
    ("key", "default", "other"),
    [
        ("episode.attempts", 1, 2),
        ("episode.executions", 1, 3),
        ("search.max_gen_toks", 24, 25),
        ("verifier.name", "option_letter", "math"),
    ],
)
def test_setting_the_default_changes_nothing(
    key: str, default: object, other: object, tmp_path: Path
) -> None:
    def build_recipe(*settings: Setting) -> Recipe:
        return check_recipe(yaml.safe_load(TINY), "test", settings)

    run = RunDirectory.create_or_open(tmp_path / "r", build_recipe())
    facts = {
        "episode": {"attempts": 1, "executions": 1},
        "decoding": {"max_gen_toks": 24, "until": []},
        "verifier": "option_letter",
    }
    run.update_manifest(lambda m: m["task"].update(facts))
    expected = build_recipe(Setting(key, default, "--set"))
    assert RunDirectory.create_or_open(run.path, expected).recipe == expected
    assert not RunDirectory.create_or_open(run.path, expected).changes
    changed = RunDirectory.create_or_open(
        run.path, build_recipe(Setting(key, other, "--set"))
    ).changes
    assert changed.search_changes == (describe_change(key, default, other),)
