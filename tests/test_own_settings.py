"""Conditions with their own K and training settings, in one run and one paired table."""

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
from gapft_harness.core.records import Arm, Example
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import TrainingJob
from gapft_harness.recipe.called_plugins import find_selector
from gapft_harness.recipe.conditions import Condition, find_own_settings
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.evidence import read_evidence
from gapft_harness.run_directory.tables import read_examples, read_states
from gapft_harness.stages.selection.budgets import group_by_budget
from gapft_harness.stages.selection.choosing import (
    ConditionPools,
    build_example,
    count_slots,
    fill_slots,
)
from gapft_harness.stages.train.job import _complete_folder
from gapft_harness.stages.train.stored import compute_groups, find_stale
from gapft_harness.stages.verify.run import verify
from tests.kit.command import succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.tampering import change_manifest
from tests.kit.tiny_models import CHAT_TEMPLATE, write_byte_llama

#: A trainer that reports few facts, as an online trainer may.
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


def run_arguments(name: str, recipe: str = "recipe.yaml") -> tuple[str, ...]:
    return ("run", recipe, "--include-path", "tasks", *PLUGINS, "--run-dir", name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own_settings")
    prepare_letters_run(folder)
    shutil.rmtree(folder / "model")
    write_byte_llama(folder / "model", chat_template=CHAT_TEMPLATE, add_bos=True)
    (folder / "online.py").write_text(ONLINE)
    content = yaml.safe_load((folder / "recipe.yaml").read_text())
    content |= {"conditions": CONDITIONS, "seeds": [13], "executor": {"workers": 1}}
    content["model"] |= {"chat_template": True, "start_tokens": 2}
    content["training"]["repetitions"] = 1
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    succeed(*run_arguments("run"), cwd=folder)
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "run" / "report" / "results.json").read_text())
    return content


def read_training_facts(run: Path, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "adapters" / name / "training.json").read_text())
    return content


def read_selection(run: Path, condition: str) -> list[Any]:
    return read_examples(run / layout.selection_path(Arm(condition, 13)))


def test_trains_each_arm_with_its_own_settings(folder: Path) -> None:
    run = folder / "run"
    settings = {name: read_training_facts(run, f"{name}-seed13")["settings"] for name in CONDITIONS}
    plain = settings["gapft"]
    for name, condition in CONDITIONS.items():
        assert settings[name] == plain | condition.get("training", {}), name
    adapters = {
        name: read_training_facts(run, f"{name}-seed13")["adapter_sha256"] for name in CONDITIONS
    }
    same = {name for name, sha in adapters.items() if sha == adapters["gapft"]}
    assert {"gapft", "online", "again"} <= same, "the online trainer trains as the bundled one"
    assert not same & {"fast", "older", "uniform"}
    recorded = json.loads((run / "manifest.json").read_text())["training"]
    assert recorded["again-seed13"]["trained_as"] == "gapft-seed13"
    assert "trained_as" not in recorded["online-seed13"]


def test_smaller_k_is_a_window_of_one_search(folder: Path) -> None:
    """Nested search budgets (Appendix A): the window holds only the first K samples."""
    run = folder / "run"
    search = {file.name for file in (run / "pool").glob("*.parquet")}
    assert search == {"problems.parquet", "responses.parquet", "states.parquet"}
    windows = {path.name for path in (run / "pool" / "states").iterdir()}
    assert windows == {"0-1.parquet", "0-2.parquet"}
    whole = {state.problem_id: state for state in read_states(run / layout.states_path("pool"))}
    recovered = []
    for k, condition in ((1, "gapft_1"), (2, "uniform_2"), (4, "gapft")):
        states = [*read_states(run / layout.states_path("pool", None if k == 4 else (0, k)))]
        for state in states:
            early = whole[state.problem_id]
            in_time = early.first_success is not None and early.first_success < k
            expected = "G" if early.state == "G" else "S" if in_time else "U"
            assert state.state == expected
        recovered.append({state.problem_id for state in states if state.state == "S"})
        verified = recovered[-1] | {state.problem_id for state in states if state.state == "G"}
        examples = read_selection(run, condition)
        assert {e.problem_id for e in examples} <= verified
        assert all(e.response_index < k for e in examples)
        assert len(examples) == len(recovered[-1])
    assert recovered[0] < recovered[1] < recovered[2]
    assert {e.problem_id for e in read_selection(run, "gapft_1")} == recovered[0]


def test_window_evidence_excludes_later_responses(folder: Path) -> None:
    run, later = folder / "run", 0
    for k in (1, 2, 3, 4):
        if not (run / layout.states_path("pool", (0, k))).exists():
            continue
        for evidence in read_evidence(run, "pool", window=(0, k)):
            indices = [response.index for response in evidence.verified]
            assert len([i for i in indices if i >= 0]) == evidence.passing_samples
            assert all(index < k for index in indices)
    for evidence in read_evidence(run, "pool"):
        later += any(response.index >= 2 for response in evidence.verified)
    assert later, "there is something that a window leaves out"


def test_arms_with_other_settings_are_never_matched(folder: Path, results: dict[str, Any]) -> None:
    own = {name: contrast.get("own", {}) for name, contrast in results["conditions"].items()}
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
    for (a, b), contrast in pairs.items():
        alike = own[a] == own[b]
        assert contrast["matched_budget"] == alike, (a, b)
        assert set(contrast.get("differs", [])) == {*own[a]} ^ {*own[b]} | {
            key for key in {*own[a]} & {*own[b]} if own[a][key] != own[b][key]
        }
    page = (folder / "run" / "report" / "index.html").read_text()
    for text in (
        "uniform 2 (K = 2 of 4)",
        "online (trainer online)",
        "older (start tokens 1)",
        "‡ Not matched: the two differ in a declared setting",
    ):
        assert text in page, text


def test_reports_recovered_problems_by_k(folder: Path, results: dict[str, Any]) -> None:
    run = folder / "run"
    states = [*read_states(run / layout.states_path("pool"))]
    expected = {
        str(k): sum(state.state == "S" and (state.first_success or 0) < k for state in states)
        for k in range(1, 5)
    }
    assert results["pool"]["recovered_by_k"] == expected
    assert expected["4"] == results["pool"]["states"]["S"]
    assert "first K samples of the search recover" in (run / "report" / "index.html").read_text()


def test_verify_checks_each_arms_own_settings(folder: Path, tmp_path: Path) -> None:
    plugins = [str(folder / "plugin.py"), str(folder / "online.py")]
    result = verify(folder / "run", plugins)
    assert not result.differences, result.differences
    assert any("7 adapters were trained on the steps" in line for line in result.checked)
    assert any("1 adapters of trainer 'online'" in line for line in result.checked)
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


def test_added_condition_leaves_other_adapters_unchanged(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    place, recipe = tmp_path / "copy", yaml.safe_load((folder / "recipe.yaml").read_text())
    # declaring the run's own value changes nothing
    conditions = CONDITIONS | {"gapft": {"k": 4, "training": {"trainer": "lora"}}}
    (place / "changed.yaml").write_text(
        yaml.safe_dump(recipe | {"conditions": conditions}, sort_keys=False)
    )
    before = {p.name: p.stat().st_mtime_ns for p in (place / "run" / "adapters").iterdir()}
    added = conditions | {"slow": {"selector": "gapft", "training": {"learning_rate": 1e-6}}}
    (place / "changed.yaml").write_text(
        yaml.safe_dump(recipe | {"conditions": added}, sort_keys=False)
    )
    succeed(*run_arguments("run", "changed.yaml"), cwd=place)
    after = {p.name: p.stat().st_mtime_ns for p in (place / "run" / "adapters").iterdir()}
    assert {name for name in after if before.get(name) != after[name]} == {"slow-seed13"}


def test_adapter_with_other_settings_is_not_reused(folder: Path, tmp_path: Path) -> None:
    """Other settings give another key; unsealed adapters with other settings are stale."""
    shutil.copytree(folder / "run", tmp_path / "run")
    plugins = load_plugins([str(folder / "plugin.py"), str(folder / "online.py")])
    run = RunDirectory.open(tmp_path / "run")
    arms = [Arm(name, 13) for name in CONDITIONS]

    def unseal(manifest: Any) -> None:
        for arm in arms:
            del manifest["files"][layout.adapter_path(arm)]

    def with_training(name: str, training: dict[str, Any]) -> RunDirectory:
        content = run.recipe.model_dump(mode="json")
        content["conditions"][name]["training"] = training
        return RunDirectory(run.path, check_recipe(content, "test"))

    def group_arms(run_directory: RunDirectory) -> dict[Arm, Any]:
        return compute_groups(
            run_directory, arms, plugins, lambda: pytest.fail("no trainer needs problems")
        )

    keys_by_arm = {arm: group.key for arm, group in group_arms(run).items()}
    again, gapft = Arm("again", 13), Arm("gapft", 13)
    assert [arm for arm in arms if keys_by_arm[arm] == keys_by_arm[gapft]] == [gapft, again]
    assert (
        group_arms(with_training("again", {"learning_rate": 0.002}))[again].key
        not in keys_by_arm.values()
    )
    change_manifest(run.path, unseal)
    for name in ("fast", "online", "older"):
        changed = with_training(name, {"rank": 4})
        assert [*find_stale(changed, group_arms(changed))] == [Arm(name, 13)]
    assert [*find_stale(run, group_arms(run))] == []


def add_condition(run: RunDirectory, name: str, condition: Condition) -> RunDirectory:
    conditions = {**run.recipe.conditions, name: condition}
    return RunDirectory(run.path, run.recipe.model_copy(update={"conditions": conditions}))


def select_examples(run: RunDirectory, name: str, folder: Path, replay: int) -> list[Example]:
    """Select a condition's examples without sealing anything."""
    plugins = load_plugins([str(folder / "plugin.py"), str(folder / "online.py")])
    selector, entry = find_selector(run.recipe, name, plugins)
    pool, arm = ConditionPools(run).read_pool(name), Arm(name, 13)
    n = count_slots(run.recipe.find_slots(name), pool)
    return [build_example(e) for e in fill_slots(selector, entry, pool, n, replay, arm)]


def test_windows_replay_the_same_problems(folder: Path) -> None:
    """A replayed problem is the same example in every window."""
    run = add_condition(RunDirectory.open(folder / "run"), "whole", Condition(selector="gapft"))
    run = add_condition(run, "early", Condition(selector="gapft", k=1))
    whole, early = (select_examples(run, name, folder, 4)[-4:] for name in ("whole", "early"))
    assert [e.problem_id for e in early] == [e.problem_id for e in whole]
    assert [e.first_success for e in early] != [e.first_success for e in whole]


def test_settings_reported_by_trainer_are_kept(folder: Path, tmp_path: Path) -> None:
    """This also holds for a trainer whose reported settings differ from the recipe."""
    run = RunDirectory.open(folder / "run")
    arm, out = Arm("online", 13), tmp_path / "adapter"
    shutil.copytree(run.path / layout.adapter_path(arm), out)
    settings = run.recipe.resolve_training("online").model_dump(mode="json")
    job = TrainingJob(arm, read_selection(run.path, "online"), settings, {}, out)
    entry = load_plugins([str(folder / "online.py")]).get("trainer", "online")
    reported = {"settings": settings | {"learning_rate": 1.0}, "sequences_sha256": "of others"}
    for facts, written in (({}, reported), (reported, {})):
        (out / "training.json").write_text(json.dumps({"steps": 1, **written}))
        completed = dict(facts)
        _complete_folder(entry, job, completed)
        stored = json.loads((out / "training.json").read_text())
        for key, value in reported.items():
            assert stored[key] == completed[key] == value
    (out / "training.json").unlink()
    _complete_folder(entry, job, completed := {})
    assert completed["settings"] == settings, "one that says nothing is known by what it was given"


# Laws


def build_recipe(conditions: Any, **more: Any) -> Recipe:
    content = {"name": "r", "data": {"task": "t"}, "model": {"args": {"pretrained": "m"}}}
    return check_recipe(content | more | {"conditions": conditions}, "test")


@pytest.mark.parametrize(
    ("condition", "expected"),
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
def test_rejects_invalid_condition_settings(condition: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        build_recipe({"a": {"selector": "gapft", **condition}})


def test_rejects_n_for_references_and_differing_controls() -> None:
    from gapft_harness.recipe.called_plugins import check_names
    from gapft_harness.stages.experiment import load_experiments

    with pytest.raises(UserError, match=r"conditions\.r\.n': selector 'all_verified'"):
        check_names(build_recipe({"r": {"selector": "all_verified", "n": 4}}), load_plugins())
    depth = {"selector": "search_depth", "params": {"k": 1}}
    conditions = {"whole": depth, "depth": {**depth, "params": {"k": 4}, "k": 4}}
    with pytest.raises(UserError, match=r"'whole' and 'depth' .*: k not set → 4"):
        load_experiments(build_recipe(conditions, experiments={"search_depth": {}}), load_plugins())


own_settings = st.fixed_dictionaries(
    {"selector": st.just("gapft")},
    optional={
        "k": st.integers(1, 8),
        "training": st.fixed_dictionaries(
            {}, optional={"rank": st.sampled_from([4, 8]), "trainer": st.just("lora")}
        ),
    },
)


@given(st.lists(own_settings, min_size=1, max_size=5), st.data())
def test_budget_groups_share_settings(conditions: list[dict[str, Any]], data: Any) -> None:
    group_recipe = build_recipe({f"c{i}": condition for i, condition in enumerate(conditions)})
    slots = {name: data.draw(st.integers(1, 2)) for name in group_recipe.conditions}
    settings = {
        name: (slots[name], group_recipe.find_k(name), group_recipe.resolve_training(name))
        for name in group_recipe.conditions
    }
    groups = group_by_budget(
        {Arm(name, 13): None for name in group_recipe.conditions}, slots, group_recipe
    )
    for group in groups:
        assert len({settings[arm.condition] for arm in group}) == 1
    assert len(groups) == len(set(settings.values())), "and those that have them are of one group"
    condition = find_own_settings(group_recipe.model_dump(mode="json"))
    assert not any(
        value == group_recipe.search.k
        for of_one in condition.values()
        for value in [of_one.get("k")]
    )


def test_computes_window_states_once(folder: Path) -> None:
    table = pq.read_table(folder / "run" / layout.states_path("pool", (0, 2)))
    assert set(table["samples"].to_pylist()) == {2}
