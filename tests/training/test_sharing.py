"""Arms with the same training set are trained once, by the real command, and verified."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from gapft_harness.core.files import sha256
from gapft_harness.core.records import Arm
from gapft_harness.core.weights import weights_hash
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.parquet import read_facts, write_batches
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.context import Context
from gapft_harness.stages.pipeline import run_audit_stage
from gapft_harness.stages.train.stored import compute_groups, map_originals
from gapft_harness.stages.verify.run import verify
from tests.command import gapft, succeed
from tests.end_to_end.letters_run import kill_command
from tests.recording_run import InProcessExecutor
from tests.training.letters import prepare
from tests.verify.tampering import change_json, change_manifest, find_differences, seal_again

#: Two runs that are made at once.
RUNS = ("first", "second")

GAPFT, SAME, LATER, UNIFORM = (Arm(name, 13) for name in ("gapft", "same", "later", "uniform"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of two conditions by one selector, and of another."""
    folder = tmp_path_factory.mktemp("shared")
    command = prepare(folder)
    path = folder / "recipe.yaml"
    content = yaml.safe_load(path.read_text())
    # the one that is named first is trained
    content["conditions"] = {"gapft": {}, "same": {"selector": "gapft"}, "uniform": {}}
    content |= {"seeds": [13, 21], "trackers": [], "budget": {"n": 6}}
    path.write_text(yaml.safe_dump(content))
    succeed(*command, "run", cwd=folder)
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "run", tmp_path / "run"))


def facts_of(run: Path, arm: Arm) -> dict[str, Any]:
    found = json.loads((run / layout.adapter_path(arm) / "training.json").read_text())
    return dict(found)


def told_of(run: Path, arm: Arm) -> dict[str, Any]:
    """What the manifest says of an adapter."""
    return dict(json.loads((run / "manifest.json").read_text())["training"][arm.name])


def test_the_same_training_set_is_trained_once_and_said_under_every_name(made: Path) -> None:
    run = made / "run"
    manifest = json.loads((run / "manifest.json").read_text())
    seeds = (13, 21)
    assert map_originals(RunDirectory.open(run).manifest()) == {
        Arm("same", seed): Arm("gapft", seed) for seed in seeds
    }
    assert "seconds" in manifest["training"][GAPFT.name], "this one was trained"
    assert "seconds" not in manifest["training"][SAME.name], "this one was not"
    assert facts_of(run, SAME) == {**facts_of(run, GAPFT), "condition": "same"}
    assert "# same, seed 13" in (run / layout.adapter_path(SAME) / "README.md").read_text()
    folders = [run / layout.adapter_path(arm) for arm in (GAPFT, SAME)]
    assert weights_hash(folders[0]) == weights_hash(folders[1])
    tables = [run / layout.decisions_path(arm) for arm in (GAPFT, SAME)]
    assert [*read_judged(tables[0])] == [*read_judged(tables[1])]
    assert read_facts(tables[1])["adapter"]["arm"] == SAME.name
    assert manifest["verdict_counts"][SAME.name] == manifest["verdict_counts"][GAPFT.name]
    verified = verify(run, [str(made / "plugin.py")])
    assert verified.differences == []
    assert any(line.startswith("2 arms share adapter and") for line in verified.checked)


def test_the_report_says_which_were_trained_once(made: Path) -> None:
    results = json.loads((made / "run/report/results.json").read_text())["conditions"]
    assert results["same"]["pass_at_1"] == results["gapft"]["pass_at_1"]
    assert results["same"]["seeds"]["21"]["trained_as"] == "gapft-seed21"
    assert "trained_as" not in results["gapft"]["seeds"]["21"]
    page = (made / "run/report/report.md").read_text().replace("\\", "")
    assert "trained only once" in page
    assert "results: same and GapFT under seeds 13 and 21." in page


def test_a_condition_that_comes_later_takes_what_is_there_and_nothing_is_trained(
    made: Path, run: Path
) -> None:
    before = {
        name: sha256(run / layout.adapter_path(arm)) for name, arm in [("a", GAPFT), ("b", SAME)]
    }
    content = yaml.safe_load((made / "recipe.yaml").read_text())
    content["conditions"] = {"later": {"selector": "gapft"}, **content["conditions"]}
    recipe = run.with_name("later.yaml")
    recipe.write_text(yaml.safe_dump(content))
    arguments = ("--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", run)
    told = json.loads((run / "manifest.json").read_text())["training"]
    succeed("run", recipe, *arguments, cwd=made)
    assert told_of(run, LATER)["trained_as"] == GAPFT.name
    kept = json.loads((run / "manifest.json").read_text())["training"]
    assert {arm: kept[arm] for arm in told} == told, "what training took is told by nothing else"
    now = {
        name: sha256(run / layout.adapter_path(arm)) for name, arm in [("a", GAPFT), ("b", SAME)]
    }
    assert now == before
    assert find_differences(made, run) == []


def test_a_command_that_was_killed_before_the_copy_goes_on(made: Path, run: Path) -> None:
    """The copy is there or not, sealed or not: the same command ends with the same files."""
    right = {arm: sha256(run / layout.adapter_path(arm)) for arm in (GAPFT, SAME)}
    for gone in (True, False):
        if gone:
            shutil.rmtree(run / layout.adapter_path(SAME))
        (run / layout.decisions_path(SAME)).unlink()
        change_manifest(run, lambda m: [
            m["files"].pop(layout.adapter_path(SAME)), m["files"].pop(layout.decisions_path(SAME)),
            m["training"].pop(SAME.name), m["verdict_counts"].pop(SAME.name),
        ])  # fmt: skip
        for stage in ("train", "audit"):
            succeed("run", run, "--only", stage, "--plugin", "plugin.py", cwd=made)
        assert {arm: sha256(run / layout.adapter_path(arm)) for arm in (GAPFT, SAME)} == right
        assert find_differences(made, run) == []


def forgotten(run: Path, *arms: Arm, adapters: bool = True) -> None:
    """As a kill leaves it: decisions are not there yet, and adapters not sealed."""
    for arm in arms:
        (run / layout.decisions_path(arm)).unlink()
        change_manifest(run, lambda m, arm=arm: [
            m["files"].pop(layout.decisions_path(arm)), m["verdict_counts"].pop(arm.name),
            adapters and (m["files"].pop(layout.adapter_path(arm)), m["training"].pop(arm.name)),
        ])  # fmt: skip


def test_an_adapter_that_a_kill_left_is_not_sealed_for_another_training_set(
    made: Path, run: Path
) -> None:
    """Its condition's selector is changed before the next command."""
    shutil.copytree(made / ".store", run.parent / ".store")
    forgotten(run, UNIFORM, Arm("uniform", 21))
    arguments = ("--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", run)
    setting = ("--set", "conditions.uniform.selector=gapft")
    succeed("run", "recipe.yaml", *arguments, *setting, cwd=made)
    assert told_of(run, UNIFORM)["trained_as"] == GAPFT.name
    assert find_differences(made, run) == []


def test_an_adapter_that_lies_there_of_another_training_is_removed(made: Path, run: Path) -> None:
    forgotten(run, UNIFORM)
    path = run / layout.adapter_path(UNIFORM) / "training.json"
    change_json(path, lambda facts: facts.update(stored="train/of something else"))
    done = succeed("run", run, "--only", "train", "--plugin", "plugin.py", cwd=made)
    said = " ".join((done.stdout + done.stderr).split())
    assert "adapters/uniform-seed13: was trained from different inputs" in said
    assert facts_of(run, UNIFORM)["stored"] != "train/of something else"


def test_what_was_lost_comes_from_the_store_or_is_trained_again(made: Path, run: Path) -> None:
    """To the byte; a copy of the run elsewhere has a store of its own, with nothing in it."""
    before = {arm: sha256(run / layout.adapter_path(arm)) for arm in (GAPFT, Arm("same", 21))}
    for is_stored in (False, True):
        for arm in before:
            shutil.rmtree(run / layout.adapter_path(arm))
        succeed("run", run, "--only", "train", "--plugin", "plugin.py", cwd=made)
        assert {arm: sha256(run / layout.adapter_path(arm)) for arm in before} == before
        assert "trained_as" not in told_of(run, GAPFT)
        assert (run.parent / ".store" / facts_of(run, GAPFT)["stored"]).is_dir(), is_stored
        assert find_differences(made, run) == []


def test_an_arm_alone_has_the_answers_of_its_adapter(made: Path, run: Path) -> None:
    forgotten(run, GAPFT, SAME, adapters=False)
    recipe = RunDirectory.open(run).recipe
    asked = recipe.model_copy(update={"conditions": {"same": recipe.conditions["same"]}})
    context = Context(RunDirectory(run, asked), InProcessExecutor(), [str(made / "plugin.py")])
    assert {arm.condition for arm in context.list_trainable_arms()} == {"same"}
    run_audit_stage(context)
    assert read_facts(run / layout.decisions_path(SAME))["adapter"]["arm"] == SAME.name
    succeed("run", run, "--only", "audit", "--plugin", "plugin.py", cwd=made)
    assert find_differences(made, run) == []


@pytest.mark.parametrize("changed", ["adapter_model.safetensors", "index.json", "made_from.json"])
def test_an_edited_adapter_of_the_store_is_refused(made: Path, run: Path, changed: str) -> None:
    shutil.copytree(made / ".store", run.parent / ".store")
    stored = run.parent / ".store" / facts_of(run, GAPFT)["stored"]
    index = json.loads((stored / "index.json").read_text())["files"]
    file = stored / index.get(changed, changed)
    file.chmod(0o644)
    text = file.read_bytes()
    file.write_bytes(text[:-9] + bytes([text[-9] ^ 1]) + text[-8:])
    shutil.rmtree(run / layout.adapter_path(SAME))
    shutil.rmtree(run / layout.adapter_path(GAPFT))
    done = gapft("run", run, "--only", "train", "--plugin", "plugin.py", cwd=made)
    assert done.returncode == 2
    assert str(file) in "".join(done.stderr.split("\n")), done.stderr
    assert not (run / layout.adapter_path(GAPFT)).exists()


def test_another_run_takes_adapters_and_answers_and_trains_nothing(
    made: Path, tmp_path: Path
) -> None:
    shutil.copytree(made, tmp_path / "moved")
    place = tmp_path / "moved"
    shutil.rmtree(place / "run")
    recipe = place / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace(str(made), str(place)))
    arguments = ("--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", "other")
    done = succeed("run", "recipe.yaml", *arguments, cwd=place)
    assert "train: 4 reused from run" in " ".join((done.stdout + done.stderr).split())
    for arm in (GAPFT, SAME, UNIFORM):
        assert weights_hash(place / "other" / layout.adapter_path(arm)) == weights_hash(
            made / "run" / layout.adapter_path(arm)
        )
        config = place / "other" / layout.adapter_path(arm) / "adapter_config.json"
        assert json.loads(config.read_text())["base_model_name_or_path"] == str(place / "model")
        one, other = (
            read_judged(of / layout.decisions_path(arm)) for of in (made / "run", place / "other")
        )
        assert [*one] == [*other]
    manifest = json.loads((place / "other/manifest.json").read_text())
    assert not any("seconds" in of for of in manifest["training"].values())
    assert manifest["training"][GAPFT.name]["reused"] == str(made / "run")
    assert find_differences(place, place / "other") == []


def start(place: Path, name: str) -> subprocess.Popen[bytes]:
    """A command that makes a whole run in a folder, beside others."""
    command = [sys.executable, "-m", "gapft_harness.cli.main", "run", "recipe.yaml"]
    command += ["--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", name]
    return subprocess.Popen(
        command,
        cwd=place,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.parametrize("kills", [False, True])
def test_commands_at_once_train_each_adapter_once_though_one_is_killed(
    made: Path, tmp_path: Path, kills: bool
) -> None:
    place = Path(shutil.copytree(made, tmp_path / "place", ignore=shutil.ignore_patterns("run")))
    shutil.rmtree(place / ".store/train")
    first, second = start(place, "first"), start(place, "second")
    if kills:
        deadline = time.monotonic() + 300
        while not [*place.glob(".store/train/*/.index.json.lock")]:
            assert first.poll() is None, "it ended before it trained"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        kill_command(first)
    assert second.wait(600) == 0
    assert first.wait(600) == (-signal.SIGKILL if kills else 0)
    if kills:
        again = start(place, "first")
        assert again.wait(600) == 0
    told = {name: json.loads((place / name / "manifest.json").read_text()) for name in RUNS}
    trained = [arm for of in told.values() for arm, of in of["training"].items() if "seconds" in of]
    assert len(trained) == len(set(trained)) <= 4, "of six arms two have another's adapter"
    assert kills or len(trained) == 4
    for arm in (GAPFT, SAME, UNIFORM):
        hashes = {weights_hash(place / name / layout.adapter_path(arm)) for name in RUNS}
        assert hashes == {weights_hash(made / "run" / layout.adapter_path(arm))}
    for name in RUNS:
        assert find_differences(place, place / name) == []


def say(key: str, value: Any) -> Any:
    """Changes what the manifest says of an adapter, and its folder where that says it too."""

    def change(run: Path) -> None:
        path = run / layout.adapter_path(SAME) / "training.json"
        if key in facts_of(run, SAME):
            change_json(path, lambda facts: facts.update({key: value}))
        change_manifest(run, lambda m: m["training"][SAME.name].update({key: value}))
        seal_again(run, layout.adapter_path(SAME))

    return change


def unsaid(run: Path) -> None:
    """The manifest does not say whose adapter it is."""
    change_manifest(run, lambda m: m["training"][SAME.name].pop("trained_as"))


def other_weights(run: Path) -> None:
    """The adapter of another arm in place of the one that was taken."""
    source, target = (run / layout.adapter_path(arm) for arm in (Arm("uniform", 13), SAME))
    shutil.copy(source / "adapter_model.safetensors", target)
    say("adapter_sha256", weights_hash(target))(run)


def other_answers(run: Path) -> None:
    """Other answers under this arm's name."""
    target = run / layout.decisions_path(SAME)
    table, facts = pq.read_table(target), read_facts(target)
    others = pa.array([f"{text}?" for text in table["text"].to_pylist()])
    table = table.set_column(table.column_names.index("text"), "text", others)
    write_batches(target, table.schema.remove_metadata(), [table], lambda: facts)
    seal_again(run, layout.decisions_path(SAME))


def test_answers_that_are_not_the_same_are_not_said_to_be(made: Path, run: Path) -> None:
    other_answers(run)
    verified = verify(run, [str(made / "plugin.py")])
    assert any("differs on problem" in line for line in verified.differences)
    assert not [line for line in verified.checked if "arms share adapter and" in line]


@pytest.mark.parametrize(
    ("forge", "expected"),
    [
        (say("trained_as", "uniform-seed13"), "trained_as is uniform-seed13"),
        (say("trained_as", "uniform-seed77"), "trained_as is uniform-seed77"),
        (say("trained_as", "same-seed13"), "trained_as is same-seed13"),
        (say("trained_as", "somebody"), "trained_as is somebody"),
        (say("stored", "train/0000"), "expected train/0000"),
        (unsaid, "trained_as is None"),
        (other_weights, "adapters of gapft-seed13 and same-seed13"),
        (other_answers, "decisions/same-seed13.parquet: has the keys of decisions/gapft-seed13"),
    ],
)
def test_what_was_not_taken_as_it_says_is_found(
    made: Path, run: Path, forge: Any, expected: str
) -> None:
    forge(run)
    assert any(expected in line for line in find_differences(made, run)), find_differences(
        made, run
    )


def test_a_trainer_that_may_go_by_names_trains_every_arm(
    made: Path, run: Path, tmp_path: Path
) -> None:
    plugin = tmp_path / "trainer.py"
    plugin.write_text(
        "from gapft_harness.api import hookimpl, train_lora\n\n\n"
        "@hookimpl\ndef register_trainers(register):\n    register('named', train_lora)\n"
    )
    opened = RunDirectory.open(run)
    named = opened.recipe.training.model_copy(update={"trainer": "named"})
    other = RunDirectory(run, opened.recipe.model_copy(update={"training": named}))
    for of, files, keys in ((opened, [], 1), (other, [str(plugin)], 2)):
        groups = compute_groups(
            of, [GAPFT, SAME], load_plugins(files), lambda: pytest.fail("needs no problems")
        )
        assert len({group.key for group in groups.values()}) == keys


def test_the_launched_training_leaves_them_out(made: Path, run: Path) -> None:
    """``python -m gapft_harness.training`` trains what ``--only train`` would."""
    for arm in (GAPFT, SAME):
        shutil.rmtree(run / layout.adapter_path(arm))
        (run / layout.decisions_path(arm)).unlink()
        change_manifest(run, lambda m, arm=arm: [
            m["files"].pop(layout.adapter_path(arm)), m["files"].pop(layout.decisions_path(arm)),
            m["training"].pop(arm.name),
        ])  # fmt: skip
    command = [sys.executable, "-m", "gapft_harness.training", str(run), "--plugin", "plugin.py"]
    done = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (run / layout.adapter_path(GAPFT)).is_dir()
    assert not (run / layout.adapter_path(SAME)).exists()
    assert gapft("run", run, "--only", "train", "--plugin", "plugin.py", cwd=made).returncode == 0
    assert told_of(run, SAME)["trained_as"] == GAPFT.name
