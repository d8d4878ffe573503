"""Conditions with a K and a training of their own, in one run and one paired table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm, Budget, Example
from gapft_harness.exporting.adapters import write_adapters
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.recipe.conditions import Condition, find_own_settings
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.evidence import read_evidence
from gapft_harness.run_directory.tables import read_examples, read_states, write_examples
from gapft_harness.stages.selection.budgets import group_by_budget
from gapft_harness.stages.selection.choosing import (
    ConditionPools,
    build_example,
    count_slots,
    fill_slots,
)
from gapft_harness.stages.selection.other_runs import OtherRunSets
from gapft_harness.stages.train.job import _complete_folder
from gapft_harness.stages.train.stored import compute_groups, find_stale
from gapft_harness.stages.verify.run import verify
from tests.command import succeed
from tests.tiny_models import CHAT_TEMPLATE, byte_llama
from tests.training.letters import prepare
from tests.verify.tampering import change_manifest

pytestmark = pytest.mark.xdist_group("own_settings")

#: A trainer that says little of what it did, as one that is online may.
ONLINE = """
from gapft_harness.api import hookimpl, train_lora


def online(job):
    found = train_lora(job)
    (job.output / "training.json").unlink()
    (job.output / "training_log.jsonl").unlink()
    return {"steps_done": found["budget"]["steps"], "learning_rate": job.settings["learning_rate"]}


@hookimpl
def register_trainers(register):
    register("online", online)
"""

CONDITIONS: dict[str, Any] = {
    "gapft": {},
    "uniform": {},
    "uniform_2": {"selector": "uniform", "k": 2},
    "gapft_1": {"selector": "gapft", "k": 1},
    "fast": {"selector": "gapft", "training": {"learning_rate": 0.001}},
    "older": {"selector": "gapft", "training": {"start_tokens": 1}},
    "online": {"selector": "gapft", "training": {"trainer": "online"}},
    "again": {"selector": "gapft", "k": 4, "training": {"learning_rate": 5e-5}},
}

PLUGINS = ("--plugin", "plugin.py", "--plugin", "online.py")


def arguments(name: str, recipe: str = "recipe.yaml") -> tuple[str, ...]:
    return ("run", recipe, "--include-path", "tasks", *PLUGINS, "--run-dir", name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own_settings")
    prepare(folder)
    shutil.rmtree(folder / "model")
    byte_llama(folder / "model", chat_template=CHAT_TEMPLATE, add_bos=True)
    (folder / "online.py").write_text(ONLINE)
    content = yaml.safe_load((folder / "recipe.yaml").read_text())
    content |= {"conditions": CONDITIONS, "seeds": [13], "executor": {"workers": 1}}
    content["model"] |= {"chat_template": True, "start_tokens": 2}
    content["training"]["repetitions"] = 1
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    succeed(*arguments("run"), cwd=folder)
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "report" / "results.json").read_text())
    return found


def facts(run: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "adapters" / name / "training.json").read_text())
    return found


def chosen(run: Path, condition: str) -> list[Any]:
    return read_examples(run / layout.selection_path(Arm(condition, 13)))


def test_every_arm_is_trained_by_its_own_settings(folder: Path) -> None:
    run = folder / "run"
    said = {name: facts(run, f"{name}-seed13")["settings"] for name in CONDITIONS}
    plain = said["gapft"]
    for name, of in CONDITIONS.items():
        assert said[name] == plain | of.get("training", {}), name
    adapters = {name: facts(run, f"{name}-seed13")["adapter_sha256"] for name in CONDITIONS}
    same = {name for name, sha in adapters.items() if sha == adapters["gapft"]}
    assert {"gapft", "online", "again"} <= same, "the online trainer trains as the bundled one"
    assert not same & {"fast", "older", "uniform"}
    told = json.loads((run / "manifest.json").read_text())["training"]
    assert told["again-seed13"]["trained_as"] == "gapft-seed13"
    assert "trained_as" not in told["online-seed13"]


def test_a_smaller_k_is_a_window_of_the_one_search(folder: Path) -> None:
    """Nested search budgets (Appendix A): the first samples, no others, and nothing else of it."""
    run = folder / "run"
    search = {file.name for file in (run / "pool").glob("*.parquet")}
    assert search == {"problems.parquet", "responses.parquet", "states.parquet"}
    windows = {path.name for path in (run / "pool" / "states").iterdir()}
    assert windows == {"0-1.parquet", "0-2.parquet"}
    whole = {of.problem_id: of for of in read_states(run / layout.states_path("pool"))}
    recovered = []
    for k, condition in ((1, "gapft_1"), (2, "uniform_2"), (4, "gapft")):
        states = [*read_states(run / layout.states_path("pool", None if k == 4 else (0, k)))]
        for of in states:
            early = whole[of.problem_id]
            in_time = early.first_success is not None and early.first_success < k
            expected = "G" if early.state == "G" else "S" if in_time else "U"
            assert of.state == expected
        recovered.append({of.problem_id for of in states if of.state == "S"})
        verified = recovered[-1] | {of.problem_id for of in states if of.state == "G"}
        examples = chosen(run, condition)
        assert {e.problem_id for e in examples} <= verified
        assert all(e.response_index < k for e in examples)
        assert len(examples) == len(recovered[-1])
    assert recovered[0] < recovered[1] < recovered[2]
    assert {e.problem_id for e in chosen(run, "gapft_1")} == recovered[0]


def test_evidence_of_a_window_has_no_response_behind_it(folder: Path) -> None:
    run, later = folder / "run", 0
    for k in (1, 2, 3, 4):
        if not (run / layout.states_path("pool", (0, k))).exists():
            continue
        for evidence in read_evidence(run, "pool", window=(0, k)):
            indices = [of.index for of in evidence.verified]
            assert len([i for i in indices if i >= 0]) == evidence.passing_samples
            assert all(index < k for index in indices)
    for evidence in read_evidence(run, "pool"):
        later += any(of.index >= 2 for of in evidence.verified)
    assert later, "there is something that a window leaves out"


def test_arms_that_differ_in_a_setting_are_paired_and_never_called_matched(
    folder: Path, results: dict[str, Any]
) -> None:
    own = {name: of.get("own", {}) for name, of in results["conditions"].items()}
    assert own == {
        "gapft": {},
        "uniform": {},
        "uniform_2": {"k": 2},
        "gapft_1": {"k": 1},
        "fast": {"training.learning_rate": 0.001},
        "older": {"training.start_tokens": 1},
        "online": {"training.trainer": "online"},
        "again": {},
    }
    pairs = {(c["a"], c["b"]): c for c in results["contrasts"] if c["b"] != "source"}
    assert len(pairs) == len(CONDITIONS) * (len(CONDITIONS) - 1) // 2
    for (a, b), of in pairs.items():
        alike = own[a] == own[b]
        assert of["matched_budget"] == alike, (a, b)
        assert set(of.get("differs", [])) == {*own[a]} ^ {*own[b]} | {
            key for key in {*own[a]} & {*own[b]} if own[a][key] != own[b][key]
        }
    page = (folder / "run" / "report" / "index.html").read_text()
    for told in (
        "uniform 2 (K = 2 of 4)",
        "online (trainer online)",
        "older (start tokens 1)",
        "‡ Not matched: the two differ in a declared setting",
    ):
        assert told in page, told


def test_the_pools_recovered_problems_by_k_are_reported(
    folder: Path, results: dict[str, Any]
) -> None:
    run = folder / "run"
    states = [*read_states(run / layout.states_path("pool"))]
    expected = {
        str(k): sum(of.state == "S" and (of.first_success or 0) < k for of in states)
        for k in range(1, 5)
    }
    assert results["pool"]["recovered_by_k"] == expected
    assert expected["4"] == results["pool"]["states"]["S"]
    assert "first K samples of the search recover" in (run / "report" / "index.html").read_text()


def test_verify_holds_every_arm_to_its_own_settings(folder: Path, tmp_path: Path) -> None:
    plugins = [str(folder / "plugin.py"), str(folder / "online.py")]
    found = verify(folder / "run", plugins)
    assert not found.differences, found.differences
    assert any("7 adapters were trained on the steps" in line for line in found.checked)
    assert any("1 adapters of trainer 'online'" in line for line in found.checked)
    forged = tmp_path / "run"
    shutil.copytree(folder / "run", forged)

    def relabel(manifest: Any) -> None:
        for budget in ("fast-seed13", "uniform_2-seed13"):
            manifest["budgets"][budget]["condition"] = {"selector": "gapft"}
        manifest["recipe"]["conditions"]["fast"] = {"selector": "gapft"}

    change_manifest(forged, relabel)
    lines = verify(forged, plugins).differences
    assert any("budget of fast-seed13 has condition" in line for line in lines), lines
    assert any("budget of uniform_2-seed13 has condition" in line for line in lines), lines
    recipe = yaml.safe_load((forged / "recipe.yaml").read_text())
    recipe["conditions"]["fast"] = {"selector": "gapft"}
    (forged / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False))
    lines = verify(forged, plugins).differences
    assert any("adapters/fast-seed13/training.json" in line for line in lines), lines


def test_a_condition_that_is_added_leaves_the_others_their_adapters(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    place, recipe = tmp_path / "copy", yaml.safe_load((folder / "recipe.yaml").read_text())
    # what says the run's own value says nothing
    said = CONDITIONS | {"gapft": {"k": 4, "training": {"trainer": "lora"}}}
    (place / "changed.yaml").write_text(
        yaml.safe_dump(recipe | {"conditions": said}, sort_keys=False)
    )
    before = {p.name: p.stat().st_mtime_ns for p in (place / "run" / "adapters").iterdir()}
    more = said | {"slow": {"selector": "gapft", "training": {"learning_rate": 1e-6}}}
    (place / "changed.yaml").write_text(
        yaml.safe_dump(recipe | {"conditions": more}, sort_keys=False)
    )
    succeed(*arguments("run", "changed.yaml"), cwd=place)
    after = {p.name: p.stat().st_mtime_ns for p in (place / "run" / "adapters").iterdir()}
    assert {name for name in after if before.get(name) != after[name]} == {"slow-seed13"}


def test_an_adapter_of_other_settings_is_never_taken_again(folder: Path, tmp_path: Path) -> None:
    """Its key is another one; what is left unsealed of other settings is removed."""
    shutil.copytree(folder / "run", tmp_path / "run")
    plugins = load_plugins([str(folder / "plugin.py"), str(folder / "online.py")])
    run = RunDirectory.open(tmp_path / "run")
    arms = [Arm(name, 13) for name in CONDITIONS]

    def unsealed(manifest: Any) -> None:
        for arm in arms:
            del manifest["files"][layout.adapter_path(arm)]

    def own(name: str, training: dict[str, Any]) -> RunDirectory:
        content = run.recipe.model_dump(mode="json")
        content["conditions"][name]["training"] = training
        return RunDirectory(run.path, check_recipe(content, "test"))

    def keys(of: RunDirectory) -> dict[Arm, Any]:
        return compute_groups(of, arms, plugins, lambda: pytest.fail("no trainer needs problems"))

    said = {arm: group.key for arm, group in keys(run).items()}
    again, gapft = Arm("again", 13), Arm("gapft", 13)
    assert [arm for arm in arms if said[arm] == said[gapft]] == [gapft, again]
    assert keys(own("again", {"learning_rate": 0.002}))[again].key not in said.values()
    change_manifest(run.path, unsealed)
    for name in ("fast", "online", "older"):
        now = own(name, {"rank": 4})
        assert [*find_stale(now, keys(now))] == [Arm(name, 13)]
    assert [*find_stale(run, keys(run))] == []


def with_condition(run: RunDirectory, name: str, of: Condition) -> RunDirectory:
    conditions = {**run.recipe.conditions, name: of}
    return RunDirectory(run.path, run.recipe.model_copy(update={"conditions": conditions}))


def selected(run: RunDirectory, name: str, folder: Path, replay: int) -> list[Example]:
    """What a condition's arm is given, before anything is sealed of it."""
    plugins = load_plugins([str(folder / "plugin.py"), str(folder / "online.py")])
    selector, entry = find_selector(run.recipe, name, plugins)
    pool, arm = ConditionPools(run).read_pool(name), Arm(name, 13)
    n = count_slots(run.recipe.find_slots(name), pool)
    return [build_example(e) for e in fill_slots(selector, entry, pool, n, replay, arm)]


def test_conditions_of_other_windows_replay_the_same_problems(folder: Path) -> None:
    """What a window does not reach of a replayed problem's samples makes it no other example."""
    run = with_condition(RunDirectory.open(folder / "run"), "whole", Condition(selector="gapft"))
    run = with_condition(run, "early", Condition(selector="gapft", k=1))
    whole, early = (selected(run, name, folder, 4)[-4:] for name in ("whole", "early"))
    assert [e.problem_id for e in early] == [e.problem_id for e in whole]
    assert [e.first_success for e in early] != [e.first_success for e in whole]


def test_a_set_of_a_smaller_k_can_be_taken_by_another_run(folder: Path, tmp_path: Path) -> None:
    """It is held to the evidence that its condition saw there, of its window."""
    shutil.copytree(folder / "run", tmp_path / "source")
    source = RunDirectory.open(tmp_path / "source")
    early = with_condition(source, "early", Condition(selector="gapft", k=1))
    RunDirectory(source.path, early.recipe).write_recipe()
    examples = selected(early, "early", folder, 4)
    assert any(e.state == "G" and e.first_success is None for e in examples)
    plain = dict(zip(("n", "repetitions", "exposures", "tokens"), range(4), strict=True))
    budget = Budget(**plain, supervised_tokens=4, steps=5)
    write_examples(source.path / layout.selection_path(Arm("early", 13)), examples, budget)
    early.seal(layout.selection_path(Arm("early", 13)))
    said = {"condition": early.recipe.conditions["early"].dump_settings("early")}
    early.update_manifest(lambda manifest: manifest["budgets"].update({"early-seed13": said}))
    params = {"run": str(source.path), "condition": "early"}
    theirs = Condition(selector="training_set", params=params)
    run = with_condition(RunDirectory.open(folder / "run"), "theirs", theirs)
    found = OtherRunSets(run, load_plugins()).read_set(Arm("theirs", 13))
    assert [*map(build_example, found.evidence)] == examples
    assert found.facts["k"] == 1


def test_a_card_says_what_its_own_adapter_was_trained_by(folder: Path, tmp_path: Path) -> None:
    plugins = (str(folder / "plugin.py"), str(folder / "online.py"))
    run = RunDirectory.open(folder / "run")
    write_adapters(run, tmp_path, ("gapft", "fast"), plugin_files=plugins)
    rates = {name: run.recipe.resolve_training(name).learning_rate for name in ("gapft", "fast")}
    assert rates["fast"] == 0.001 != rates["gapft"]
    for name, rate in rates.items():
        card = (tmp_path / f"{name}-seed13" / "README.md").read_text()
        assert f"| training.learning_rate | {rate} |" in card, name


def test_what_a_trainer_says_of_its_settings_is_not_replaced(folder: Path, tmp_path: Path) -> None:
    """By another trainer too: one that trained otherwise and says so is not made to agree."""
    run = RunDirectory.open(folder / "run")
    arm, out = Arm("online", 13), tmp_path / "adapter"
    shutil.copytree(run.path / layout.adapter_path(arm), out)
    settings = run.recipe.resolve_training("online").model_dump(mode="json")
    job = TrainingJob(arm, chosen(run.path, "online"), settings, {}, out)
    entry = load_plugins([str(folder / "online.py")]).get("trainer", "online")
    said = {"settings": settings | {"learning_rate": 1.0}, "sequences_sha256": "of others"}
    for facts, written in (({}, said), (said, {})):
        (out / "training.json").write_text(json.dumps({"steps": 1, **written}))
        given = dict(facts)
        _complete_folder(entry, job, given, 1)
        told = json.loads((out / "training.json").read_text())
        for key, value in said.items():
            assert told[key] == given[key] == value
    (out / "training.json").unlink()
    _complete_folder(entry, job, given := {}, 1)
    assert given["settings"] == settings, "one that says nothing is known by what it was given"


# Laws


def recipe(conditions: Any, **more: Any) -> Recipe:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    return check_recipe(content | more | {"conditions": conditions}, "test")


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ({"k": 9}, "key 'conditions.a.k': must be at most search.k, which is 8"),
        ({"k": 0}, "key 'conditions.a.k': .*greater than or equal to 1"),
        ({"replay": 1}, "unknown key 'conditions.a.replay'"),
        (
            {"training": {"rnak": 4}},
            "unknown key 'conditions.a.training.rnak'; did you mean .*rank",
        ),
        ({"training": {"rank": "4"}}, "key 'conditions.a.training.rank': .*found '4'"),
        ({"training": {"start_tokens": 1}}, "'conditions.a.training': start_tokens is 1"),
        ({"run": "x"}, "unknown key 'conditions.a.run'"),
    ],
)
def test_what_cannot_be_is_refused_by_key(condition: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        recipe({"a": {"selector": "gapft", **condition}})


def test_a_reference_takes_no_n_and_controls_take_no_settings() -> None:
    from gapft_harness.recipe.called_plugins import check_names
    from gapft_harness.stages.experiment import load_experiments

    with pytest.raises(UserError, match=r"conditions\.r\.n': selector 'all_verified'"):
        check_names(recipe({"r": {"selector": "all_verified", "n": 4}}), load_plugins())
    depth = {"selector": "search_depth", "params": {"k": 1}}
    of = {"whole": depth, "depth": {**depth, "params": {"k": 4}, "k": 4}}
    with pytest.raises(UserError, match=r"'whole' and 'depth' .*: k not set → 4"):
        load_experiments(recipe(of, experiments={"search_depth": {}}), load_plugins())


own = st.fixed_dictionaries(
    {"selector": st.just("gapft")},
    optional={
        "k": st.integers(1, 8),
        "training": st.fixed_dictionaries(
            {}, optional={"rank": st.sampled_from([4, 8]), "trainer": st.just("lora")}
        ),
    },
)


@given(st.lists(own, min_size=1, max_size=5), st.data())
def test_conditions_of_one_group_have_the_same_settings(
    given_: list[dict[str, Any]], data: Any
) -> None:
    of = recipe({f"c{i}": said for i, said in enumerate(given_)})
    slots = {name: data.draw(st.integers(1, 2)) for name in of.conditions}
    settled = {
        name: (slots[name], of.find_k(name), of.resolve_training(name)) for name in of.conditions
    }
    groups = group_by_budget({Arm(name, 13): None for name in of.conditions}, slots, of, {})
    for group in groups:
        assert len({settled[arm.condition] for arm in group}) == 1
    assert len(groups) == len(set(settled.values())), "and those that have them are of one group"
    said = find_own_settings(of.model_dump(mode="json"))
    assert not any(value == of.search.k for of_one in said.values() for value in [of_one.get("k")])


def test_the_states_of_a_window_are_made_once(folder: Path) -> None:
    table = pq.read_table(folder / "run" / layout.states_path("pool", (0, 2)))
    assert set(table["samples"].to_pylist()) == {2}
