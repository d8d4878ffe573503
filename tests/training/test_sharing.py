"""Arms with the same training set are trained once, by the real command, and verified."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
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
from gapft_harness.run_directory.parquet import copy_table, read_facts, write_batches
from gapft_harness.run_directory.tables import read_judged
from gapft_harness.stages.context import Context
from gapft_harness.stages.pipeline import audit_stage
from gapft_harness.stages.train.sharing import shared, takers
from gapft_harness.stages.verify.run import verify
from tests.command import gapft, succeed
from tests.recording_run import Here
from tests.training.letters import prepare
from tests.verify.tampering import change_json, change_manifest, differences, seal_again

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
    found = json.loads((run / layout.adapter(arm) / "training.json").read_text())
    return dict(found)


def test_the_same_training_set_is_trained_once_and_said_under_every_name(made: Path) -> None:
    run = made / "run"
    manifest = json.loads((run / "manifest.json").read_text())
    assert takers(RunDirectory.open(run), [GAPFT, SAME, Arm("uniform", 13)]) == {SAME: GAPFT}
    assert "seconds" in manifest["training"][GAPFT.name], "this one was trained"
    assert "seconds" not in manifest["training"][SAME.name], "this one was not"
    assert facts_of(run, SAME) == {
        **facts_of(run, GAPFT), "condition": "same", "trained_as": GAPFT.name
    }  # fmt: skip
    assert "# same, seed 13" in (run / layout.adapter(SAME) / "README.md").read_text()
    folders = [run / layout.adapter(arm) for arm in (GAPFT, SAME)]
    assert weights_hash(folders[0]) == weights_hash(folders[1])
    tables = [run / layout.decisions(arm) for arm in (GAPFT, SAME)]
    assert [*read_judged(tables[0])] == [*read_judged(tables[1])]
    assert read_facts(tables[1])["adapter"]["arm"] == SAME.name
    assert manifest["verdict_counts"][SAME.name] == manifest["verdict_counts"][GAPFT.name]
    verified = verify(run, [str(made / "plugin.py")])
    assert verified.differences == []
    assert any(line.startswith("2 arms have the adapter and the") for line in verified.checked)


def test_the_report_says_which_were_trained_once(made: Path) -> None:
    results = json.loads((made / "run/report/results.json").read_text())["conditions"]
    assert results["same"]["pass_at_1"] == results["gapft"]["pass_at_1"]
    assert results["same"]["seeds"]["21"]["trained_as"] == "gapft-seed21"
    assert "trained_as" not in results["gapft"]["seeds"]["21"]
    page = (made / "run/report/report.md").read_text().replace("\\", "")
    assert "reported of them is the same: same and GapFT under seeds 13 and 21." in page


def test_a_condition_that_comes_later_takes_what_is_there_and_nothing_is_trained(
    made: Path, run: Path
) -> None:
    before = {name: sha256(run / layout.adapter(arm)) for name, arm in [("a", GAPFT), ("b", SAME)]}
    content = yaml.safe_load((made / "recipe.yaml").read_text())
    content["conditions"] = {"later": {"selector": "gapft"}, **content["conditions"]}
    recipe = run.with_name("later.yaml")
    recipe.write_text(yaml.safe_dump(content))
    arguments = ("--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", run)
    told = json.loads((run / "manifest.json").read_text())["training"]
    succeed("run", recipe, *arguments, cwd=made)
    assert facts_of(run, LATER)["trained_as"] == GAPFT.name
    kept = json.loads((run / "manifest.json").read_text())["training"]
    assert {arm: kept[arm] for arm in told} == told, "what training took is told by nothing else"
    now = {name: sha256(run / layout.adapter(arm)) for name, arm in [("a", GAPFT), ("b", SAME)]}
    assert now == before
    assert differences(made, run) == []


def test_a_command_that_was_killed_before_the_copy_goes_on(made: Path, run: Path) -> None:
    """The copy is there or not, sealed or not: the same command ends with the same files."""
    right = {arm: sha256(run / layout.adapter(arm)) for arm in (GAPFT, SAME)}
    for gone in (True, False):
        if gone:
            shutil.rmtree(run / layout.adapter(SAME))
        (run / layout.decisions(SAME)).unlink()
        change_manifest(run, lambda m: [
            m["files"].pop(layout.adapter(SAME)), m["files"].pop(layout.decisions(SAME)),
            m["training"].pop(SAME.name), m["verdict_counts"].pop(SAME.name),
        ])  # fmt: skip
        for stage in ("train", "audit"):
            succeed("run", run, "--only", stage, "--plugin", "plugin.py", cwd=made)
        assert {arm: sha256(run / layout.adapter(arm)) for arm in (GAPFT, SAME)} == right
        assert differences(made, run) == []


def forgotten(run: Path, *arms: Arm, adapters: bool = True) -> None:
    """As a kill leaves it: decisions are not there yet, and adapters not sealed."""
    for arm in arms:
        (run / layout.decisions(arm)).unlink()
        change_manifest(run, lambda m, arm=arm: [
            m["files"].pop(layout.decisions(arm)), m["verdict_counts"].pop(arm.name),
            adapters and (m["files"].pop(layout.adapter(arm)), m["training"].pop(arm.name)),
        ])  # fmt: skip


def test_an_adapter_that_a_kill_left_is_not_sealed_for_another_training_set(
    made: Path, run: Path
) -> None:
    """Its condition's selector is changed before the next command."""
    forgotten(run, UNIFORM, Arm("uniform", 21))
    arguments = ("--include-path", "tasks", "--plugin", "plugin.py", "--run-dir", run)
    setting = ("--set", "conditions.uniform.selector=gapft")
    done = succeed("run", "recipe.yaml", *arguments, *setting, cwd=made)
    said = " ".join((done.stdout + done.stderr).split())
    assert "adapters/uniform-seed13/training.json: sequences_sha256 is" in said
    assert "so it was removed and is made anew" in said
    assert facts_of(run, UNIFORM)["trained_as"] == GAPFT.name
    assert differences(made, run) == []


def test_an_original_that_was_lost_is_trained_again(made: Path, run: Path) -> None:
    before = sha256(run / layout.adapter(GAPFT))
    shutil.rmtree(run / layout.adapter(GAPFT))
    shutil.rmtree(run / layout.adapter(Arm("same", 21)))
    succeed("run", run, "--only", "train", "--plugin", "plugin.py", cwd=made)
    assert "trained_as" not in facts_of(run, GAPFT)
    assert sha256(run / layout.adapter(GAPFT)) == before
    assert differences(made, run) == []


def test_who_took_an_adapter_has_its_answers_whatever_arms_are_asked_for(
    made: Path, run: Path
) -> None:
    forgotten(run, GAPFT, SAME, adapters=False)
    recipe = RunDirectory.open(run).recipe
    asked = recipe.model_copy(update={"conditions": {"same": recipe.conditions["same"]}})
    context = Context(RunDirectory(run, asked), Here(), [str(made / "plugin.py")])
    assert {arm.condition for arm in context.arms()} == {"same"}
    audit_stage(context)
    assert read_facts(run / layout.decisions(SAME))["trained_as"] == GAPFT.name
    assert differences(made, run) == []


def say(key: str, value: Any) -> Any:
    """Changes what an adapter says of itself, and what the manifest has of it."""

    def change(run: Path) -> None:
        path = run / layout.adapter(SAME) / "training.json"
        change_json(path, lambda facts: facts.update({key: value}))
        change_manifest(run, lambda m: m["training"][SAME.name].update({key: value}))
        seal_again(run, layout.adapter(SAME))

    return change


def other_weights(run: Path) -> None:
    """The adapter of another arm in place of the one that was taken."""
    source, target = (run / layout.adapter(arm) for arm in (Arm("uniform", 13), SAME))
    shutil.copy(source / "adapter_model.safetensors", target)
    say("adapter_sha256", weights_hash(target))(run)


def other_answers(run: Path) -> None:
    """Other answers under this arm's name, still said to be taken."""
    target = run / layout.decisions(SAME)
    table, facts = pq.read_table(target), read_facts(target)
    others = pa.array([f"{text}?" for text in table["text"].to_pylist()])
    table = table.set_column(table.column_names.index("text"), "text", others)
    write_batches(target, table.schema.remove_metadata(), [table], lambda: facts)
    seal_again(run, layout.decisions(SAME))


def answers_of_its_own(run: Path) -> None:
    """The same, and the table does not say that it was taken."""
    other_answers(run)
    target = run / layout.decisions(SAME)
    aside = Path(shutil.move(target, target.with_suffix(".aside")))
    facts = {key: of for key, of in read_facts(aside).items() if key != "trained_as"}
    copy_table(aside, target, facts)
    aside.unlink()
    seal_again(run, layout.decisions(SAME))


def test_answers_that_are_not_the_same_are_not_said_to_be(made: Path, run: Path) -> None:
    answers_of_its_own(run)
    verified = verify(run, [str(made / "plugin.py")])
    assert any("seed13.parquet: does not say trained_as" in of for of in verified.differences)
    assert any("and says something else" in line for line in verified.differences)
    assert [of for of in verified.checked if "arms have the adapter and" in of] == [
        "1 arms have the adapter and the answers of an arm with the same training set, which was "
        "trained once"
    ]


@pytest.mark.parametrize(
    ("forge", "expected"),
    [
        (say("trained_as", "uniform-seed13"), "uniform-seed13, from which it was taken, has"),
        (say("trained_as", "uniform-seed77"), "of which no adapter is sealed"),
        (say("trained_as", "same-seed13"), "of which no adapter is sealed"),
        (say("trained_as", "somebody"), "same-seed13 was trained as 'somebody': no such arm"),
        (other_weights, "adapter_sha256 is"),
        (other_answers, "was taken from decisions/gapft-seed13.parquet, and says something else"),
    ],
)
def test_what_was_not_taken_as_it_says_is_found(
    made: Path, run: Path, forge: Any, expected: str
) -> None:
    forge(run)
    assert any(expected in line for line in differences(made, run)), differences(made, run)


def test_a_trainer_that_may_go_by_names_trains_every_arm(
    made: Path, run: Path, tmp_path: Path
) -> None:
    plugin = tmp_path / "trainer.py"
    plugin.write_text(
        "from gapft_harness.api import hookimpl, train_lora\n\n\n"
        "@hookimpl\ndef register_trainers(register):\n    register('named', train_lora)\n"
    )
    opened = RunDirectory.open(run)
    arms = [GAPFT, SAME]
    for arm in arms:
        shutil.rmtree(run / layout.adapter(arm))
    assert shared(opened, arms, load_plugins([])) == {SAME: GAPFT}
    named = opened.recipe.training.model_copy(update={"trainer": "named"})
    other = RunDirectory(run, opened.recipe.model_copy(update={"training": named}))
    assert shared(other, arms, load_plugins([str(plugin)])) == {}


def test_the_launched_training_leaves_them_out(made: Path, run: Path) -> None:
    """``python -m gapft_harness.training`` trains what ``--only train`` would."""
    for arm in (GAPFT, SAME):
        shutil.rmtree(run / layout.adapter(arm))
        (run / layout.decisions(arm)).unlink()
        change_manifest(run, lambda m, arm=arm: [
            m["files"].pop(layout.adapter(arm)), m["files"].pop(layout.decisions(arm)),
            m["training"].pop(arm.name),
        ])  # fmt: skip
    command = [sys.executable, "-m", "gapft_harness.training", str(run), "--plugin", "plugin.py"]
    done = subprocess.run(command, cwd=made, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (run / layout.adapter(GAPFT)).is_dir()
    assert not (run / layout.adapter(SAME)).exists()
    assert gapft("run", run, "--only", "train", "--plugin", "plugin.py", cwd=made).returncode == 0
    assert facts_of(run, SAME)["trained_as"] == GAPFT.name
