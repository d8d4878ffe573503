"""Trackers in the real command: logged values, unchanged adapters, failures."""

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

#: Logs two steps, then fails.
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

#: Records at its end whether the adapter's folder is complete.
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

#: A trainer without tracking.
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


def read_documented_plugin() -> str:
    """Read the tracker plugin from docs/plugins.md."""
    text = (ROOT / "docs" / "plugins.md").read_text()
    return re.findall(r"## A tracker in one file.*?```python[^\n]*\n(.*?)```", text, re.DOTALL)[0]


@pytest.fixture(autouse=True)
def empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty store in each test, so that every adapter is trained and tracked."""
    monkeypatch.setenv(STORE_VARIABLE, str(tmp_path / "store of its own"))


@pytest.fixture(scope="module")
def selected_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run stopped after selection: one arm of 5 steps."""
    folder = tmp_path_factory.mktemp("trackers")
    prepare(folder)
    content = yaml.safe_load((folder / "recipe.yaml").read_text())
    content["conditions"], content["seeds"], content["executor"] = ["gapft"], [13], {"workers": 1}
    content["budget"] = {"n": 4}
    content["training"] |= {"repetitions": 20, "warmup_steps": 2}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    files = {"lines": read_documented_plugin(), "failing": FAILING, "last": LAST, "plain": TRAINER}
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    plugin = ("--plugin", "plugin.py")
    succeed(
        *("run", "recipe.yaml", "--run-dir", "run", "--include-path", "tasks", *plugin),
        *("--only", "search", "--only", "states", "--only", "select"),
        cwd=folder,
    )
    return folder


def copy_run_with(selected_run: Path, name: str, change: dict[str, Any]) -> Path:
    """Copy the run with a changed recipe; sections are merged."""
    run = selected_run / name
    shutil.copytree(selected_run / "run", run)
    content = yaml.safe_load((run / "recipe.yaml").read_text())
    for key, value in change.items():
        content[key] = {**content[key], **value} if isinstance(value, dict) else value
    (run / "recipe.yaml").write_text(yaml.safe_dump(content))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["recipe"] = content
    (run / "manifest.json").write_text(json.dumps(manifest))
    return run


def plugin_options(selected_run: Path, *names: str) -> list[str]:
    return [
        part for n in ("plugin", *names) for part in ("--plugin", str(selected_run / f"{n}.py"))
    ]


def plugin_files(selected_run: Path, *names: str) -> list[str]:
    return plugin_options(selected_run, *names)[1::2]


def hash_adapter(run: Path) -> str:
    """Hash all files of the adapter except those that the stage adds when sealing."""
    files = sorted((run / "adapters" / ARM).iterdir())
    return content_hash({file.name: sha256(file) for file in files if file.name != MADE_FROM})


def train_in_process(selected_run: Path, run: Path, *names: str) -> dict[str, Any]:
    """Train in this process, as ``--only train`` does in a worker."""
    facts = train_arms(str(run), [("gapft", 13)], plugin_files(selected_run, *names))
    return dict(facts[ARM])


@pytest.fixture(scope="module")
def untracked_hash(selected_run: Path) -> str:
    """The hash of the adapter trained without trackers."""
    run = copy_run_with(selected_run, "untracked", {})
    train_in_process(selected_run, run)
    return hash_adapter(run)


@pytest.fixture(scope="module")
def tracked_run(selected_run: Path) -> Path:
    """A run trained by the real command with three trackers."""
    run = copy_run_with(selected_run, "tracked", {"trackers": ["lines", "tensorboard", "wandb"]})
    succeed(
        "run",
        run,
        "--only",
        "train",
        *plugin_options(selected_run, "lines"),
        env={"WANDB_MODE": "offline"},
    )
    return run


def read_training_log(run: Path) -> list[dict[str, Any]]:
    lines = (run / "adapters" / ARM / "training_log.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def read_tracked_lines(run: Path) -> list[dict[str, Any]]:
    lines = (run / "tracking" / "lines" / f"{ARM}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def assert_tracked_every_step(run: Path) -> None:
    """Assert that the plugin ``lines`` logged every step once, as in the training log."""
    entries = read_tracked_lines(run)
    assert [entry["step"] for entry in entries] == [1, 2, 3, 4, 5]
    for entry, line in zip(entries, read_training_log(run), strict=True):
        assert set(entry) == {"step", *VALUES}
        for key in ("loss", "grad_norm", "learning_rate"):
            assert entry[key] == line[key]
        assert entry["share_of_peak"] > 0
        assert entry["tokens_per_second"] > entry["supervised_tokens_per_second"] > 0


def test_documented_plugin_tracks_every_step(tracked_run: Path) -> None:
    assert_tracked_every_step(tracked_run)


def test_tracking_does_not_change_adapter(
    selected_run: Path, tracked_run: Path, untracked_hash: str
) -> None:
    assert hash_adapter(tracked_run) == untracked_hash
    assert verify(tracked_run, plugin_files(selected_run, "lines")).differences == []
    assert json.loads((tracked_run / "manifest.json").read_text())["warnings"] == []


def test_tracked_rates_match_documentation(tracked_run: Path) -> None:
    """All rates of a step share one duration, so their ratios are known."""
    budget = json.loads((tracked_run / "manifest.json").read_text())["budgets"][ARM]
    tokens, flops = 0.0, []
    for entry, line in zip(
        read_tracked_lines(tracked_run), read_training_log(tracked_run), strict=True
    ):
        seconds = line["supervised_tokens"] / entry["supervised_tokens_per_second"]
        tokens += entry["tokens_per_second"] * seconds
        flops.append(entry["tokens_per_second"] / entry["share_of_peak"])
    assert tokens == pytest.approx(budget["tokens"]), "prompts counted, padding not"
    assert flops == pytest.approx([flops[0]] * 5), "one peak for all steps"


def test_tensorboard_keeps_every_step(tracked_run: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tracked_run / "tracking" / "tensorboard" / ARM
    events = EventAccumulator(str(folder))
    events.Reload()
    assert set(events.Tags()["scalars"]) == VALUES
    for name in ("loss", "grad_norm", "learning_rate"):
        scalars = [(event.step, event.value) for event in events.Scalars(name)]
        expected = [
            (n["step"], pytest.approx(n[name], rel=1e-6)) for n in read_training_log(tracked_run)
        ]
        assert scalars == expected
    (written,) = folder.rglob("hparams.yml")
    settings = yaml.safe_load(written.read_text())
    assert (settings["condition"], settings["seed"], settings["n"]) == ("gapft", 13, 4)
    assert settings["target_modules"].startswith("q_proj, k_proj")


def test_wandb_offline_keeps_every_step(tracked_run: Path) -> None:
    (file,) = (tracked_run / "tracking" / "wandb").glob("offline-run-*/run-*.wandb")
    history, names = [], set()
    for record in read_wandb_records(file):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            names.add((record.run.project, record.run.run_group, record.run.display_name))
        if kind == "history":
            items = record.history.item
            history.append({(i.key or i.nested_key[0]): json.loads(i.value_json) for i in items})
    assert names == {("letters", "tracked", f"tracked/{ARM}")}
    assert [(h["_step"], h["loss"]) for h in history] == [
        (line["step"], line["loss"]) for line in read_training_log(tracked_run)
    ]
    assert all(entry.keys() >= VALUES for entry in history)


def read_wandb_records(file: Path) -> Iterator[Any]:
    """Read the records that ``wandb sync`` uploads: a LevelDB log after a 7-byte header."""
    from wandb.proto import wandb_internal_pb2

    content, offset, record = file.read_bytes(), 7, b""
    while offset + 7 <= len(content):
        if (remaining := 32768 - offset % 32768) < 7:
            offset += remaining  # the end of a block, too short for a header, is empty
            continue
        length, kind = struct.unpack_from("<HB", content, offset + 4)
        record += content[offset + 7 : offset + 7 + length]
        offset += 7 + length
        if kind in (1, 4):  # a complete record or its last part
            yield wandb_internal_pb2.Record.FromString(record)
            record = b""


def test_trackio_keeps_every_step(selected_run: Path, tmp_path: Path) -> None:
    run = copy_run_with(selected_run, "io", {"trackers": ["trackio"]})
    succeed(
        "run",
        run,
        "--only",
        "train",
        *plugin_options(selected_run),
        env={"TRACKIO_DIR": str(tmp_path)},
    )
    (database,) = tmp_path.glob("letters*.db")
    with sqlite3.connect(database) as connection:
        rows = connection.execute("select run_name, step, metrics from metrics order by step")
        metrics = [(name, step, json.loads(values)) for name, step, values in rows]
    assert [(name, step) for name, step, _ in metrics] == [(f"io/{ARM}", n) for n in range(1, 6)]
    assert [values["loss"] for *_, values in metrics] == [
        line["loss"] for line in read_training_log(run)
    ]


def test_resumed_training_continues_step_numbers(selected_run: Path, untracked_hash: str) -> None:
    """Training stops after step 3; the last checkpoint is that of step 2."""
    change = {"trackers": ["lines", "tensorboard"], "executor": {"checkpoint_steps": 2}}
    run = copy_run_with(selected_run, "resumed", change)

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise GapftError("stopped")

    with pytest.raises(GapftError, match="stopped"):
        train_arms(str(run), [("gapft", 13)], plugin_files(selected_run, "lines"), stop)
    assert [entry["step"] for entry in read_tracked_lines(run)] == [1, 2, 3]
    train_in_process(selected_run, run, "lines")
    assert [entry["step"] for entry in read_tracked_lines(run)] == [1, 2, 3, 3, 4, 5]
    assert hash_adapter(run) == untracked_hash
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tracking" / "tensorboard" / ARM))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3, 4, 5], "3 is not twice"


def test_failing_tracker_warns_once_with_two_processes(selected_run: Path) -> None:
    change = {"trackers": ["failing", "lines"], "executor": {"processes": 2}}
    run = copy_run_with(selected_run, "two", change)
    done = succeed("run", run, "--only", "train", *plugin_options(selected_run, "failing", "lines"))
    output = " ".join((done.stdout + done.stderr).split())
    sentence = "tracker 'failing' could not log step 3 (ConnectionError: the line is dead)"
    assert output.count(sentence) == 1
    (warning,) = json.loads((run / "manifest.json").read_text())["warnings"]
    assert warning.startswith(f"{ARM}: {sentence}")
    assert (run / "tracking" / "opened").read_text() == "once ", "by one process"
    assert_tracked_every_step(run)
    assert verify(run, plugin_files(selected_run, "failing", "lines")).differences == []


def test_failing_tracker_does_not_change_adapter(selected_run: Path, untracked_hash: str) -> None:
    run = copy_run_with(selected_run, "failing1", {"trackers": ["failing"]})
    (warning,) = train_in_process(selected_run, run, "failing")[TRACKING_WARNINGS]
    assert warning.startswith("tracker 'failing' could not log step 3")
    assert hash_adapter(run) == untracked_hash


def test_trackers_finish_after_adapter_is_written(selected_run: Path) -> None:
    """A tracker that hangs at its end must not lose the adapter."""
    run = copy_run_with(selected_run, "ended", {"trackers": ["last"]})
    train_in_process(selected_run, run, "last")
    assert (run / "seen").read_text() == "True"


def test_unopenable_tracker_stops_before_training(selected_run: Path) -> None:
    run = copy_run_with(selected_run, "closed", {"trackers": ["lines", "failing"]})
    expected = (
        r"gapft-seed13: tracker 'failing' \(plugin .*failing\.py, hook register_trackers\) cannot "
        r"be opened: ConnectionError: no such server"
    )
    with pytest.raises(GapftError, match=expected):
        train_in_process(selected_run, run, "failing", "lines")
    assert not (run / "adapters" / ARM).exists()


def test_failure_of_one_process_stops_both(selected_run: Path) -> None:
    """Only the first process opens trackers; the second waits for it in a collective sum."""
    change = {"trackers": ["failing"], "executor": {"processes": 2}}
    run = copy_run_with(selected_run, "closed2", change)
    done = gapft("run", run, "--only", "train", *plugin_options(selected_run, "failing"))
    assert done.returncode == 1
    assert "cannot be opened: ConnectionError: no such server" in done.stderr
    assert not (run / "adapters" / ARM).exists()


def test_warns_about_trainer_without_tracking(selected_run: Path) -> None:
    change = {"trackers": ["lines"], "training": {"trainer": "plain"}}
    run = copy_run_with(selected_run, "blind", change)
    warnings = train_in_process(selected_run, run, "lines", "plain")[TRACKING_WARNINGS]
    assert warnings == ["trainer 'plain' uses no trackers; nothing logged to lines"]


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_rejects_unknown_tracker_early(
    selected_run: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    done = gapft(
        "run", "recipe.yaml", "--include-path", "tasks", *plugin_options(selected_run), *more,
        "--run-dir", tmp_path / "run", "--set", "trackers=[tensorbord]", cwd=selected_run,
    )  # fmt: skip
    assert done.returncode == 2
    assert "unknown tracker 'tensorbord'; did you mean 'tensorboard'?" in done.stderr
    assert not (tmp_path / "run").exists()


def test_reports_missing_tracker_package_early(selected_run: Path, tmp_path: Path) -> None:
    (selected_run / "needy.py").write_text(
        read_documented_plugin().replace(
            '"lines", Lines', '"needy", Lines, needs=("no-such-thing",)'
        )
    )
    command = [
        "run",
        "recipe.yaml",
        "--include-path",
        "tasks",
        *plugin_options(selected_run, "needy"),
    ]
    command += ["--run-dir", str(tmp_path / "run"), "--set", "trackers=[needy]"]
    expected = (
        "tracker 'needy' needs the package 'no-such-thing', which is not installed; pip install "
        "no-such-thing"
    )
    done = gapft(*command, cwd=selected_run)
    assert done.returncode == 2
    assert expected in done.stderr
    assert not (tmp_path / "run").exists()
    assert expected in gapft(*command, "--dry-run", cwd=selected_run).stdout


def test_trackers_finish_when_training_fails() -> None:
    """Opened trackers finish once, in order of opening, and the error is raised."""
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


def test_measuring_peak_keeps_random_state() -> None:
    before = torch.get_rng_state()
    measure_matrix_peak.cache_clear()
    rate = measure_matrix_peak(torch.device("cpu"), torch.float32)
    assert rate > 0
    assert measure_matrix_peak(torch.device("cpu"), torch.float32) == rate, "measured once"
    assert torch.equal(before, torch.get_rng_state())
