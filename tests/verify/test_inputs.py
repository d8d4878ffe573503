"""Every command compares a run's task, data, plugins and model with the recorded ones."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gapft_harness.cli.main import app
from gapft_harness.core.errors import UserError
from gapft_harness.hooks import manager as plugin_manager
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.integrity.inputs import (
    compare_inputs,
)
from gapft_harness.stages.search.data import check_splits
from gapft_harness.stages.search.stage import search_split
from gapft_harness.stages.verify import run as verifying
from gapft_harness.stages.verify.run import verify
from tests.kit.command import gapft, succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.runs import LETTERS_PLUGIN
from tests.kit.tampering import change_manifest

Edit = Callable[[str], str]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a plugin and a finished run; tests edit its inputs and restore them."""
    folder = tmp_path_factory.mktemp("verify")
    command = prepare_letters_run(folder, LETTERS_PLUGIN)
    settings = ("statistics.replicates=20", "conditions=[drawn]", "seeds=[13]")
    overrides = [part for setting in settings for part in ("--set", setting)]
    succeed(*command, "run", *overrides, cwd=folder)
    return folder


@pytest.fixture
def run(workspace: Path, tmp_path: Path) -> Path:
    """A copy of the run to change."""
    return Path(shutil.copytree(workspace / "run", tmp_path / "run"))


@contextlib.contextmanager
def edit_file(path: Path, edit: Edit) -> Iterator[None]:
    """Edit a text file while the block runs, then restore it."""
    before = path.read_text()
    after = edit(before)
    assert after != before
    path.write_text(after)
    plugin_manager._load_cached.cache_clear()
    try:
        yield
    finally:
        path.write_text(before)
        plugin_manager._load_cached.cache_clear()


def replace_text(old: str, new: str) -> Edit:
    return lambda text: text.replace(old, new)


def check_inputs(
    workspace: Path, run: Path, include_paths: tuple[str, ...] = (), plugin: bool = True
) -> list[str]:
    """Compare a run's inputs in this process; return those that could not be checked."""
    files = [str(workspace / "plugin.py")] if plugin else []
    run_directory, plugins = RunDirectory.open(run), load_plugins(files)

    def read_splits(paths: Any) -> dict[str, Any]:
        return check_splits(run_directory.recipe, plugins, paths)[2]

    return compare_inputs(
        run_directory, run_directory.manifest(), plugins, include_paths, read_splits
    ).unchecked


TASK, POOL = "tasks/letters.yaml", "tasks/pool.jsonl"
EDITS = [
    (
        TASK,
        replace_text("verifier: contains", "verifier: boxed_math"),
        r"gapft\.verifier contains → boxed_math",
    ),
    (TASK, replace_text('"{{question}}"', '"{{question}}!"'), "task, doc_to_text .*question}}!"),
    (
        TASK,
        replace_text("max_gen_toks: 12", 'max_gen_toks: 12, until: ["b"]'),
        r"until \[\] → \[\"b\"\]",
    ),
    (TASK, replace_text("keep: shortest", "keep: first"), "gapft.keep shortest → first"),
    (
        POOL,
        lambda text: text[: text.rindex('{"id')],
        r"data, pool: 60 problems .* → 59 problems",
    ),
    (POOL, replace_text('"answer": "a"', '"answer": "e"'), r"data, pool: 60 problems \("),
    (
        POOL,
        lambda text: text[:-9],
        r"pool\.jsonl: changed.*line 60",
    ),
    (
        "plugin.py",
        replace_text("g in r", "g not in r"),
        r"plugin, verifier contains: its file: \w+ → \w+",
    ),
    (
        "plugin.py",
        replace_text("verified, n", "recovered, n"),
        "plugin, selector drawn: its file: ",
    ),
    ("plugin.py", lambda text: f"{text}# a remark\n", "plugin, verifier contains: its file: "),
    ("model/config.json", replace_text('"silu"', '"relu"'), r"model, .*config\.json: \w+ → \w+"),
    ("model/tokenizer.json", lambda text: text + " ", r"model, .*tokenizer\.json: "),
]


@pytest.mark.parametrize(("file", "edit", "message"), EDITS)
def test_detects_edited_inputs_until_restored(
    workspace: Path, run: Path, file: str, edit: Edit, message: str
) -> None:
    with edit_file(workspace / file, edit), pytest.raises(UserError, match=message) as refused:
        check_inputs(workspace, run)
    assert "inputs of the run changed" in str(refused.value)
    assert "restore them" in str(refused.value)
    assert check_inputs(workspace, run) == []


def test_detects_changed_weights_of_same_size(workspace: Path, run: Path) -> None:
    weights = workspace / "model/model.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(before[:-4] + bytes(4))
    try:
        with pytest.raises(UserError, match=r"model, weights in .*: \w+ → \w+"):
            check_inputs(workspace, run)
    finally:
        weights.write_bytes(before)
    assert check_inputs(workspace, run) == []


def test_rewritten_weights_without_hash_are_unchecked(workspace: Path, run: Path) -> None:
    size = (workspace / "model/model.safetensors").stat().st_size
    recorded = {"model.safetensors": [size, 1]}
    change_manifest(run, lambda manifest: manifest["rests_on"]["model"].update(weights=recorded))
    assert check_inputs(workspace, run) == []
    change_manifest(run, lambda manifest: manifest["source"].pop("weights_sha256"))
    (line,) = check_inputs(workspace, run)
    assert line.startswith(
        f"not checked: the weights in {workspace / 'model'}; they were written again"
    )


@pytest.mark.parametrize("recorded_folder", [None, "/another"])
def test_compares_data_after_data_dir_change(
    workspace: Path, run: Path, monkeypatch: pytest.MonkeyPatch, recorded_folder: str | None
) -> None:
    change_manifest(run, lambda manifest: manifest["rests_on"].update(data_dir=recorded_folder))
    change_manifest(run, lambda manifest: manifest["rests_on"]["data"]["pool"].update(problems=7))
    monkeypatch.delenv("GAPFT_DATA_DIR", raising=False)
    assert check_inputs(workspace, run) == []
    monkeypatch.setenv("GAPFT_DATA_DIR", "/elsewhere")
    with pytest.raises(UserError, match=r"data, pool: 7 problems .* → 60 problems"):
        check_inputs(workspace, run)


def test_verify_lists_compared_inputs_and_unreadable_task(
    workspace: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = [str(workspace / "plugin.py")]
    parts = "plugins (selector drawn, verifier contains), model"
    summary = f"unchanged since the search: the files of task and data, {parts}"
    assert summary in verify(run, plugin).checked

    def fail(*_: Any) -> Any:
        raise ValueError("mine")

    monkeypatch.setattr(verifying, "check_splits", fail)
    with (
        edit_file(workspace / TASK, replace_text("12}", "11}")),
        pytest.raises(UserError, match=r"letters.yaml: changed, and cannot be read now: .*mine"),
    ):
        verify(run, plugin)


#: Adds a calibration split, with its file, to the task's data.
ADD_SPLIT = replace_text("test: audit.jsonl}", "test: audit.jsonl, later: audit.jsonl}")


@pytest.mark.parametrize(
    ("file", "edit"),
    [
        (TASK, lambda text: f"# a remark\n{text}"),
        (TASK, lambda text: ADD_SPLIT(f"{text}\nvalidation_split: later\n")),
        ("model/README.md", lambda text: "x"),
    ],
)
def test_ignores_irrelevant_edits(workspace: Path, run: Path, file: str, edit: Edit) -> None:
    (workspace / "model/README.md").touch()
    with edit_file(workspace / file, edit):
        assert check_inputs(workspace, run) == []


def test_compares_task_in_different_folder(workspace: Path, run: Path) -> None:
    shutil.copytree(workspace / "tasks", run / "others")
    others = (str(run / "others"),)
    assert check_inputs(workspace, run, others) == []
    with (
        edit_file(run / "others" / "letters.yaml", replace_text("12}", "13}")),
        pytest.raises(UserError, match="max_gen_toks 12 → 13"),
    ):
        check_inputs(workspace, run, others)


def test_commands_reject_edited_task_until_restored(workspace: Path, run: Path) -> None:
    plugin = ("--plugin", workspace / "plugin.py")
    with edit_file(workspace / TASK, replace_text("max_gen_toks: 12", "max_gen_toks: 11")):
        for command in (("run", run, "--only", "report"), ("verify", run)):
            done = gapft(*command, *plugin)
            assert done.returncode == 2, done.stderr
            assert "generation_kwargs.max_gen_toks 12 → 11" in done.stderr
            assert "Traceback" not in done.stderr
    succeed("run", run, "--only", "report", *plugin)


def test_reports_missing_inputs_as_unchecked(workspace: Path, run: Path) -> None:
    hidden = [(workspace / name, workspace / f"{name}-away") for name in ("tasks", "model")]
    for path, away in hidden:
        path.rename(away)
    try:
        done = succeed("run", run, "--only", "report", "--plugin", workspace / "plugin.py")
        verified = succeed("verify", run, "--plugin", workspace / "plugin.py").stdout
    finally:
        for path, away in hidden:
            away.rename(path)
    output = " ".join(done.stderr.split())
    for line in (
        f"not checked, because it is not on this machine: {workspace}/tasks/audit.jsonl",
        f"not checked, because it is not on this machine: the model {workspace}/model",
    ):
        assert line in output
    assert (
        f"not checked, because it is not on this machine: {workspace}/tasks/audit.jsonl" in verified
    )
    assert "unchanged since the search: plugins (selector drawn, verifier contains)\n" in verified


def test_lists_plugins_not_loaded(workspace: Path, run: Path) -> None:
    assert check_inputs(workspace, run, plugin=False) == [
        f"not checked, because its plugin is not loaded (--plugin): {part}"
        for part in ("selector drawn", "verifier contains")
    ]


def test_job_rejects_edit_made_before_its_start(workspace: Path, run: Path) -> None:
    """The command itself checked the inputs before the edit."""
    shutil.rmtree(run / "audit")
    arguments = (str(run), "audit", [str(workspace / "plugin.py")], [str(workspace / "tasks")])
    with (
        edit_file(workspace / TASK, replace_text("12}", "11}")),
        pytest.raises(UserError, match="max_gen_toks 12 → 11"),
    ):
        search_split(*arguments)  # type: ignore[arg-type]
    with (
        edit_file(workspace / "plugin.py", replace_text("g in r", "g not in r")),
        pytest.raises(UserError, match="plugin, verifier contains: its file: "),
    ):
        search_split(*arguments)  # type: ignore[arg-type]
    assert not (run / "audit" / "responses.parquet").exists()


def test_states_command_does_not_import_torch(workspace: Path, run: Path) -> None:
    program = (
        "import sys; from gapft_harness.cli.runs import Options, run_stages_alone; "
        f"given = Options(plugin_files=[{str(workspace / 'plugin.py')!r}]); "
        f"run_stages_alone(['states'], {str(run)!r}, given); "
        "assert not {'torch', 'lm_eval'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_missing_plugin_error_names_recorded_file(
    workspace: Path, run: Path, tmp_path: Path
) -> None:
    file = workspace / "plugin.py"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    recorded = json.loads((run / "manifest.json").read_text())["plugins"]
    assert recorded["verifier contains"] == {"from": str(file), "sha256": digest}
    missing = f"give --plugin {file} (sha256 {digest[:12]}): it provides the "
    recipe = run / "recipe.yaml"
    for command in (
        ["verify", run],
        ["run", recipe, "--run-dir", run, "--include-path", workspace / "tasks", "--dry-run"],
    ):
        done = CliRunner().invoke(app, [*map(str, command)])
        assert isinstance(done.exception, UserError), command
        assert missing in str(done.exception), command
    change_manifest(run, lambda m: m["plugins"]["verifier contains"].update({"from": "/no.py"}))
    change_manifest(run, lambda m: m["plugins"]["selector drawn"].update({"from": "/no.py"}))
    with pytest.raises(UserError, match=r"/no[.]py, a file that no longer exists"):
        verify(run)
