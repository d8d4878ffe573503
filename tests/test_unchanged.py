"""A finished command given again: short if nothing changed, the ordinary way if anything did."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import gapft_harness
from gapft_harness.cli import unchanged
from gapft_harness.cli.options import Options
from gapft_harness.cli.outcome import CommandScope, OutcomeRecorder
from gapft_harness.cli.summary import run_and_print
from gapft_harness.cli.unchanged import RecordedCommand, Watched, describe_run_command
from gapft_harness.store.store import STORE_VARIABLE
from tests.command import COMMON, gapft, succeed
from tests.training.letters import prepare

_CODE = "def question(document):\n    return document['question']\n"
RUN = Path("run")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run, and all that it was made from."""
    folder = tmp_path_factory.mktemp("unchanged")
    prepare(folder)
    recipe = (folder / "recipe.yaml").read_text()
    recipe = recipe.replace("[13, 21]", "[13]").replace("[gapft, all_verified]", "[gapft]")
    (folder / "recipe.yaml").write_text(recipe.replace("workers: 2", "workers: 1"))
    task = folder / "tasks" / "letters.yaml"
    text = task.read_text()
    task.write_text(text.replace('"{{question}}"', "!function letters_code.question"))
    (folder / "tasks" / "letters_code.py").write_text(_CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv(STORE_VARIABLE, raising=False)
        choice = _choice()
        run_and_print(choice, RUN, _asked(choice))
        time.sleep(2.1)  # until the file system's clock tells the run's folder from a later change
        run_and_print(choice, RUN, _asked(choice))
    return folder


@pytest.fixture
def folder(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, whose record is of the copy."""
    record = json.loads(next((finished / ".store" / "finished").iterdir()).read_text())
    copy = tmp_path / "copy"
    shutil.copytree(finished, copy)
    monkeypatch.chdir(copy)
    monkeypatch.delenv(STORE_VARIABLE, raising=False)
    monkeypatch.setattr(unchanged, "RECENT_CHANGE_NS", 0)
    of_shell = (
        *unchanged._SHELL_VARIABLES,
        "PYTEST_CURRENT_TEST",
    )  # differs between setup and call
    monkeypatch.setattr(unchanged, "_SHELL_VARIABLES", of_shell)
    moved = {
        kind: {path.replace(str(finished), str(copy)) for path in record[kind]}
        for kind in ("files", "folders")
    }
    assert {"run", "tasks", str(copy / "model")} <= moved["folders"]
    _record({path for path in moved["files"] if not os.path.isdir(path)}, moved["folders"])
    assert _recall() == "printed"
    return copy


def _choice() -> Options:
    return Options("recipe.yaml", plugin_files=["plugin.py"], include_paths=["tasks"])


def _asked(choice: Options) -> RecordedCommand:
    return describe_run_command("run", choice, choice.recipe, RUN)


def _record(files: set[str], folders: set[str]) -> None:
    watched = Watched(files, folders)
    _asked(_choice()).write_record(watched, watched.read_status(), "printed")


def _recall() -> str | None:
    return _asked(_choice()).recall_output()


def _again() -> None:
    """Record the present state as that of a finished command."""
    record = json.loads(_asked(_choice()).record_path.read_text())
    _record(set(record["files"]), set(record["folders"]))
    assert _recall() == "printed"


def _edit(path: Path) -> None:
    """Change one byte; size and time of the last write stay."""
    state, content = path.stat(), bytearray(path.read_bytes())
    content[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (state.st_size, state.st_mtime_ns)


def _replace(path: Path) -> None:
    """Put another file of the same size and time in its place."""
    beside = path.with_name("beside")
    shutil.copy2(path, beside)
    _edit(beside)
    beside.replace(path)


INPUTS = (
    "recipe.yaml", "plugin.py", "tasks/letters.yaml", "tasks/letters_code.py", "tasks/pool.jsonl",
    "tasks/audit.jsonl", "model/config.json", "model/model.safetensors",
)  # fmt: skip
OUTPUTS = (
    "run/manifest.json", "run/recipe.yaml", "run/pool/responses.parquet", "run/report/index.html",
    "run/report/results.json", "run/decisions/gapft-seed13.parquet",
    "run/adapters/gapft-seed13/adapter_model.safetensors",
)  # fmt: skip


@pytest.mark.parametrize("name", [*INPUTS, *OUTPUTS])
@pytest.mark.parametrize("change", [_edit, _replace, Path.unlink])
def test_a_changed_file_leads_the_ordinary_way(
    folder: Path, name: str, change: Callable[[Path], None]
) -> None:
    change(folder / name)
    assert _recall() is None


def test_without_a_change_the_output_is_recalled_again_and_again(folder: Path) -> None:
    assert _recall() == _recall() == "printed"
    os.utime(folder / "run" / "run.lock")  # every command touches it
    assert _recall() == "printed"


def test_the_real_run_was_recorded_with_every_input_and_output(finished: Path) -> None:
    [record] = (finished / ".store" / "finished").iterdir()
    looks = json.loads(record.read_text())["looks"]
    known = {os.path.realpath(finished / path) for path, look in looks.items() if look}
    assert {os.path.realpath(finished / name) for name in (*INPUTS, *OUTPUTS)} <= known


def test_a_link_that_leads_elsewhere_is_a_change(folder: Path) -> None:
    pool = folder / "tasks" / "pool.jsonl"
    pool.rename(folder / "one.jsonl")
    shutil.copy2(folder / "one.jsonl", folder / "two.jsonl")
    pool.symlink_to(folder / "one.jsonl")
    _again()
    pool.unlink()
    pool.symlink_to(folder / "two.jsonl")
    assert _recall() is None


@pytest.mark.parametrize("name", ["tasks/other.yaml", "model/chat_template.jinja", "run/more.txt"])
def test_a_new_file_is_a_change(folder: Path, name: str) -> None:
    (folder / name).write_text("new")
    assert _recall() is None


@pytest.mark.parametrize("name", ["GAPFT_DATA_DIR", "PYTHONPATH", "VLLM_ATTENTION_BACKEND"])
def test_another_environment_is_a_change(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, str(folder))
    assert _recall() is None


def test_another_python_is_a_change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version", "4.0")
    assert _recall() is None


def test_other_options_and_another_folder_have_no_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = Options("recipe.yaml", plugin_files=["plugin.py"], overrides=["search.k=5"])
    assert _asked(more).recall_output() is None
    monkeypatch.chdir(folder / "tasks")
    assert (
        describe_run_command("run", _choice(), "recipe.yaml", folder / RUN).recall_output() is None
    )


def test_an_installed_package_and_its_entry_points_are_watched(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "one-1.dist-info").mkdir(parents=True)
    points = site / "one-1.dist-info" / "entry_points.txt"
    points.write_text("[gapft_harness]\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(unchanged, "RECENT_CHANGE_NS", -(10**12))
    _again()
    _edit(points)
    assert _recall() is None
    _again()
    (site / "two-1.dist-info").mkdir()
    assert _recall() is None


def test_an_edit_of_this_package_is_a_change(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "package" / "deep" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text("a = 1")
    monkeypatch.setattr(gapft_harness, "__file__", str(tmp_path / "package" / "__init__.py"))
    _again()
    _edit(module)
    assert _recall() is None


def test_a_change_within_a_tick_of_the_clock_is_seen_by_the_hash(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, look = folder / "tasks" / "pool.jsonl", unchanged._read_status

    def stopped(path: str) -> list[int] | None:
        found = look(path)
        return found and [*found[:-1], 10**19 if path.endswith("pool.jsonl") else 0]

    monkeypatch.setattr(unchanged, "_read_status", stopped)
    _again()
    _edit(data)
    assert _recall() is None


def test_a_folder_that_changed_just_now_is_not_recorded(folder: Path) -> None:
    record = _asked(_choice()).record_path
    record.unlink()
    watched = Watched({str(folder)}, set())
    looks = watched.read_status()
    looks[str(folder)][-1] = time.time_ns() + 10**12
    _asked(_choice()).write_record(watched, looks, "printed")
    assert not record.exists()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"looks": 1, "files": [], "folders": 3}']
)
def test_a_record_that_is_not_understood_leads_the_ordinary_way(folder: Path, content: str) -> None:
    _asked(_choice()).record_path.write_text(content)
    assert _recall() is None


@pytest.mark.parametrize("when", ["while it worked", "never"])
def test_what_changed_while_the_command_worked_is_not_recorded(folder: Path, when: str) -> None:
    record = _asked(_choice()).record_path
    record.unlink()
    scope = CommandScope(Watched({"recipe.yaml"}, {"tasks"}), {}, RUN)
    outcome = OutcomeRecorder(_asked(_choice()), lambda: scope)
    if when == "while it worked":
        _edit(folder / "tasks" / "letters.yaml")
    outcome.write_record("printed")
    assert record.exists() == (when == "never")


def test_the_command_prints_its_last_lines_again_and_imports_little(tmp_path: Path) -> None:
    words = [
        "run", "--task", "gapft_demo", "--model", "dummy", "--model-args",
        "pretrained=bundled:demo", "--limit", 6, "--set", "search.k=3", "--run-dir", "r",
    ]  # fmt: skip
    plain = {"GAPFT_DATA_DIR": ""}
    first = succeed(*words, cwd=tmp_path, env=plain)
    time.sleep(2.1)
    second = succeed(*words, cwd=tmp_path, env=plain)
    third = succeed(*words, cwd=tmp_path, env=plain)
    assert third.stdout == second.stdout == first.stdout
    assert len(third.stderr.splitlines()) == 1, "nothing was done"
    command = [sys.executable, "-X", "importtime", "-m", "gapft_harness.cli.main", *map(str, words)]
    environment = {**os.environ, **COMMON, **plain}
    traced = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert traced.stdout == first.stdout
    imported = {line.split("|")[-1].strip().split(".")[0] for line in traced.stderr.splitlines()}
    assert "gapft_harness" in imported
    heavy = {"torch", "transformers", "lm_eval", "datasets", "pandas", "matplotlib", "pyarrow"}
    assert not heavy & imported
    (tmp_path / "r" / "report" / "index.html").unlink()
    assert len(gapft(*words, cwd=tmp_path, env=plain).stderr.splitlines()) > 1
    assert (tmp_path / "r" / "report" / "index.html").exists()
