"""``gapft export`` writes the texts of the sealed ids in other trainers' formats."""

from __future__ import annotations

import dataclasses
import json
import shutil
from itertools import compress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from datasets import load_dataset
from typer.testing import CliRunner

from gapft_harness.cli.main import app
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm, Budget
from gapft_harness.exporting.kinds import KINDS, ExportChoice
from gapft_harness.exporting.kinds import export as exported
from gapft_harness.exporting.problem_choice import parse_solve_rate_band
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import (
    read_examples,
    read_problems,
    state_schema,
    write_examples,
    write_problems,
)
from tests.recording_run import write_letters_task
from tests.study.sealed import update_recorded_hash
from tests.verify.tampering import seal_again

KEYS: dict[str, Any] = {"search": {"k": 4}, "conditions": {"gapft": {}, "uniform": {}}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of the letters task with two training sets; token ids are bytes."""
    task = write_letters_task(tmp_path_factory.mktemp("letters"))
    return task.run("run", ["states", "select"], ("pool", "audit"), **KEYS)


def export_arms(
    run: RunDirectory, to: str, out: Path, conditions: list[str], seeds: list[int]
) -> list[Path]:
    return exported(run, to, ExportChoice(out, conditions, seeds))


def copy_run(run: RunDirectory, folder: Path, **sections: Any) -> RunDirectory:
    """Copy the run with a changed recipe."""
    shutil.copytree(run.path, folder)
    copy = RunDirectory(folder, run.recipe.model_copy(update=sections))
    copy.write_recipe()
    return copy


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def read_sealed_texts(run: RunDirectory, arm: Arm) -> list[tuple[str, str]]:
    """Decode the prompt and response of an arm's examples."""
    examples = read_examples(run.path / layout.selection_path(arm))
    return [
        (bytes(example.prompt_ids).decode(), bytes(example.response_ids).decode())
        for example in examples
    ]


@pytest.mark.parametrize(
    ("to", "prompt", "response"),
    [
        ("trl", "prompt", "completion"),
        ("axolotl", "prompt", "completion"),
        ("llama-factory", "instruction", "output"),
    ],
)
def test_exports_sealed_examples_in_order(
    run: RunDirectory, tmp_path: Path, to: str, prompt: str, response: str
) -> None:
    files = export_arms(run, to, tmp_path / "out", [], [])
    assert all(file.is_file() for file in files)
    for condition in ("gapft", "uniform"):
        file = tmp_path / "out" / f"{condition}-seed13.jsonl"
        texts = [(row[prompt], row[response]) for row in read_lines(file)]
        assert texts == read_sealed_texts(run, Arm(condition, 13))
        loaded = load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path))
        assert loaded[response] == [text for _, text in texts]
    budget = json.loads((tmp_path / "out" / "budget.json").read_text())
    arm = budget["arms"]["gapft-seed13"]
    assert (
        arm["budget"]["n"] == len(arm["examples"]) == len(read_sealed_texts(run, Arm("gapft", 13)))
    )
    assert {example["state"] for example in arm["examples"]} == {"S"}
    assert (arm["unended"], arm["truncated"]) == (0, 0)


@pytest.mark.parametrize("to", ["trl", "axolotl", "llama-factory"])
def test_exports_only_examples_in_band(run: RunDirectory, tmp_path: Path, to: str) -> None:
    """Every other problem gets a solve rate of one half; the others keep three quarters."""
    changed = copy_run(run, tmp_path / "run")
    table = layout.states_path("pool")
    rows = pq.read_table(changed.path / table).to_pylist()
    for row in rows[::2]:
        row["passing_samples"] = 2
    pq.write_table(pa.Table.from_pylist(rows, state_schema()), changed.path / table)
    update_recorded_hash(changed.path, table)
    choice = ExportChoice(tmp_path / "all", ["gapft"], [13])
    band = dataclasses.replace(
        choice, out=tmp_path / "band", solve_rates=parse_solve_rate_band(".5:.5")
    )
    exported(changed, to, choice)
    exported(changed, to, band)
    chosen = {row["problem_id"] for row in rows[::2]}
    arms = [
        json.loads((folder / "budget.json").read_text())["arms"]["gapft-seed13"]
        for folder in (choice.out, band.out)
    ]
    lines = [read_lines(folder / "gapft-seed13.jsonl") for folder in (choice.out, band.out)]
    is_chosen = [example["problem_id"] in chosen for example in arms[0]["examples"]]
    assert lines[1] == list(compress(lines[0], is_chosen))
    assert arms[1]["examples"] == list(compress(arms[0]["examples"], is_chosen)) != []
    assert "budget" in arms[0]
    assert "budget" not in arms[1]
    wrong = dataclasses.replace(
        choice, out=tmp_path / "none", solve_rates=parse_solve_rate_band("0:.1")
    )
    with pytest.raises(UserError, match=r"--solve-rate 0:0.1: none of 24 problems"):
        exported(changed, to, wrong)
    assert not wrong.out.exists()


def test_counts_truncated_examples(run: RunDirectory, tmp_path: Path) -> None:
    lengths = [
        len(example.prompt_ids) + len(example.response_ids) + example.ended
        for example in read_examples(run.path / layout.selection_path(Arm("gapft", 13)))
    ]
    longest = max(lengths)
    cut = run.recipe.training.model_copy(
        update={"max_length": longest - 1, "too_long": "truncate", "supervise_eos": True}
    )
    short = copy_run(run, tmp_path / "run", training=cut)
    export_arms(short, "trl", tmp_path / "out", ["gapft"], [13])
    budget = json.loads((tmp_path / "out" / "budget.json").read_text())
    assert budget["arms"]["gapft-seed13"]["truncated"] == lengths.count(longest) > 0


def test_writes_trainer_configuration(run: RunDirectory, tmp_path: Path) -> None:
    export_arms(run, "axolotl", tmp_path / "axolotl", ["gapft"], [13])
    config = yaml.safe_load((tmp_path / "axolotl" / "gapft-seed13.yaml").read_text())
    assert config["datasets"][0]["path"] == "gapft-seed13.jsonl"
    assert config["num_epochs"] == run.recipe.training.repetitions
    assert not (tmp_path / "axolotl" / "uniform-seed13.jsonl").exists()
    export_arms(run, "llama-factory", tmp_path / "factory", [], [])
    datasets = json.loads((tmp_path / "factory" / "dataset_info.json").read_text())
    (row, *_) = read_lines(tmp_path / "factory" / datasets["gapft-seed13"]["file_name"])
    assert {*datasets["gapft-seed13"]["columns"].values()} <= row.keys()


def test_exports_turns_for_chat_models(run: RunDirectory, tmp_path: Path) -> None:
    model = run.recipe.model.model_copy(
        update={"chat_template": True, "system_instruction": "Spell."}
    )
    chat = copy_run(run, tmp_path / "run", model=model)
    prompt, response = read_sealed_texts(run, Arm("gapft", 13))[0]
    prompt_turns = [{"role": "system", "content": "Spell."}, {"role": "user", "content": prompt}]
    answer = [{"role": "assistant", "content": response}]
    for to, expected in (
        ("trl", {"prompt": prompt_turns, "completion": answer}),
        ("axolotl", {"messages": [*prompt_turns, *answer]}),
    ):
        export_arms(chat, to, tmp_path / to, ["gapft"], [])
        assert read_lines(tmp_path / to / "gapft-seed13.jsonl")[0] == expected
    export_arms(chat, "llama-factory", tmp_path / "factory", ["gapft"], [])
    assert read_lines(tmp_path / "factory" / "gapft-seed13.jsonl")[0]["system"] == "Spell."


def copy_run_with_turns(
    run: RunDirectory, folder: Path, *further_turns: dict[str, str]
) -> RunDirectory:
    """Copy the run with few-shot turns, and further turns, in its problems."""
    model = run.recipe.model.model_copy(update={"chat_template": True})
    chat = copy_run(run, folder, model=model)
    place = layout.problems_path("pool")
    pairs = list(read_problems(chat.path / place))
    ids = {problem.id: prompt_ids for problem, prompt_ids in pairs}
    problems = [
        dataclasses.replace(
            problem,
            turns=(*FEW_SHOT_TURNS, {"role": "user", "content": problem.prompt}, *further_turns),
        )
        for problem, _ in pairs
    ]
    write_problems(chat.path / place, problems, lambda names: (ids[name] for name in names))
    seal_again(chat.path, place)
    return RunDirectory.open(chat.path)


FEW_SHOT_TURNS = [
    {"role": "system", "content": "Spell."},
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "one"},
]


def test_exports_few_shot_turns(run: RunDirectory, tmp_path: Path) -> None:
    chat = copy_run_with_turns(run, tmp_path / "run")
    prompt, response = read_sealed_texts(run, Arm("gapft", 13))[0]
    prompt_turns = [*FEW_SHOT_TURNS, {"role": "user", "content": prompt}]
    answer = [{"role": "assistant", "content": response}]
    export_arms(chat, "trl", tmp_path / "trl", ["gapft"], [13])
    assert read_lines(tmp_path / "trl" / "gapft-seed13.jsonl")[0] == {
        "prompt": prompt_turns, "completion": answer,
    }  # fmt: skip
    export_arms(chat, "llama-factory", tmp_path / "factory", ["gapft"], [13])
    row = read_lines(tmp_path / "factory" / "gapft-seed13.jsonl")[0]
    assert row == {
        "instruction": prompt, "input": "", "output": response, "system": "Spell.",
        "history": [["One?", "one"]],
    }  # fmt: skip
    exported(chat, "prime-rl", ExportChoice(tmp_path / "prime"))
    row = read_lines(tmp_path / "prime" / "train.jsonl")[0]
    assert row["system_prompt"] == "Spell."
    assert [turn["role"] for turn in row["prompt"]] == ["user", "assistant", "user"]
    exported(chat, "nemo-gym", ExportChoice(tmp_path / "gym"))
    row = read_lines(tmp_path / "gym" / "train.jsonl")[0]
    assert row["responses_create_params"]["input"][:3] == FEW_SHOT_TURNS


@pytest.mark.parametrize("to", ["trl", "verl"])
def test_rejects_tasks_with_answer_prefix(run: RunDirectory, tmp_path: Path, to: str) -> None:
    chat = copy_run_with_turns(run, tmp_path / "run", {"role": "assistant", "content": "It is"})
    with pytest.raises(UserError, match="gen_prefix"):
        exported(chat, to, ExportChoice(tmp_path / "out"))


def test_trl_recognizes_format(run: RunDirectory, tmp_path: Path) -> None:
    from trl.data_utils import is_conversational

    model = run.recipe.model.model_copy(update={"chat_template": True})
    chat = copy_run(run, tmp_path / "run", model=model)
    for exported_run, conversational in ((run, False), (chat, True)):
        out = tmp_path / str(conversational)
        export_arms(exported_run, "trl", out, ["gapft"], [])
        for row in read_lines(out / "gapft-seed13.jsonl"):
            assert row.keys() == {"prompt", "completion"}
            assert is_conversational(row) is conversational


def test_reports_wrong_options(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for wrong, message in [
        (("tlr", tmp_path / "a", [], []), "did you mean 'trl'"),
        (("trl", tmp_path / "full", [], []), "full: the folder is not empty"),
        (("trl", tmp_path / "a", ["gatf"], []), "no such training set; it has gapft-seed13"),
        (("trl", tmp_path / "a", [], [7]), "--seed 7"),
    ]:
        with pytest.raises(UserError, match=message):
            export_arms(run, *wrong)
    done = CliRunner().invoke(
        app, ["export", str(tmp_path / "full"), "--to", "trl", "--out", str(tmp_path / "b")]
    )
    assert "not a run directory" in str(done.exception)


def test_rejects_forged_token_ids(tmp_path: Path) -> None:
    run = write_letters_task(tmp_path).run("run", ["states"], ("pool", "audit"), **KEYS)
    with pytest.raises(UserError, match="nothing is selected yet"):
        export_arms(run, "trl", tmp_path / "out", [], [])
    (tmp_path / "second").mkdir()
    run = write_letters_task(tmp_path / "second").run(
        "run", ["states", "select"], ("pool", "audit"), **KEYS
    )
    arm = Arm("gapft", 13)
    path = run.path / layout.selection_path(arm)
    examples = read_examples(path)
    for change, message in [
        (
            {"response_ids": examples[0].response_ids[:-1]},
            "example 0: it is not a complete response",
        ),
        ({"prompt_ids": (1, 2)}, "example 0: its prompt includes"),
    ]:
        forged = [dataclasses.replace(examples[0], **change), *examples[1:]]
        run.unseal([layout.selection_path(arm)])
        write_examples(path, forged, Budget(1, 1, 1, 1, 1, 1))
        run.seal(layout.selection_path(arm))
        with pytest.raises(UserError, match=message):
            export_arms(run, "trl", tmp_path / "out", ["gapft"], [])
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(UserError, match="was changed after it was sealed"):
        export_arms(run, "trl", tmp_path / "out", ["gapft"], [])


@pytest.mark.parametrize("to", KINDS)
def test_rejects_edited_recipe(run: RunDirectory, tmp_path: Path, to: str) -> None:
    """Cards and training sets quote the recipe, which no hash protects."""
    shutil.copytree(run.path, tmp_path / "run")
    path = tmp_path / "run" / layout.RECIPE
    content = yaml.safe_load(path.read_text())
    content["model"]["args"]["pretrained"] = "meta-llama/Llama-3.1-70B"
    content["search"]["k"], content["training"]["rank"] = 64, 999
    path.write_text(yaml.safe_dump(content))
    keys = r"model\.args\.pretrained .*; search\.k 4 → 64; training\.rank"
    with pytest.raises(UserError, match=rf"recipe.* {keys}"):
        export_arms(RunDirectory.open(tmp_path / "run"), to, tmp_path / "out", [], [])
    assert not (tmp_path / "out").exists()
