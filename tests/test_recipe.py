"""Recipes: errors name the key; the identity fixes a run's search."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import resolve_recipe
from gapft_harness.core.errors import UserError
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.recipe.bundled import list_bundled_recipes
from gapft_harness.recipe.messages import iterate_keys
from gapft_harness.recipe.reading import Setting, check_recipe, load_recipe
from gapft_harness.recipe.recipe import Recipe, build_sampler_settings
from gapft_harness.stages.experiment import load_experiments

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


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"serach": {"k": 2}}, "unknown key 'serach'; did you mean 'search'?"),
        ({"search": {"kk": 2}}, "unknown key 'search.kk'; did you mean 'search.k'?"),
        ({"k": 2}, "unknown key 'k'; did you mean 'search.k'?"),
        ({"seeds": 13}, "key 'seeds': expected a list, e.g. [13, 21, 73]; found 13"),
        (
            {"tracker": "tensorbord"},
            "key 'tracker': input should be 'tensorboard', 'wandb' or 'trackio'",
        ),
        ({"search": 3}, "key 'search': expected a section with keys such as k, temperature, top"),
        (
            {"budget": {"n": "all"}},
            "key 'budget.n': input should be a valid integer or input should be 'recovered' or",
        ),
        ({"search": {"k": "many"}}, "key 'search.k': input should be a valid integer"),
        ({"search": {"k": True}}, "key 'search.k': input should be a valid integer"),
        ({"search": {"k": "8"}}, "key 'search.k': input should be a valid integer"),
        ({"data": {"task": "t", "deduplicate": 1}}, "key 'data.deduplicate'"),
        ({"seeds": ["13"]}, "key 'seeds.0'"),
        ({"seeds": "9-3"}, "key 'seeds'"),
        ({"seeds": "3-"}, "key 'seeds': expected a list, e.g. [13, 21, 73]; found '3-'"),
        ({"search": {"k": 0}}, "key 'search.k': input should be greater than or equal to 1"),
        ({"model": {"args": {"dtype": "float32"}}}, "key 'model.args': `pretrained` is missing"),
        (
            {"model": {"args": {"pretrained": "a/m.gguf"}}},
            "key 'model.args': expected a model folder, not",
        ),
        ({"model": {"args": {"pretrained": "a", "gguf_file": "m"}}}, "not a GGUF file"),
        (
            {"model": {"args": {"pretrained": "m", "think_end_token": 151668}}},
            "key 'model.args': think_end_token: found 151668",
        ),
        (
            {"model": {"args": {"pretrained": "m", "enable_thinking": "no"}}},
            "key 'model.args': enable_thinking: found 'no'; expected true or false",
        ),
        (
            {
                "model": {
                    "args": {
                        "pretrained": "m",
                        "enable_thinking": True,
                        "chat_template_args": {"enable_thinking": False},
                    }
                }
            },
            "key 'model.args': enable_thinking: found True, but chat_template_args has False",
        ),
        ({"seeds": [13, 13]}, "key 'seeds': contains a duplicate"),
        ({"conditions": ["a/b"]}, "key 'conditions': 'a/b' contains /"),
        ({"conditions": []}, "key 'conditions'"),
        ({"budget": {"n": 0}}, "must be at least 1, `recovered` or `verified`"),
        ({"name": "a/b"}, "key 'name'"),
        ({"data": {}}, "missing key 'data.task'"),
    ],
)
def test_mistake_names_key_and_expected_value(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError) as caught:
        check_recipe({**MINIMAL, **change}, "recipe r.yaml")
    assert str(caught.value).startswith("recipe r.yaml: ")
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n- b\n", "expected a mapping of keys, found list"),
        ("a: [1\n", "is not valid YAML: line 2, column 1: "),
        ("seeds: [1]\nseeds: [2]\n", "line 2, column 1: duplicate key 'seeds'"),
        ("", "expected a mapping of keys, found NoneType"),
    ],
)
def test_rejects_files_that_are_not_recipes(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=f"recipe {path}: .*{expected}"):
        load_recipe(path)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.yaml: cannot be read"):
        load_recipe(tmp_path / "none.yaml")


def test_overrides_reach_nested_keys_and_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("name: r\ndata: {task: t}\nmodel: {args: {pretrained: m}}\n")
    recipe = load_recipe(path, ["search.k=16", "seeds=[1, 2]", "model.args.dtype=float32"])
    assert (recipe.search.k, recipe.seeds) == (16, (1, 2))
    assert recipe.model.args == {"pretrained": "m", "dtype": "float32"}
    with pytest.raises(UserError, match=r"unknown key 'search\.kk'"):
        load_recipe(path, ["search.kk=16"])
    assert load_recipe(path, ["training.learning_rate=1e-4"]).training.learning_rate == 1e-4
    with pytest.raises(UserError, match="expected key=value"):
        load_recipe(path, ["search.k"])


@pytest.mark.parametrize("key", [k for k, info in iterate_keys(Recipe) if "tuple" in str(info)])
def test_list_valued_key_shows_valid_example(key: str) -> None:
    with pytest.raises(UserError, match=r"expected a list, e\.g\. ") as caught:
        check_recipe(deepcopy(MINIMAL), "x", [Setting(key, 13, f"--set {key}=13")])
    message = str(caught.value)
    assert message.startswith(f"--set {key}=13: key {key!r}: expected a list, e.g. [")
    example_text = message.partition("e.g. ")[2].partition("; found 13")[0]
    example = yaml.safe_load(example_text)
    check_recipe(deepcopy(MINIMAL), "x", [Setting(key, example, f"--set {key}={example_text}")])


FILE = "name: r\ndata: {task: t}\nmodel: {args: {pretrained: m}}\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["search.kk=3"], "--set search.kk=3: unknown key 'search.kk'; did you mean 'search.k'?"),
        (["k=3"], "--set k=3: unknown key 'k'; did you mean 'search.k'?"),
        (["search.k=3", "search.k=x"], "--set search.k=x: key 'search.k': input should be a valid"),
        (["search={k: x}"], "--set search={k: x}: key 'search.k': input should be a valid integer"),
        (["serach.k=3"], "--set serach.k=3: unknown key 'serach'; did you mean 'search'?"),
        (["data.task.x=3"], "--set data.task.x=3: key 'data.task.x': 'task' is a value, not a sec"),
        (["seeds=13,21"], "--set seeds=13,21: key 'seeds': expected a list, e.g. [13, 21, 73]"),
        (["search..k=1"], "--set search..k=1: expected key=value"),
        (["seeds=[1"], "--set seeds=[1: value is not YAML: line 1, column 3: expected ',' or ']'"),
        (
            ["budget.n=1", "training.update_groups=90"],
            "recipe FILE with --set budget.n=1 --set training.update_groups=90: key 'training': "
            "update_groups is 90, but",
        ),
    ],
)
def test_mistakes_in_overrides_name_the_option(
    tmp_path: Path, options: list[str], expected: str
) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(FILE)
    with pytest.raises(UserError) as caught:
        resolve_recipe(Options(str(path), overrides=options))
    assert str(caught.value).startswith(expected.replace("FILE", str(path)))


def test_mistakes_in_dedicated_options_name_them(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(FILE)
    for choice, expected in (
        (
            Options(str(path), seeds=[3, 3]),
            "--seed 3 --seed 3: key 'seeds': contains a duplicate",
        ),
        (
            Options(str(path), conditions=["a", "a"]),
            "--condition a --condition a: key 'conditions'",
        ),
        (
            Options(str(path), model_args="pretrained=3"),
            "--model-args pretrained=3: key 'model.",
        ),
        (
            Options(str(path), model_args="a=1,b"),
            "--model-args b: expected key=value,..., e.g. pr",
        ),
        (
            Options(str(path), model_args="a=[1,2]"),
            "--model-args a=[1: value is not YAML: line 1",
        ),
    ):
        with pytest.raises(UserError) as caught:
            resolve_recipe(choice)
        assert str(caught.value).removeprefix(f"recipe {path} with ").startswith(expected)


def test_mistakes_in_the_file_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(FILE + "search: {kk: 3}\n")
    with pytest.raises(UserError, match=f"^recipe {path}: unknown key 'search.kk'"):
        resolve_recipe(Options(str(path), overrides=["search.k=3"]))


def test_wrong_encoding_is_reported_by_line(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_bytes(FILE.encode() + b"description: caf\xe9\n")
    with pytest.raises(
        UserError, match=r"r\.yaml, line 4: expected UTF-8 text, .* 'ription: café'"
    ):
        load_recipe(path)


def test_identity_covers_the_search_inputs() -> None:
    recipe = check_recipe(MINIMAL, "x")
    assert recipe.build_search_identity()["model"]["args"] == recipe.model.args
    free = set(Recipe.model_fields) - set(recipe.build_search_identity())
    assert free == {
        "conditions", "seeds", "budget", "executor", "tracker", "description",
        "notes", "statistics", "evidence", "training", "paper",
    }  # fmt: skip
    assert set(recipe.build_training_identity()) == {"evidence", "training", "budget"}
    assert (
        check_recipe(recipe.build_search_identity(), "again").build_search_identity()
        == recipe.build_search_identity()
    )


def test_enable_thinking_is_a_template_argument() -> None:
    def identify(**args: Any) -> dict[str, Any]:
        model = {"args": {"pretrained": "m", **args}}
        return check_recipe({**MINIMAL, "model": model}, "x").build_search_identity()

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
    assert recipe.build_search_identity()["model"]["args"] == args
    assert recipe.add_think_end_token({"rule": "a"}) == {
        "rule": "a",
        "think_end_token": "</reason>",
    }
    assert recipe.add_think_end_token({"think_end_token": "<end>"}) == {"think_end_token": "<end>"}


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (None, {"calibration": "validation"}, True),
        ({"calibration": "validation", "level": 0.1}, {"calibration": "validation"}, True),
        ({"calibration": 9, "tolerance": 0.5}, {"calibration": 9}, True),
        ({"calibration": 9}, {"calibration": 8}, False),
        (None, {"calibration": 9}, False),
    ],
)
def test_identity_covers_only_scalings_pool_share(
    first: dict[str, Any] | None, second: dict[str, Any], same: bool
) -> None:
    experiments = [{} if scaling is None else {"scaling": scaling} for scaling in (first, second)]
    identities = [
        check_recipe({**MINIMAL, "experiments": section}, "x").build_search_identity()
        for section in experiments
    ]
    assert (identities[0] == identities[1]) == same


def build_model_recipe(backend: str, **args: Any) -> Recipe:
    args = {"pretrained": "m", **args}
    return check_recipe({**MINIMAL, "model": {"backend": backend, "args": args}}, "x")


@pytest.mark.parametrize(
    ("backend", "args"),
    [
        *(
            (backend, args)
            for backend in ("local-completions", "local-chat-completions")
            for args in (
                {"base_url": "http://other:8000/v1/completions"},
                {"num_concurrent": 2, "max_retries": 20, "timeout": 60},
                {"verify_certificate": False, "ca_cert_path": "other.pem"},
            )
        ),
        ("vllm", {"gpu_memory_utilization": 0.5}),
        ("vllm", {"kv_cache_memory_bytes": 10**9}),
    ],
)
def test_request_settings_do_not_change_identity(backend: str, args: dict[str, Any]) -> None:
    plain = build_model_recipe(backend)
    assert (
        build_model_recipe(backend, **args).build_search_identity() == plain.build_search_identity()
    )
    assert build_model_recipe(backend, **args) != plain
    assert (
        build_model_recipe("hf", **args).build_search_identity()
        != build_model_recipe("hf").build_search_identity()
    ), "hf has no such arguments"


@pytest.mark.parametrize(
    ("backend", "args"),
    [
        ("local-completions", {"model": "another"}),
        ("local-completions", {"pretrained": "another"}),
        ("local-completions", {"tokenizer": "another"}),
        ("local-completions", {"header": {"x-model": "another"}}),
        ("local-completions", {"max_length": 512}),
        ("vllm", {"max_num_seqs": 8}),
        ("vllm", {"batch_size": 8}),
        ("vllm", {"tensor_parallel_size": 2}),
        ("vllm", {"dtype": "float16"}),
    ],
)
def test_sampling_settings_change_identity(backend: str, args: dict[str, Any]) -> None:
    assert (
        build_model_recipe(backend, **args).build_search_identity()
        != build_model_recipe(backend).build_search_identity()
    )


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


def test_rejects_unfillable_update_groups_before_search() -> None:
    groups = {"update_groups": 64, "repetitions": 2}
    for n, replay in ((32, 0), (10, 22), ("recovered", 0)):
        check_recipe({**MINIMAL, "budget": {"n": n, "replay": replay}, "training": groups}, "x")
    with pytest.raises(UserError, match=r"key 'training': update_groups is 64, but .* is only 62"):
        check_recipe({**MINIMAL, "budget": {"n": 21, "replay": 10}, "training": groups}, "x")


def test_allocation_needs_two_conditions_with_even_n() -> None:
    def list_experiments(n: int | str, concentrated: str = "uniform") -> list[str]:
        allocation = {"diffuse": "gapft", "concentrated": concentrated}
        more = {"budget": {"n": n}, "experiments": {"allocation": allocation}}
        return [
            experiment.name
            for experiment in load_experiments(
                check_recipe({**MINIMAL, **more}, "x"), load_plugins()
            )
        ]

    for n in (48, "recovered"):
        assert list_experiments(n) == ["allocation"]
    for arguments, message in (
        ((47,), r"key 'experiments\.allocation': .*budget\.n.*47"),
        ((48, "more"), r"key 'experiments\.allocation\.concentrated': unknown condition 'more'"),
        ((48, "gapft"), r"key 'experiments\.allocation': .*'gapft' twice"),
    ):
        with pytest.raises(UserError, match=message):
            list_experiments(*arguments)
