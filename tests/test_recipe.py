"""Recipes: values, defaults and identity, and the effect of each key on the stages that read it."""

from __future__ import annotations

import random
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gapft_harness.core.json_values import describe_change
from gapft_harness.recipe.bundled import list_bundled_recipes
from gapft_harness.recipe.conditions import find_own_settings
from gapft_harness.recipe.reading import Setting, check_recipe, load_recipe
from gapft_harness.recipe.recipe import Recipe, build_sampler_settings
from gapft_harness.run_directory.directory import SPLITS, RunDirectory
from gapft_harness.stages.pipeline import run_stages
from tests.kit.recording_run import LettersTask, write_letters_task

MINIMAL: dict[str, Any] = {
    "name": "r",
    "data": {"task": "t"},
    "model": {"args": {"pretrained": "m"}},
}


def test_defaults_are_the_papers_logic_settings() -> None:
    recipe = check_recipe(MINIMAL, "x")
    training = recipe.training
    assert (training.rank, training.alpha, training.dropout) == (8, 16, 0.05)
    assert training.target_modules == (
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    )  # fmt: skip
    assert (training.learning_rate, training.weight_decay, training.clip_norm) == (5e-5, 0.01, 1.0)
    assert (training.micro_batch, training.accumulation, training.repetitions) == (2, 8, 8)
    assert training.max_length == 2048
    assert (recipe.search.k, recipe.search.temperature, recipe.search.top_p) == (8, 0.7, 0.95)
    assert recipe.seeds == (13, 21, 73)
    assert [*recipe.conditions] == ["gapft", "uniform", "replay", "all_verified"]
    assert recipe.statistics.replicates == 2000


def test_a_run_keeps_texts_that_look_like_numbers(tmp_path: Path) -> None:
    model = {"args": {"pretrained": "m", "revision": "1234e56", "dtype": "012"}}
    recipe = check_recipe({**MINIMAL, "model": model}, "x")
    run = RunDirectory.create_or_open(tmp_path / "r", recipe)
    assert load_recipe(run.path / "recipe.yaml") == RunDirectory.open(run.path).recipe == recipe


def test_enable_thinking_is_a_template_argument() -> None:
    def identify(**args: Any) -> dict[str, Any]:
        model = {"args": {"pretrained": "m", **args}}
        return check_recipe({**MINIMAL, "model": model}, "x").build_identity()

    on, off = (identify(enable_thinking=value) for value in (True, False))
    assert on["model"]["args"]["chat_template_args"] == {"enable_thinking": True}
    assert off == identify(chat_template_args={"enable_thinking": False}) != on
    assert identify(enable_thinking=None) == identify()
    both = identify(enable_thinking=False, chat_template_args={"effort": "low"})
    assert both["model"]["args"]["chat_template_args"] == {
        "effort": "low",
        "enable_thinking": False,
    }


def test_think_end_token_is_a_setting_of_the_verifier() -> None:
    args = {"pretrained": "m", "think_end_token": "</reason>"}
    recipe = check_recipe({**MINIMAL, "model": {"args": args}}, "x")
    assert "think_end_token" not in build_sampler_settings(recipe).model_args
    assert recipe.build_identity()["model"]["args"] == args
    assert recipe.add_think_end_token({"rule": "a"}) == {
        "rule": "a",
        "think_end_token": "</reason>",
    }
    assert recipe.add_think_end_token({"think_end_token": "<end>"}) == {"think_end_token": "<end>"}


@pytest.mark.parametrize("name", sorted(list_bundled_recipes()))
def test_bundled_recipes_are_valid_and_described(name: str) -> None:
    recipe = load_recipe(list_bundled_recipes()[name])
    assert recipe.description


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("paper/llama-logiqa", "whole_response"),
        ("paper/qwen-logiqa", "whole_response"),
        ("paper/mistral-logiqa", "first_explicit"),
        ("paper/llama-reclor", "first_explicit"),
        ("paper/qwen-reclor", "first_explicit"),
        ("paper/mistral-reclor", "first_explicit"),
    ],
)
def test_paper_recipes_have_the_papers_settings(name: str, rule: str) -> None:
    """Table 4: only the model, the task and the verifier's rule differ."""
    recipe = load_recipe(list_bundled_recipes()[name])
    plain = check_recipe(MINIMAL, "x")
    assert recipe.verifier.params == {"rule": rule}
    assert recipe.training == plain.training
    assert recipe.search == plain.search.model_copy(update={"max_gen_toks": 64, "chunk": 64})
    assert (recipe.seeds, recipe.conditions) == (plain.seeds, plain.conditions)
    assert recipe.statistics == plain.statistics
    assert recipe.evidence.keep == "shortest"


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("paper/qwen-coder-livecodebench", "Qwen/Qwen2.5-Coder-7B-Instruct"),
        ("paper/deepseek-coder-livecodebench", "deepseek-ai/deepseek-coder-6.7b-instruct"),
    ],
)
def test_paper_code_recipes_have_the_papers_settings(name: str, model: str) -> None:
    """Table 7; settings that it does not name keep the default."""
    recipe = load_recipe(list_bundled_recipes()[name])
    plain = check_recipe(MINIMAL, "x")
    assert (recipe.data.task, recipe.model.args["pretrained"]) == ("gapft_livecodebench", model)
    assert recipe.search == plain.search.model_copy(
        update={"k": 16, "max_gen_toks": 1536, "chunk": 64}
    )
    assert (recipe.episode.attempts, recipe.episode.executions) == (3, 3)
    assert recipe.evidence == plain.evidence.model_copy(update={"keep": "shortest"})
    assert recipe.training == plain.training.model_copy(
        update={
            "rank": 16,
            "alpha": 32,
            "micro_batch": 1,
            "update_groups": 64,
            "repetitions": 1,
            "max_length": 8192,
            "too_long": "truncate",
            "gradient_checkpointing": True,
        }
    )
    assert [*recipe.conditions] == ["diffuse", "concentrated"]
    assert [*recipe.experiments["allocation"].values()] == [*recipe.conditions]
    assert recipe.seeds == (13, 21, 42)
    assert recipe.statistics.replicates == 20_000
    assert (recipe.budget.n, recipe.budget.replay, recipe.budget.token_tolerance) == (64, 64, 0.02)


DEMO: dict[str, Any] = {
    **MINIMAL,
    "data": {"task": "gapft_demo"},
    "model": {"args": {"pretrained": "bundled:demo"}},
}


@pytest.mark.parametrize(
    ("key", "default", "other"),
    [
        ("episode.attempts", 1, 2),
        ("episode.executions", 1, 3),
        ("search.max_gen_toks", 24, 25),
        ("verifier.name", "option_letter", "math"),
    ],
)
def test_setting_the_default_changes_nothing(
    key: str, default: object, other: object, tmp_path: Path
) -> None:
    def build_recipe(*settings: Setting) -> Recipe:
        return check_recipe(deepcopy(DEMO), "test", settings)

    run = RunDirectory.create_or_open(tmp_path / "r", build_recipe())
    facts = {
        "episode": {"attempts": 1, "executions": 1},
        "decoding": {"max_gen_toks": 24, "until": []},
        "verifier": "option_letter",
    }
    run.update_facts(lambda recorded: recorded.update(task=facts))
    expected = build_recipe(Setting(key, default, "--set"))
    assert RunDirectory.create_or_open(run.path, expected).recipe == expected
    assert not RunDirectory.create_or_open(run.path, expected).changes
    changed = RunDirectory.create_or_open(
        run.path, build_recipe(Setting(key, other, "--set"))
    ).changes
    assert changed == [describe_change(key, default, other)]


# Effects of keys

#: Samples 0, 1 and 3 of each problem's four are right; sample 1 is the shortest.
K = {"k": 4}


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path)


def read_rows(run: RunDirectory, table: str) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = pq.read_table(run.path / f"{table}.parquet").to_pylist()
    return records


def read_ids(run: RunDirectory, split: str = "pool") -> set[str]:
    return {row["problem_id"].rpartition("-")[0] for row in read_rows(run, f"{split}/problems")}


def list_decodings(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a log's distinct decodings: greedy first, then those of the samples."""
    distinct: list[dict[str, Any]] = []
    for call in log:
        for decoding in call.get("decodings", ()):
            if decoding not in distinct:
                distinct.append(decoding)
    return distinct


def test_model_keys_reach_the_sampler(task: LettersTask) -> None:
    keys = {"start_tokens": 2, "chat_template": True, "system_instruction": "Brief."}
    for name, model in (("plain", {}), ("changed", keys)):
        task.run(name, model={**model, "args": {"dtype": "float32"}})
        settings = task.log(name)[0]["settings"]
        assert settings["backend"] == "recording"
        assert settings["model_args"]["dtype"] == "float32"
        expected = {**dict.fromkeys(keys), "chat_template": False, **model}
        assert {key: settings[key] for key in keys} == expected


def test_search_keys_reach_the_decoding_of_samples(task: LettersTask) -> None:
    defaults = {"temperature": 0.7, "top_p": 0.95, "top_k": 0, "max_gen_toks": 12}
    changed = {"temperature": 0.35, "top_p": 0.6, "top_k": 7, "max_gen_toks": 5}
    for name, keys in (("defaults", {}), ("changed", changed)):
        task.run(name, search={**K, **keys})
        greedy, samples = list_decodings(task.log(name))
        assert (greedy["do_sample"], samples["do_sample"]) == (False, True)
        expected = {**defaults, **keys}
        assert {key: samples[key] for key in defaults} == expected
        assert greedy["max_gen_toks"] == expected["max_gen_toks"], "both share the length"


def test_a_condition_that_repeats_the_runs_settings_has_none_of_its_own() -> None:
    """In whole or in part; each part that differs is its own."""
    training = {"trainer": "grpo", "learning_rate": 0.001}
    same: dict[str, Any] = {"learning_rate": 0.001, "grpo": {"group_size": 8, "mask_flat": False}}
    other = {"grpo": {"group_size": 4}}
    conditions = {"gapft": {"training": same}, "uniform": {"training": other}, "replay": {}}
    recipe = check_recipe({**MINIMAL, "training": training, "conditions": conditions}, "test")
    own = find_own_settings(recipe.model_dump(mode="json"))
    assert (own["gapft"], own["replay"]) == ({}, {})
    assert own["uniform"]["training.grpo"]["group_size"] == 4


@pytest.mark.parametrize(("keep", "index"), [(None, 1), ("first", 0), ("last", 3)])
def test_evidence_keep_replaces_the_tasks_rule(
    task: LettersTask, keep: str | None, index: int
) -> None:
    run = task.run("r", splits=SPLITS, search=K, evidence={"keep": "last"})
    for rule in ("last", keep):  # with one search
        content = run.recipe.model_dump(mode="json") | {"evidence": {"keep": rule}}
        run = RunDirectory.create_or_open(run.path, check_recipe(content, "test"))
        run_stages(task.context(run), ["states"], lambda stage: None)
    assert {row["kept_index"] for row in read_rows(run, "states/pool")} == {index}
    assert {row["first_success"] for row in read_rows(run, "states/pool")} == {0}


@pytest.mark.parametrize(
    ("verifier", "passing"),
    [
        ({}, 3),
        ({"params": {"word": "!!!!"}}, 2),
        ({"name": "nothing"}, 0),
        ({"name": "contains", "params": {"word": "so"}}, 3),
    ],
)
def test_verifier_keys_replace_verifier_and_rule(
    task: LettersTask, verifier: dict[str, Any], passing: int
) -> None:
    """Samples 0, 1 and 3 of 4 are right, with 5, 3 and 4 exclamation marks."""
    run = task.run("r", search=K, verifier=verifier)
    passed = [row["status"] == "pass" for row in read_rows(run, "pool/responses")]
    assert sum(passed) == 24 * passing
    facts = run.task
    assert facts["verifier"] == verifier.get("name", "contains")
    own = {} if verifier.get("name") == "nothing" else {"word": ""}
    assert facts["verifier_params"] == {**own, **verifier.get("params", {})}


@pytest.mark.parametrize(("split", "other"), [("pool", "audit"), ("audit", "pool")])
def test_limits_select_problems_by_id_hash(task: LettersTask, split: str, other: str) -> None:
    both = ("pool", "audit")
    whole = task.run("whole", splits=both)
    sizes = {name: len(read_ids(whole, name)) for name in both}
    drawn = {
        n: read_ids(task.run(f"limit{n}", splits=(split,), data={f"{split}_limit": n}), split)
        for n in (3, 8, 15)
    }
    assert [len(drawn[n]) for n in drawn] == list(drawn)
    assert drawn[3] < drawn[8] < drawn[15] < read_ids(whole, split)
    for n, chosen in drawn.items():
        assert chosen != {f"{split}{i}" for i in range(n)}, "the first of the file are no draw"
    order = list(range(sizes[split]))
    random.Random(0).shuffle(order)
    task.write(split, order)
    again = task.run("again", splits=both, data={f"{split}_limit": 8})
    assert read_ids(again, split) == drawn[8]
    assert len(read_ids(again, other)) == sizes[other], "the other split's limit is its own"


def test_deduplicate_drops_repeats(task: LettersTask) -> None:
    task.write("pool", range(24), repeats=5)
    with_repeats = task.run("kept")
    dropped = task.run("dropped", data={"deduplicate": True})
    assert len(read_rows(with_repeats, "pool/problems")) == 29
    assert len(read_rows(dropped, "pool/problems")) == 24
    assert len({row["prompt"] for row in read_rows(dropped, "pool/problems")}) == 24
    assert "pool: 5 repeated problems dropped" in "\n".join(dropped.task["dropped"])
