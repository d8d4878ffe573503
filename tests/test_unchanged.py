"""A repeated command recalls its output if nothing changed, and runs normally otherwise."""

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
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run and all its inputs."""
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
        choice = build_options()
        run_and_print(choice, RUN, build_command(choice))
        time.sleep(2.1)  # until the file system's clock separates the run from a later change
        run_and_print(choice, RUN, build_command(choice))
    return folder


@pytest.fixture
def folder(finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the finished run with its own record."""
    record = json.loads(next((finished_run / ".store" / "finished").iterdir()).read_text())
    copy = tmp_path / "copy"
    shutil.copytree(finished_run, copy)
    monkeypatch.chdir(copy)
    monkeypatch.delenv(STORE_VARIABLE, raising=False)
    monkeypatch.setattr(unchanged, "RECENT_CHANGE_NS", 0)
    of_shell = (
        *unchanged._SHELL_VARIABLES,
        "PYTEST_CURRENT_TEST",
    )  # differs between setup and call
    monkeypatch.setattr(unchanged, "_SHELL_VARIABLES", of_shell)
    moved = {
        kind: {path.replace(str(finished_run), str(copy)) for path in record[kind]}
        for kind in ("files", "folders")
    }
    assert {"run", "tasks", str(copy / "model")} <= moved["folders"]
    record_command({path for path in moved["files"] if not os.path.isdir(path)}, moved["folders"])
    assert recall_output() == "printed"
    return copy


def build_options() -> Options:
    return Options("recipe.yaml", plugin_files=["plugin.py"], include_paths=["tasks"])


def build_command(choice: Options) -> RecordedCommand:
    return describe_run_command("run", choice, choice.recipe, RUN)


def record_command(files: set[str], folders: set[str]) -> None:
    watched = Watched(files, folders)
    build_command(build_options()).write_record(watched, watched.read_status(), "printed")


def recall_output() -> str | None:
    return build_command(build_options()).recall_output()


def record_again() -> None:
    """Record the current state as a finished command's."""
    record = json.loads(build_command(build_options()).record_path.read_text())
    record_command(set(record["files"]), set(record["folders"]))
    assert recall_output() == "printed"


def edit_byte(path: Path) -> None:
    """Change one byte; size and time of the last write stay."""
    state, content = path.stat(), bytearray(path.read_bytes())
    content[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (state.st_size, state.st_mtime_ns)


def replace_file(path: Path) -> None:
    """Put another file of the same size and time in its place."""
    beside = path.with_name("beside")
    shutil.copy2(path, beside)
    edit_byte(beside)
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
@pytest.mark.parametrize("change", [edit_byte, replace_file, Path.unlink])
def test_changed_file_runs_the_command(
    folder: Path, name: str, change: Callable[[Path], None]
) -> None:
    change(folder / name)
    assert recall_output() is None


def test_unchanged_output_is_recalled_repeatedly(folder: Path) -> None:
    assert recall_output() == recall_output() == "printed"
    os.utime(folder / "run" / "run.lock")  # every command touches it
    assert recall_output() == "printed"


def test_records_every_input_and_output_of_a_run(finished_run: Path) -> None:
    [record] = (finished_run / ".store" / "finished").iterdir()
    looks = json.loads(record.read_text())["looks"]
    recorded_paths = {os.path.realpath(finished_run / path) for path, look in looks.items() if look}
    assert {os.path.realpath(finished_run / name) for name in (*INPUTS, *OUTPUTS)} <= recorded_paths


def test_redirected_link_is_a_change(folder: Path) -> None:
    pool = folder / "tasks" / "pool.jsonl"
    pool.rename(folder / "one.jsonl")
    shutil.copy2(folder / "one.jsonl", folder / "two.jsonl")
    pool.symlink_to(folder / "one.jsonl")
    record_again()
    pool.unlink()
    pool.symlink_to(folder / "two.jsonl")
    assert recall_output() is None


@pytest.mark.parametrize("name", ["tasks/other.yaml", "model/chat_template.jinja", "run/more.txt"])
def test_new_file_is_a_change(folder: Path, name: str) -> None:
    (folder / name).write_text("new")
    assert recall_output() is None


@pytest.mark.parametrize("name", ["GAPFT_DATA_DIR", "PYTHONPATH", "VLLM_ATTENTION_BACKEND"])
def test_other_environment_is_a_change(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, str(folder))
    assert recall_output() is None


def test_other_python_is_a_change(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version", "4.0")
    assert recall_output() is None


def test_other_options_and_folders_have_no_record(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = Options("recipe.yaml", plugin_files=["plugin.py"], overrides=["search.k=5"])
    assert build_command(more).recall_output() is None
    monkeypatch.chdir(folder / "tasks")
    assert (
        describe_run_command("run", build_options(), "recipe.yaml", folder / RUN).recall_output()
        is None
    )


def test_installed_packages_are_watched(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "one-1.dist-info").mkdir(parents=True)
    points = site / "one-1.dist-info" / "entry_points.txt"
    points.write_text("[gapft_harness]\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(unchanged, "RECENT_CHANGE_NS", -(10**12))
    record_again()
    edit_byte(points)
    assert recall_output() is None
    record_again()
    (site / "two-1.dist-info").mkdir()
    assert recall_output() is None


def test_edited_package_is_a_change(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "package" / "deep" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text("a = 1")
    monkeypatch.setattr(gapft_harness, "__file__", str(tmp_path / "package" / "__init__.py"))
    record_again()
    edit_byte(module)
    assert recall_output() is None


def test_hash_finds_changes_within_a_clock_tick(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, look = folder / "tasks" / "pool.jsonl", unchanged._read_status

    def freeze_time(path: str) -> list[int] | None:
        fingerprint = look(path)
        return fingerprint and [*fingerprint[:-1], 10**19 if path.endswith("pool.jsonl") else 0]

    monkeypatch.setattr(unchanged, "_read_status", freeze_time)
    record_again()
    edit_byte(data)
    assert recall_output() is None


def test_recently_changed_folder_is_not_recorded(folder: Path) -> None:
    record = build_command(build_options()).record_path
    record.unlink()
    watched = Watched({str(folder)}, set())
    looks = watched.read_status()
    looks[str(folder)][-1] = time.time_ns() + 10**12
    build_command(build_options()).write_record(watched, looks, "printed")
    assert not record.exists()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"looks": 1, "files": [], "folders": 3}']
)
def test_unreadable_record_runs_the_command(folder: Path, content: str) -> None:
    build_command(build_options()).record_path.write_text(content)
    assert recall_output() is None


@pytest.mark.parametrize("when", ["while it worked", "never"])
def test_changes_during_the_command_prevent_recording(folder: Path, when: str) -> None:
    record = build_command(build_options()).record_path
    record.unlink()
    scope = CommandScope(Watched({"recipe.yaml"}, {"tasks"}), {}, RUN)
    outcome = OutcomeRecorder(build_command(build_options()), lambda: scope)
    if when == "while it worked":
        edit_byte(folder / "tasks" / "letters.yaml")
    outcome.write_record("printed")
    assert record.exists() == (when == "never")


def test_recalls_last_lines_with_few_imports(tmp_path: Path) -> None:
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
