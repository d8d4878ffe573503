"""Every command holds a run to its task, data, plugins and model: what was edited is named."""

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
from gapft_harness.stages.integrity import inputs
from gapft_harness.stages.integrity.inputs import (
    compare_files,
    compare_inputs,
    read_file_states,
    read_fixed_inputs,
    read_model_state,
)
from gapft_harness.stages.search.data import check_splits
from gapft_harness.stages.search.stage import search_split
from gapft_harness.stages.verify import run as verifying
from gapft_harness.stages.verify.run import verify
from tests.command import gapft, succeed
from tests.verify.tampering import change_manifest

pytestmark = pytest.mark.xdist_group("verify")

Edit = Callable[[str], str]


@contextlib.contextmanager
def edited(path: Path, edit: Edit) -> Iterator[None]:
    """A text file that is another while the block runs."""
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


def swap(old: str, new: str) -> Edit:
    return lambda text: text.replace(old, new)


def held(
    made: Path, run: Path, include_paths: tuple[str, ...] = (), plugin: bool = True
) -> list[str]:
    """Holds a run, in this process; gives what could not be checked."""
    files = [str(made / "plugin.py")] if plugin else []
    opened, plugins = RunDirectory.open(run), load_plugins(files)

    def read(paths: Any) -> dict[str, Any]:
        return check_splits(opened.recipe, plugins, paths)[2]

    return compare_inputs(opened, opened.manifest(), plugins, include_paths, read).unchecked


TASK, POOL = "tasks/letters.yaml", "tasks/pool.jsonl"
EDITS = [
    (
        TASK,
        swap("verifier: contains", "verifier: boxed_math"),
        r"gapft\.verifier contains → boxed_math",
    ),
    (TASK, swap('"{{question}}"', '"{{question}}!"'), "task, doc_to_text .*question}}!"),
    (TASK, swap("max_gen_toks: 12", 'max_gen_toks: 12, until: ["b"]'), r"until \[\] → \[\"b\"\]"),
    (TASK, swap("keep: shortest", "keep: first"), "gapft.keep shortest → first"),
    (
        POOL,
        lambda text: text[: text.rindex('{"id')],
        r"data, pool: 60 problems .* → 59 problems",
    ),
    (POOL, swap('"answer": "a"', '"answer": "e"'), r"data, pool: 60 problems \("),
    (
        POOL,
        lambda text: text[:-9],
        r"pool\.jsonl: changed, and cannot be read now: .*line 60.*torn",
    ),
    ("plugin.py", swap("g in r", "g not in r"), r"plugin, verifier contains: its file: \w+ → \w+"),
    ("plugin.py", swap("verified, n", "recovered, n"), "plugin, selector drawn: its file: "),
    ("plugin.py", lambda text: f"{text}# a remark\n", "plugin, verifier contains: its file: "),
    ("model/config.json", swap('"silu"', '"relu"'), r"model, .*config\.json: \w+ → \w+"),
    ("model/tokenizer.json", lambda text: text + " ", r"model, .*tokenizer\.json: "),
]


@pytest.mark.parametrize(("file", "edit", "said"), EDITS)
def test_what_was_edited_is_named_and_restoring_helps(
    made: Path, run: Path, file: str, edit: Edit, said: str
) -> None:
    with edited(made / file, edit), pytest.raises(UserError, match=said) as refused:
        held(made, run)
    assert "inputs of the run changed" in str(refused.value)
    assert "restore them" in str(refused.value)
    assert held(made, run) == []


def test_other_weights_are_noticed_though_their_size_is_the_same(made: Path, run: Path) -> None:
    weights = made / "model/model.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(before[:-4] + bytes(4))
    try:
        with pytest.raises(UserError, match=r"model, weights in .*: \w+ → \w+"):
            held(made, run)
    finally:
        weights.write_bytes(before)
    assert held(made, run) == []


def test_weights_without_a_hash_that_were_written_again_are_not_called_the_same(
    made: Path, run: Path
) -> None:
    size = (made / "model/model.safetensors").stat().st_size
    then = {"model.safetensors": [size, 1]}
    change_manifest(run, lambda manifest: manifest["rests_on"]["model"].update(weights=then))
    assert held(made, run) == []
    change_manifest(run, lambda manifest: manifest["source"].pop("weights_sha256"))
    (line,) = held(made, run)
    assert line.startswith(f"not checked: the weights in {made / 'model'}; they were written again")


def test_a_model_that_no_hub_has_is_not_here_and_a_fault_is_none_of_that(
    made: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = RunDirectory.open(run).recipe
    for name in ("nobody/has-this", "/no/such/folder"):
        recipe.model.args["pretrained"] = name
        assert read_model_state(recipe) is None

    def broken(arguments: Any) -> Path:
        raise RuntimeError("a fault")

    monkeypatch.setattr(inputs, "find_weights_folder", broken)
    with pytest.raises(RuntimeError, match="a fault"):
        read_model_state(recipe)


def test_an_edited_plugin_is_told_once_though_a_file_changed_too(made: Path, run: Path) -> None:
    with (
        edited(made / "plugin.py", swap("g in r", "g not in r")),
        edited(made / POOL, swap('"answer": "a"', '"answer": "e"')),
        pytest.raises(UserError) as refused,
    ):
        held(made, run)
    assert str(refused.value).count("verifier contains: its file") == 1
    assert "data, pool: 60 problems" in str(refused.value)


@pytest.mark.parametrize("then", [None, "/another"])
def test_data_that_are_looked_for_elsewhere_are_compared(
    made: Path, run: Path, monkeypatch: pytest.MonkeyPatch, then: str | None
) -> None:
    change_manifest(run, lambda manifest: manifest["rests_on"].update(data_dir=then))
    change_manifest(run, lambda manifest: manifest["rests_on"]["data"]["pool"].update(problems=7))
    monkeypatch.delenv("GAPFT_DATA_DIR", raising=False)
    assert held(made, run) == []
    monkeypatch.setenv("GAPFT_DATA_DIR", "/elsewhere")
    with pytest.raises(UserError, match=r"data, pool: 7 problems .* → 60 problems"):
        held(made, run)


def test_verify_says_what_it_compared_and_whose_fault_an_unreadable_task_is(
    made: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = [str(made / "plugin.py")]
    parts = "plugins (selector drawn, verifier contains), model"
    said = f"unchanged since the search: the files of task and data, {parts}"
    assert said in verify(run, plugin).checked

    def broken(*_: Any) -> Any:
        raise ValueError("mine")

    monkeypatch.setattr(verifying, "check_splits", broken)
    with (
        edited(made / TASK, swap("12}", "11}")),
        pytest.raises(UserError, match=r"letters.yaml: changed, and cannot be read now: .*mine"),
    ):
        verify(run, plugin)


#: A split to calibrate on, its file in the task's data.
LATER = swap("test: audit.jsonl}", "test: audit.jsonl, later: audit.jsonl}")


@pytest.mark.parametrize(
    ("file", "edit"),
    [
        (TASK, lambda text: f"# a remark\n{text}"),
        (TASK, lambda text: LATER(f"{text}\nvalidation_split: later\n")),
        ("model/README.md", lambda text: "x"),
    ],
)
def test_what_changes_nothing_may_be_edited(made: Path, run: Path, file: str, edit: Edit) -> None:
    (made / "model/README.md").touch()
    with edited(made / file, edit):
        assert held(made, run) == []


def test_a_task_of_the_same_name_in_another_folder_is_compared(made: Path, run: Path) -> None:
    shutil.copytree(made / "tasks", run / "others")
    others = (str(run / "others"),)
    assert held(made, run, others) == []
    with (
        edited(run / "others" / "letters.yaml", swap("12}", "13}")),
        pytest.raises(UserError, match="max_gen_toks 12 → 13"),
    ):
        held(made, run, others)


def test_the_commands_refuse_an_edited_task_and_go_on_when_it_is_restored(
    made: Path, run: Path
) -> None:
    plugin = ("--plugin", made / "plugin.py")
    with edited(made / TASK, swap("max_gen_toks: 12", "max_gen_toks: 11")):
        for command in (("run", run, "--only", "report"), ("verify", run)):
            done = gapft(*command, *plugin)
            assert done.returncode == 2, done.stderr
            assert "generation_kwargs.max_gen_toks 12 → 11" in done.stderr
            assert "Traceback" not in done.stderr
    succeed("run", run, "--only", "report", *plugin)


def test_where_task_data_and_model_are_not_it_is_said_and_no_more(made: Path, run: Path) -> None:
    hidden = [(made / name, made / f"{name}-away") for name in ("tasks", "model")]
    for path, away in hidden:
        path.rename(away)
    try:
        done = succeed("run", run, "--only", "report", "--plugin", made / "plugin.py")
        verified = succeed("verify", run, "--plugin", made / "plugin.py").stdout
    finally:
        for path, away in hidden:
            away.rename(path)
    told = " ".join(done.stderr.split())
    for line in (
        f"not checked, because it is not on this machine: {made}/tasks/audit.jsonl",
        f"not checked, because it is not on this machine: the model {made}/model",
    ):
        assert line in told
    assert f"not checked, because it is not on this machine: {made}/tasks/audit.jsonl" in verified
    assert "unchanged since the search: plugins (selector drawn, verifier contains)\n" in verified


def test_plugins_that_are_not_given_are_named(made: Path, run: Path) -> None:
    assert held(made, run, plugin=False) == [
        f"not checked, because its plugin is not loaded (--plugin): {part}"
        for part in ("selector drawn", "verifier contains")
    ]


def test_a_run_that_does_not_say_what_it_rests_on_is_damaged(run: Path) -> None:
    change_manifest(run, lambda manifest: manifest.pop("rests_on"))
    opened = RunDirectory.open(run)
    with pytest.raises(UserError, match=r"manifest.json: key 'rests_on': field required"):
        read_fixed_inputs(opened, opened.manifest())


@pytest.mark.parametrize("found", [1, None])
def test_a_run_of_another_format_is_refused(run: Path, found: int | None) -> None:
    change_manifest(run, lambda manifest: manifest.update({"format": found}))
    with pytest.raises(
        UserError, match=rf"format {found}; this version .* reads format \d+: use the"
    ):
        RunDirectory.open(run).manifest()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rests_on", [1]),
        ("rests_on.plugins", None),
        ("rests_on.plugins.lone", "x"),
        ("rests_on.files", ["a"]),
        ("rests_on.files.a", [1]),
        ("rests_on.model", "x"),
        ("rests_on.data.pool", {}),
        ("source", None),
    ],
)
def test_a_damaged_section_is_told_by_its_key(run: Path, key: str, value: Any) -> None:
    def damage(manifest: dict[str, Any]) -> None:
        *parents, last = key.split(".")
        for name in parents:
            manifest = manifest[name]
        manifest[last] = value

    change_manifest(run, damage)
    opened = RunDirectory.open(run)
    with pytest.raises(UserError, match=rf"manifest.json: key '{key}"):
        read_fixed_inputs(opened, opened.manifest())


def test_a_job_that_starts_after_an_edit_refuses_it(made: Path, run: Path) -> None:
    """The command's own look came before the edit."""
    shutil.rmtree(run / "audit")
    given = (str(run), "audit", [str(made / "plugin.py")], [str(made / "tasks")])
    with (
        edited(made / TASK, swap("12}", "11}")),
        pytest.raises(UserError, match="max_gen_toks 12 → 11"),
    ):
        search_split(*given)  # type: ignore[arg-type]
    with (
        edited(made / "plugin.py", swap("g in r", "g not in r")),
        pytest.raises(UserError, match="plugin, verifier contains: its file: "),
    ):
        search_split(*given)  # type: ignore[arg-type]
    assert not (run / "audit" / "responses.parquet").exists()


def test_large_files_are_not_read_again_unless_they_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_ALWAYS_HASHED", 4 << 20)
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(b"x")
    large.write_bytes(bytes(5 << 20))
    recorded = json.loads(json.dumps(read_file_states([small, large, tmp_path / "absent"])))
    assert compare_files(recorded) == ([], [])
    recorded[str(large)][2] = "not looked at"
    assert compare_files(recorded) == ([], [])
    large.write_bytes(b"y" + bytes((5 << 20) - 1))
    small.write_bytes(b"z")
    assert compare_files(recorded) == ([str(large), str(small)], [])
    small.unlink()
    assert compare_files(recorded) == ([str(large)], [str(small)])


def test_the_look_at_a_finished_run_loads_no_torch(made: Path, run: Path) -> None:
    program = (
        "import sys; from gapft_harness.cli.runs import Options, run_stages_alone; "
        f"given = Options(plugin_files=[{str(made / 'plugin.py')!r}]); "
        f"run_stages_alone(['states'], {str(run)!r}, given); "
        "assert not {'torch', 'lm_eval'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_where_a_plugin_came_from_is_said_by_all_that_miss_it(
    made: Path, run: Path, tmp_path: Path
) -> None:
    file = made / "plugin.py"
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    recorded = json.loads((run / "manifest.json").read_text())["plugins"]
    assert recorded["verifier contains"] == {"from": str(file), "sha256": digest}
    missing = f"give --plugin {file} (sha256 {digest[:12]}): it provides the "
    recipe = run / "recipe.yaml"
    for command in (
        ["verify", run],
        ["run", recipe, "--run-dir", run, "--include-path", made / "tasks", "--dry-run"],
    ):
        done = CliRunner().invoke(app, [*map(str, command)])
        assert isinstance(done.exception, UserError), command
        assert missing in str(done.exception), command
    change_manifest(run, lambda m: m["plugins"]["verifier contains"].update({"from": "/no.py"}))
    change_manifest(run, lambda m: m["plugins"]["selector drawn"].update({"from": "/no.py"}))
    with pytest.raises(UserError, match=r"/no[.]py, a file that no longer exists"):
        verify(run)


def test_a_card_names_the_plugin_that_its_run_needs(made: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256((made / "plugin.py").read_bytes()).hexdigest()
    for kind in ("adapters", "dataset"):
        out = tmp_path / kind
        plugin = ("--plugin", str(made / "plugin.py"))
        words = ["export", str(made / "run"), "--to", kind, "--out", str(out), *plugin]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.exception
        (card, *_) = out.rglob("README.md")
        assert f"plugin.py (sha256 {digest})" in card.read_text()
        assert str(made) not in card.read_text()
    assert (
        "--run-dir NEW_FOLDER --plugin plugin.py"
        in next((tmp_path / "adapters").rglob("README.md")).read_text()
    )
