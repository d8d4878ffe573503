"""Trackers through the real command: what they are told, what they may not change, and failures."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.files import sha256
from gapft_harness.core.identities import content_hash
from gapft_harness.hooks.tracking import Tracking
from gapft_harness.stages.train.job import TRACKING_WARNINGS, train_arms
from gapft_harness.stages.train.stored import MADE_FROM
from gapft_harness.stages.verify.run import verify
from gapft_harness.store.store import STORE_VARIABLE
from gapft_harness.training.speed import measure_matrix_peak
from tests.command import gapft, succeed
from tests.training.letters import prepare

pytestmark = pytest.mark.xdist_group("trackers")

ROOT = Path(__file__).parents[2]
ARM = "gapft-seed13"
VALUES = {
    "loss",
    "grad_norm",
    "learning_rate",
    "supervised_tokens_per_second",
    "tokens_per_second",
    "share_of_peak",
}

#: Takes two steps, then fails.
FAILING = """
from gapft_harness import hookimpl


class Failing:
    def __init__(self, arm):
        if "closed" in arm.run:
            raise ConnectionError("no such server")
        arm.folder.mkdir(exist_ok=True)
        with (arm.folder / "opened").open("a") as file:
            file.write("once ")

    def log(self, values, step):
        if step == 3:
            raise ConnectionError("the line is dead")

    def finish(self):
        raise ConnectionError("the line is still dead")


@hookimpl
def register_trackers(register):
    register("failing", Failing)
"""

#: Notes at its end whether the adapter's folder is whole.
LAST = """
from gapft_harness import hookimpl


class Last:
    def __init__(self, arm):
        self.run, self.name = arm.folder.parent, arm.arm.name

    def log(self, values, step):
        pass

    def finish(self):
        adapter = self.run / "adapters" / self.name
        (self.run / "seen").write_text(str((adapter / "training.json").is_file()))


@hookimpl
def register_trackers(register):
    register("last", Last)
"""

#: A trainer that knows nothing of trackers.
TRAINER = """
from gapft_harness import hookimpl
from gapft_harness.training.lora import train
import dataclasses
from gapft_harness.hooks.tracking import Tracking


def plain(job):
    return train(dataclasses.replace(job, tracking=Tracking()))


@hookimpl
def register_trainers(register):
    register("plain", plain)
"""


def documented() -> str:
    """The plugin of docs/plugins.md, as it stands there."""
    text = (ROOT / "docs" / "plugins.md").read_text()
    return re.findall(r"## A tracker in one file.*?```python[^\n]*\n(.*?)```", text, re.DOTALL)[0]


@pytest.fixture(autouse=True)
def nothing_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test trains: none takes another's adapter, of which nothing is tracked."""
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store of its own"))


@pytest.fixture(scope="module")
def selected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that has come as far as its selections: one arm of 5 steps."""
    folder = tmp_path_factory.mktemp("trackers")
    prepare(folder)
    content = yaml.safe_load((folder / "recipe.yaml").read_text())
    content["conditions"], content["seeds"], content["executor"] = ["gapft"], [13], {"workers": 1}
    content["budget"] = {"n": 4}
    content["training"] |= {"repetitions": 20, "warmup_steps": 2}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    files = {"lines": documented(), "failing": FAILING, "last": LAST, "plain": TRAINER}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    plugin = ("--plugin", "plugin.py")
    succeed(
        *("run", "recipe.yaml", "--run-dir", "run", "--include-path", "tasks", *plugin),
        *("--only", "search", "--only", "states", "--only", "select"),
        cwd=folder,
    )
    return folder


def run_with(selected: Path, name: str, change: dict[str, Any]) -> Path:
    """A copy of the run whose recipe is changed; sections are merged."""
    run = selected / name
    shutil.copytree(selected / "run", run)
    content = yaml.safe_load((run / "recipe.yaml").read_text())
    for key, value in change.items():
        content[key] = {**content[key], **value} if isinstance(value, dict) else value
    (run / "recipe.yaml").write_text(yaml.safe_dump(content))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["recipe"] = content
    (run / "manifest.json").write_text(json.dumps(manifest))
    return run


def plugins(selected: Path, *names: str) -> list[str]:
    return [part for n in ("plugin", *names) for part in ("--plugin", str(selected / f"{n}.py"))]


def plugin_files(selected: Path, *names: str) -> list[str]:
    return plugins(selected, *names)[1::2]


def hash_adapter(run: Path) -> str:
    """Hash all files of the adapter, but for what the stage adds when it seals the folder."""
    files = sorted((run / "adapters" / ARM).iterdir())
    return content_hash({file.name: sha256(file) for file in files if file.name != MADE_FROM})


def train_here(selected: Path, run: Path, *names: str) -> dict[str, Any]:
    """Trains in this process what ``--only train`` trains in a worker."""
    found = train_arms(str(run), [("gapft", 13)], plugin_files(selected, *names))
    return dict(found[ARM])


@pytest.fixture(scope="module")
def untracked(selected: Path) -> str:
    """The hash of the adapter's folder that was trained without trackers."""
    run = run_with(selected, "untracked", {})
    train_here(selected, run)
    return hash_adapter(run)


@pytest.fixture(scope="module")
def tracked(selected: Path) -> Path:
    """Trained by the real command under three trackers at once."""
    run = run_with(selected, "tracked", {"trackers": ["lines", "tensorboard", "wandb"]})
    succeed(
        "run", run, "--only", "train", *plugins(selected, "lines"), env={"WANDB_MODE": "offline"}
    )
    return run


def logged(run: Path) -> list[dict[str, Any]]:
    lines = (run / "adapters" / ARM / "training_log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def told(run: Path) -> list[dict[str, Any]]:
    lines = (run / "tracking" / "lines" / f"{ARM}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def check_told(run: Path) -> None:
    """The plugin ``lines`` was told of every step, once, and of what the log says."""
    found = told(run)
    assert [entry["step"] for entry in found] == [1, 2, 3, 4, 5]
    for entry, line in zip(found, logged(run), strict=True):
        assert set(entry) == {"step", *VALUES}
        for same in ("loss", "grad_norm", "learning_rate"):
            assert entry[same] == line[same]
        assert entry["share_of_peak"] > 0
        assert entry["tokens_per_second"] > entry["supervised_tokens_per_second"] > 0


def test_the_documented_plugin_is_told_of_every_step(tracked: Path) -> None:
    check_told(tracked)


def test_no_byte_of_the_adapter_changes(selected: Path, tracked: Path, untracked: str) -> None:
    assert hash_adapter(tracked) == untracked
    assert verify(tracked, plugin_files(selected, "lines")).differences == []
    assert json.loads((tracked / "manifest.json").read_text())["warnings"] == []


def test_tokens_and_peak_are_what_the_documents_say(tracked: Path) -> None:
    """Rates of one step divide by one time, so their ratios are known."""
    budget = json.loads((tracked / "manifest.json").read_text())["budgets"][ARM]
    tokens, flops = 0.0, []
    for entry, line in zip(told(tracked), logged(tracked), strict=True):
        seconds = line["supervised_tokens"] / entry["supervised_tokens_per_second"]
        tokens += entry["tokens_per_second"] * seconds
        flops.append(entry["tokens_per_second"] / entry["share_of_peak"])
    assert tokens == pytest.approx(budget["tokens"]), "prompts counted, padding not"
    assert flops == pytest.approx([flops[0]] * 5), "one peak for all steps"


def test_tensorboard_event_files_read_back(tracked: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tracked / "tracking" / "tensorboard" / ARM
    events = EventAccumulator(str(folder))
    events.Reload()
    assert set(events.Tags()["scalars"]) == VALUES
    for name in ("loss", "grad_norm", "learning_rate"):
        found = [(event.step, event.value) for event in events.Scalars(name)]
        expected = [(n["step"], pytest.approx(n[name], rel=1e-6)) for n in logged(tracked)]
        assert found == expected
    (written,) = folder.rglob("hparams.yml")
    settings = yaml.safe_load(written.read_text())
    assert (settings["condition"], settings["seed"], settings["n"]) == ("gapft", 13, 4)
    assert settings["target_modules"].startswith("q_proj, k_proj")


def test_wandb_offline_keeps_every_step(tracked: Path) -> None:
    (file,) = (tracked / "tracking" / "wandb").glob("offline-run-*/run-*.wandb")
    history, names = [], set()
    for record in wandb_records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            names.add((record.run.project, record.run.run_group, record.run.display_name))
        if kind == "history":
            items = record.history.item
            history.append({(i.key or i.nested_key[0]): json.loads(i.value_json) for i in items})
    assert names == {("letters", "tracked", f"tracked/{ARM}")}
    assert [(h["_step"], h["loss"]) for h in history] == [
        (line["step"], line["loss"]) for line in logged(tracked)
    ]
    assert all(entry.keys() >= VALUES for entry in history)


def wandb_records(file: Path) -> Iterator[Any]:
    """What ``wandb sync`` would upload: a log of LevelDB's format behind a header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    content, at, whole = file.read_bytes(), 7, b""
    while at + 7 <= len(content):
        if (left := 32768 - at % 32768) < 7:
            at += left  # the rest of a block that holds no header is empty
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield wandb_internal_pb2.Record.FromString(whole)
            whole = b""


def test_trackio_keeps_every_step(selected: Path, tmp_path: Path) -> None:
    run = run_with(selected, "io", {"trackers": ["trackio"]})
    succeed("run", run, "--only", "train", *plugins(selected), env={"TRACKIO_DIR": str(tmp_path)})
    (database,) = tmp_path.glob("letters*.db")
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select run_name, step, metrics from metrics order by step")
        found = [(name, step, json.loads(values)) for name, step, values in rows]
    assert [(name, step) for name, step, _ in found] == [(f"io/{ARM}", n) for n in range(1, 6)]
    assert [values["loss"] for *_, values in found] == [line["loss"] for line in logged(run)]


def test_a_resumed_training_goes_on_with_its_step_numbers(selected: Path, untracked: str) -> None:
    """It is stopped at the end of step 3; the last state that was kept is the one after step 2."""
    change = {"trackers": ["lines", "tensorboard"], "executor": {"checkpoint_steps": 2}}
    run = run_with(selected, "resumed", change)

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise GapftError("stopped")

    with pytest.raises(GapftError, match="stopped"):
        train_arms(str(run), [("gapft", 13)], plugin_files(selected, "lines"), stop)
    assert [entry["step"] for entry in told(run)] == [1, 2, 3]
    train_here(selected, run, "lines")
    assert [entry["step"] for entry in told(run)] == [1, 2, 3, 3, 4, 5]
    assert hash_adapter(run) == untracked
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tracking" / "tensorboard" / ARM))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3, 4, 5], "3 is not twice"


def test_a_tracker_that_fails_costs_a_warning_and_two_processes_track_once(selected: Path) -> None:
    change = {"trackers": ["failing", "lines"], "executor": {"processes": 2}}
    run = run_with(selected, "two", change)
    done = succeed("run", run, "--only", "train", *plugins(selected, "failing", "lines"))
    output = " ".join((done.stdout + done.stderr).split())
    sentence = "tracker 'failing' could not log step 3 (ConnectionError: the line is dead)"
    assert output.count(sentence) == 1
    (warning,) = json.loads((run / "manifest.json").read_text())["warnings"]
    assert warning.startswith(f"{ARM}: {sentence}")
    assert (run / "tracking" / "opened").read_text() == "once ", "by one process"
    check_told(run)
    assert verify(run, plugin_files(selected, "failing", "lines")).differences == []


def test_a_tracker_that_fails_changes_no_byte(selected: Path, untracked: str) -> None:
    run = run_with(selected, "failing1", {"trackers": ["failing"]})
    (warning,) = train_here(selected, run, "failing")[TRACKING_WARNINGS]
    assert warning.startswith("tracker 'failing' could not log step 3")
    assert hash_adapter(run) == untracked


def test_trackers_are_ended_when_the_adapter_is_there(selected: Path) -> None:
    """So one that never comes back costs nothing that was trained."""
    run = run_with(selected, "ended", {"trackers": ["last"]})
    train_here(selected, run, "last")
    assert (run / "seen").read_text() == "True"


def test_a_tracker_that_cannot_be_opened_ends_the_command_before_training(selected: Path) -> None:
    run = run_with(selected, "closed", {"trackers": ["lines", "failing"]})
    expected = (
        r"gapft-seed13: tracker 'failing' \(plugin .*failing\.py, hook register_trackers\) cannot "
        r"be opened: ConnectionError: no such server"
    )
    with pytest.raises(GapftError, match=expected):
        train_here(selected, run, "failing", "lines")
    assert not (run / "adapters" / ARM).exists()


def test_one_process_of_two_that_fails_ends_both(selected: Path) -> None:
    """Only the first opens trackers; the second waits in a sum for it."""
    change = {"trackers": ["failing"], "executor": {"processes": 2}}
    run = run_with(selected, "closed2", change)
    done = gapft("run", run, "--only", "train", *plugins(selected, "failing"), timeout=300)
    assert done.returncode == 1
    assert "cannot be opened: ConnectionError: no such server" in done.stderr
    assert not (run / "adapters" / ARM).exists()


def test_a_trainer_that_does_not_track_is_told(selected: Path) -> None:
    change = {"trackers": ["lines"], "training": {"trainer": "plain"}}
    run = run_with(selected, "blind", change)
    warnings = train_here(selected, run, "lines", "plain")[TRACKING_WARNINGS]
    assert warnings == ["trainer 'plain' uses no trackers; nothing logged to lines"]


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_an_unknown_tracker_is_refused_before_anything(
    selected: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    done = gapft(
        "run", "recipe.yaml", "--include-path", "tasks", *plugins(selected), *more,
        "--run-dir", tmp_path / "run", "--set", "trackers=[tensorbord]", cwd=selected,
    )  # fmt: skip
    assert done.returncode == 2
    assert "unknown tracker 'tensorbord'; did you mean 'tensorboard'?" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_missing_package_is_named_before_search(selected: Path, tmp_path: Path) -> None:
    (selected / "needy.py").write_text(
        documented().replace('"lines", Lines', '"needy", Lines, needs=("no-such-thing",)')
    )
    command = ["run", "recipe.yaml", "--include-path", "tasks", *plugins(selected, "needy")]
    command += ["--run-dir", str(tmp_path / "run"), "--set", "trackers=[needy]"]
    expected = (
        "tracker 'needy' needs the package 'no-such-thing', which is not installed; pip install "
        "no-such-thing"
    )
    done = gapft(*command, cwd=selected)
    assert done.returncode == 2
    assert expected in done.stderr
    assert not (tmp_path / "run").exists()
    assert expected in gapft(*command, "--dry-run", cwd=selected).stdout


def test_trackers_end_with_a_training_that_fails() -> None:
    """What was opened is ended once, in the order of opening, and the failure is still raised."""
    calls: list[str] = []

    class Noting:
        def __init__(self, name: str) -> None:
            self.name = name

        def log(self, values: dict[str, Any], step: int) -> None:
            calls.append(f"{self.name} {step} {values}")

        def finish(self) -> None:
            calls.append(f"{self.name} ends")

    tracking = Tracking({"a": lambda first: Noting(f"a{first}"), "b": lambda first: Noting("b")})

    def fail() -> None:
        with tracking.open_all(4):
            tracking.log(4, {"loss": 1.0})
            raise GapftError("NaN")

    with pytest.raises(GapftError, match="NaN"):
        fail()
    assert calls == ["a4 4 {'loss': 1.0}", "b 4 {'loss': 1.0}", "a4 ends", "b ends"]
    assert tracking.warnings == []

    def refused(first: int) -> Noting:
        raise UserError("log in first")

    calls.clear()
    refusing = Tracking({"a": lambda first: Noting("a"), "b": refused})
    with pytest.raises(UserError, match="log in first"), refusing.open_all(1):
        pytest.fail("the body must not run")
    assert calls == ["a ends"]


def test_measuring_the_peak_draws_nothing_from_the_training_s_random_streams() -> None:
    before = torch.get_rng_state()
    measure_matrix_peak.cache_clear()
    rate = measure_matrix_peak(torch.device("cpu"), torch.float32)
    assert rate > 0
    assert measure_matrix_peak(torch.device("cpu"), torch.float32) == rate, "measured once"
    assert torch.equal(before, torch.get_rng_state())
