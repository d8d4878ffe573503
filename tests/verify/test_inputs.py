"""A run's task, data, plugins and model are compared with the recorded ones."""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gapft_harness.cli.main import app
from gapft_harness.core.errors import UserError
from gapft_harness.hooks import manager as plugin_manager
from gapft_harness.stages.verify.run import verify
from tests.kit.command import gapft, succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.records import change_run, read_run
from tests.kit.runs import LETTERS_PLUGIN

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


def find_differences(workspace: Path, run: Path) -> list[str]:
    """Verify a run in this process; return the differences."""
    return verify(run, [str(workspace / "plugin.py")]).differences


TASK, POOL = "tasks/letters.yaml", "tasks/pool.jsonl"
EDITS = [
    (TASK, replace_text("verifier: contains", "verifier: boxed_math"), "verifier.*boxed_math"),
    (POOL, replace_text('"answer": "a"', '"answer": "e"'), r"pool: settings\.problems\.sha256"),
    ("plugin.py", replace_text("g in r", "g not in r"), r"pool: code\.verifier .*plugin\.py and"),
    ("model/config.json", replace_text('"silu"', '"relu"'), r"pool: .*model\.files\.config\.json"),
]


@pytest.mark.parametrize(("file", "edit", "message"), EDITS)
def test_verify_names_edited_inputs_until_restored(
    workspace: Path, run: Path, file: str, edit: Edit, message: str
) -> None:
    with edit_file(workspace / file, edit):
        lines = find_differences(workspace, run)
    assert any(re.search(message, line) for line in lines), lines
    assert find_differences(workspace, run) == []


@pytest.mark.parametrize("stage", ["train", "audit"])
def test_later_stage_refuses_searches_of_another_verifier(
    workspace: Path, run: Path, stage: str
) -> None:
    plugin = ("--plugin", workspace / "plugin.py")
    with edit_file(workspace / "plugin.py", replace_text("g in r", "g not in r")):
        done = gapft("run", run, "--only", stage, *plugin)
    assert done.returncode == 2, done.stderr
    text = " ".join(done.stderr.split())
    assert "run/pool: was made with other settings" in text
    assert "the plugin of verifier changed" in text
    assert "Traceback" not in done.stderr


def test_missing_inputs_are_not_compared(workspace: Path, run: Path) -> None:
    hidden = [(workspace / name, workspace / f"{name}-away") for name in ("tasks", "model")]
    for path, away in hidden:
        path.rename(away)
    try:
        succeed("run", run, "--only", "report", "--plugin", workspace / "plugin.py")
        verified = succeed("verify", run, "--plugin", workspace / "plugin.py").stdout
    finally:
        for path, away in hidden:
            away.rename(path)
    assert "not compared: task and data cannot be read here" in verified


def test_missing_plugin_error_names_recorded_file(
    workspace: Path, run: Path, tmp_path: Path
) -> None:
    file = workspace / "plugin.py"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    recorded = read_run(run)["plugins"]
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
    change_run(run, lambda m: m["plugins"]["verifier contains"].update({"from": "/no.py"}))
    change_run(run, lambda m: m["plugins"]["selector drawn"].update({"from": "/no.py"}))
    with pytest.raises(UserError, match=r"/no[.]py, a file that no longer exists"):
        verify(run)
