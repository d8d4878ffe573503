"""The output of ``--dry-run`` without a model or a pool."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from torch import cuda

from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from gapft_harness.cli.requirements import find_model_size
from gapft_harness.cli.runs import resolve_recipe, run_recipe, run_stages_alone
from gapft_harness.core.errors import UserError
from gapft_harness.demo import find_policy
from gapft_harness.lm_eval_bridge.discovery import NoSuchTaskError
from gapft_harness.run_directory.directory import SPLITS
from tests.kit.command import gapft
from tests.kit.dry_runs import parse_requirements
from tests.kit.recording_run import write_letters_task


def read_select_line(*sets: str) -> str:
    """Return the select line of the demo with the budget of the code experiment."""
    code = ("budget.n=64", "budget.replay=64", "training.update_groups=64")
    shape = ("training.repetitions=1", "training.micro_batch=1", "training.accumulation=8")
    chosen = Options(
        "demo", conditions=["diffuse", "concentrated"], overrides=[*code, *shape, *sets]
    )
    lines = describe_dry_run(chosen, None).splitlines()
    return next(line for line in lines if line.startswith("select "))


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([], "n = 64 + 64 replay; N = 128; J = 64"),
        (["training.repetitions=3"], "n = 64 + 64 replay; N = 384; J = 64"),
        (["budget.replay=0"], "n = 64; N = 64; J = 64"),
        (
            ["budget.replay=6", "training.update_groups=null", "training.accumulation=4"],
            "n = 64 + 6 replay; N = 70; J = 18",
        ),
        (
            ["budget.n=recovered"],
            "n = |E_S,K| of the pool + 64 replay, known after search; N = 1 (n + 64); J = 64",
        ),
        (
            ["budget.n=recovered", "budget.replay=0", "training.update_groups=null"],
            "n = |E_S,K| of the pool, known after search; N = 1 n; J = ceil(N / 8)",
        ),
    ],
)
def test_slots_exposures_and_steps(sets: list[str], expected: str) -> None:
    assert read_select_line(*sets) == f"select  diffuse, concentrated; {expected}"


def test_own_settings_have_their_own_steps_line() -> None:
    own = "conditions={gapft: null, few: {selector: gapft, n: 30, training: {%s}}}"
    lines = describe_dry_run(
        Options("demo", overrides=[own % "repetitions: 1", "budget.n=64", "budget.replay=2"]), None
    ).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("steps "))
    at, own_line = lines[start : start + 2]
    assert re.fullmatch(r"steps +\d+ an adapter of gapft, of \d+ adapters \(n = 64\)", at)
    assert re.fullmatch(r" +2 an adapter of few, of \d+ adapters \(n = 30\)", own_line)


def test_rejects_too_few_examples_for_update_groups() -> None:
    with pytest.raises(UserError, match=r"update_groups is 64, but .* is only 50, less than one"):
        read_select_line("budget.n=30", "budget.replay=20")


def test_describes_code_recipe_without_model_or_data(tmp_path: Path) -> None:
    done = gapft(
        *("run", "paper/qwen-coder-livecodebench", "--dry-run"),
        cwd=tmp_path,
        env={"GAPFT_DATA_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 1
    assert "LiveCodeBench: test.jsonl" in done.stdout
    requirements = parse_requirements(done.stdout)
    assert requirements["steps"].startswith("64 ")
    assert "14 GB" in requirements["memory"]


def test_lists_requirements_before_start(tmp_path: Path) -> None:
    requirements = parse_requirements(describe_dry_run(Options("demo"), str(tmp_path / "r")))
    assert requirements["problems"] == "pool 400, audit 1,000"
    assert requirements["responses"] == (
        "search: 12,600 = 1,400 problems x (1 greedy + 8 samples)\n"
        "audit:  12,000 = 1,000 x 12 adapters"
    )
    assert requirements["steps"] == (
        "at most 200 an adapter, of 12 adapters (n is at most the pool's 400 problems)"
    )
    assert "of which 2 train at once" in requirements["memory"]
    assert list(tmp_path.iterdir()) == []


def test_names_one_number_of_adapters() -> None:
    """depth_0 shares the adapters of replay, depth_8 those of gapft: 3 of 5 conditions, 3 seeds."""
    text = describe_dry_run(Options("controls/search-depth", conditions=[
        "gapft", "replay", "depth_0", "depth_1", "depth_8"
    ]), "nowhere")  # fmt: skip
    counts = re.findall(r"(\d+) adapters|at most (\d+) arms", text)
    assert len(counts) >= 6
    assert {*counts} == {("9", "")}


def list_missing(choice: Options, place: Path) -> str:
    """Return the section "missing here" of a dry run."""
    return describe_dry_run(choice, str(place)).partition("# missing here\n")[2]


def test_lists_refused_settings_as_missing(tmp_path: Path) -> None:
    task = write_letters_task(tmp_path, pool=24, audit=8)
    run = task.run("r", ["states", "select"], SPLITS, conditions=["gapft"], search={"k": 2})
    recipe_options = Options(str(run.path / "recipe.yaml"), plugin_files=task.plugins)
    choice = replace(recipe_options, include_paths=[str(tmp_path / "tasks")])
    missing = list_missing(choice, run.path)
    assert str(run.path) not in missing
    other = list_missing(replace(choice, overrides=["name=other"]), run.path)
    assert "not other; use another --run-dir" in other

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("mine")
    assert "mine: not empty, and has no recipe.yaml" in list_missing(choice, tmp_path / "mine")
    assert "notes.txt: is a file" in list_missing(choice, tmp_path / "mine/notes.txt")

    task.write("pool", range(1, 25))
    assert str(run.path) not in list_missing(choice, run.path)
    assert (
        "data, pool: 24 problems"
        in parse_requirements(describe_dry_run(choice, str(run.path)))["done"]
    )


@pytest.mark.parametrize(
    ("name", "dtype", "weights"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "bfloat16", 16e9),
        ("deepseek-ai/deepseek-coder-6.7b-instruct", "float32", 26.8e9),
        ("Qwen/Qwen2.5-0.5B", "bfloat16", 1e9),
        ("Qwen/Qwen3-30B-A3B", "bfloat16", 60e9),
        ("mistralai/Mixtral-8x7B-v0.1", "bfloat16", 112e9),
        ("my/8Bchat", "bfloat16", 16e9),
        ("my/model-8bit", "bfloat16", None),
        ("my/model-8Bit", "bfloat16", None),
        ("gpt2", "bfloat16", None),
    ],
)
def test_finds_model_size_by_name(name: str, dtype: str, weights: float | None) -> None:
    sets = [f"model.args.pretrained={name}", f"training.dtype={dtype}"]
    size = find_model_size(resolve_recipe(Options("demo", overrides=sets)), None)
    assert (size and size.weights) == weights


def test_reports_invalid_model_config(tmp_path: Path) -> None:
    shutil.copytree(find_policy(), tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"hidden_size": 64, "num_attention_heads": 7}
    (tmp_path / "config.json").write_text(json.dumps(config))
    missing = describe_dry_run(Options("demo", model_args=f"pretrained={tmp_path}"), "r")
    assert re.search(
        rf"^model {tmp_path}: cannot be loaded for training: .*hidden size \(64\) is not a "
        r"multiple of the number of attention heads \(7\)",
        missing.partition("# missing here\n")[2],
        re.M,
    )


FUSED = ["training.kernels=fused", "training.dtype=bfloat16"]


@pytest.mark.skipif(cuda.is_available(), reason="fused kernels may be had here")
def test_rejects_unavailable_kernels_before_search(tmp_path: Path) -> None:
    expected = "training.kernels: fused needs a CUDA device, but this training runs on cpu"
    text = describe_dry_run(Options("demo", overrides=FUSED), "r")
    assert expected in text.partition("# missing here\n")[2]
    for run in (
        lambda: run_recipe(Options("demo", overrides=FUSED), str(tmp_path / "run")),
        lambda: run_stages_alone(
            ["train"], str(tmp_path / "run"), Options("demo", overrides=FUSED)
        ),
    ):
        with pytest.raises(UserError, match=expected):
            run()
        assert not (tmp_path / "run").exists()
    # another executor trains on an unknown machine
    elsewhere = [*FUSED, "executor.name=ray", "executor.address=ray://elsewhere:1"]
    assert "kernels: fused needs" not in describe_dry_run(Options("demo", overrides=elsewhere), "r")


@pytest.mark.parametrize("value", [None, "0"])
def test_dry_run_restores_environment(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    environment = dict(os.environ)
    describe_dry_run(Options("demo"), "r")
    assert dict(os.environ) == environment


def test_rejects_unknown_task(tmp_path: Path) -> None:
    with pytest.raises(NoSuchTaskError, match="'gapft' is a group"):
        describe_dry_run(Options("demo", task="gapft"), None)
    with pytest.raises(NoSuchTaskError, match="folder not found"):
        describe_dry_run(Options("demo", include_paths=[str(tmp_path / "none")]), None)
    with pytest.raises(NoSuchTaskError, match="unknown task 'gapft_dmo'; did you mean") as caught:
        describe_dry_run(Options("demo", task="gapft_dmo"), None)
    assert caught.value.exit_status == 2


def test_parallel_workers_share_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the demo policy the libraries dominate, with 0.4 GB in each process."""

    def describe_memory(free: float) -> str:
        monkeypatch.setattr(
            "gapft_harness.core.memory.measure_free_memory", lambda device: int(free)
        )
        short = [*("training.max_length=64", "executor.workers=4")]
        return parse_requirements(describe_dry_run(Options("demo", overrides=short), "r"))["memory"]

    assert "of 4 workers" not in describe_memory(100e9)
    assert "memory allows 2 of 4 workers" in describe_memory(1.2e9)
    assert "memory allows 1 of 4 workers" in describe_memory(0.1e9)


def test_names_the_end_token() -> None:
    overrides = ["conditions.uniform.training.supervise_eos=false"]
    text = describe_dry_run(Options("demo", overrides=overrides), "r").partition("# what it takes")[
        0
    ]
    (supervised, none) = (line for line in text.splitlines() if "end token: " in line)
    assert "'</s>' (2)" in supervised
    assert "uniform" in none
    assert "uniform" not in supervised
