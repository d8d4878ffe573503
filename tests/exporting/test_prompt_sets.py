"""Export of the pool's prompts for online training, in the formats of several libraries."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from huggingface_hub import DatasetCard

from gapft_harness.core.errors import UserError
from gapft_harness.exporting.kinds import ExportChoice, export
from gapft_harness.exporting.problem_choice import parse_solve_rate_band
from gapft_harness.exporting.prompt_sets import FACTS, PROMPT_FORMATS
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.interactive.runs import Run
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import state_schema
from tests.recording_run import LettersTask, write_letters_task
from tests.study.sealed import update_recorded_hash
from tests.tiny_models import CHAT_TEMPLATE, write_byte_llama


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> LettersTask:
    return write_letters_task(tmp_path_factory.mktemp("letters"))


@pytest.fixture(scope="module")
def run(task: LettersTask) -> RunDirectory:
    """A run with every problem in S: samples 0, 1 and 3 of four pass."""
    return task.run("run", ["states"], ("pool", "audit"), search={"k": 4})


@pytest.fixture(scope="module")
def mixed_run(planted_run: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The planted run with pool problems in each state, of which 0 to 4 samples pass."""
    folder = tmp_path_factory.mktemp("mixed") / "run"
    shutil.copytree(planted_run.path, folder)
    table = layout.states_path("pool")
    rows = pq.read_table(folder / table).to_pylist()
    for number, row in enumerate(rows):
        passing = {"G": number % 5, "S": 1 + number % 4, "U": 0}[row["state"]]
        row.update(samples=4, passing_samples=passing)
    pq.write_table(pa.Table.from_pylist(rows, state_schema()), folder / table)
    update_recorded_hash(folder, table)
    return RunDirectory.open(folder)


def export_and_load(run: RunDirectory, to: str, out: Path, *states: str) -> list[dict[str, Any]]:
    """Export a run and load the folder with ``datasets``."""
    export(run, to, ExportChoice(out, states=states))
    return list(load_dataset(str(out), split="train", cache_dir=f"{out}.cache"))


def get_facts(to: str, row: dict[str, Any]) -> dict[str, Any]:
    under = PROMPT_FORMATS[to].facts_field
    within = row[under] if under else row
    return {name: within[name] for name in FACTS}


@pytest.mark.parametrize("to", PROMPT_FORMATS)
def test_rows_hold_sealed_facts(mixed_run: RunDirectory, tmp_path: Path, to: str) -> None:
    rows = export_and_load(mixed_run, to, tmp_path / "out")
    tables, task = Run(mixed_run), mixed_run.manifest()["task"]
    problems = tables.read("problems", split="pool").to_pylist()
    states = tables.read("states", split="pool").to_pylist()
    assert {(row["state"], row["passing_samples"]) for row in states} >= {("G", 0), ("S", 4)}
    for row, problem, state in zip(rows, problems, states, strict=True):
        assert get_facts(to, row) == {
            **{key: state[key] for key in ("problem_id", "state", "samples", "passing_samples")},
            "origin": task["name"],
            "gold": problem["gold"],
            "solve_rate": state["passing_samples"] / 4,
            "greedy_passed": state["state"] == "G",
            "verifier": "boxed_math",
            "verifier_params": "{}",
        }


def build_expected_fields(to: str, text: str, gold: str, system: str = "") -> dict[str, Any]:
    """Build the documented fields of the first problem."""
    system_turns = [{"role": "system", "content": system}] if system else []
    turns = [*system_turns, {"role": "user", "content": text}]
    name = "pool0-6012f0fbb316"
    return {
        "trl-grpo": {"prompt": turns if system else text},
        "verl": {
            "data_source": "letters",
            "prompt": turns,
            "ability": "letters",
            "reward_model": {"style": "rule", "ground_truth": gold},
        },
        "prime-rl": {
            "id": name,
            "prompt": text,
            "answer": gold,
            **({"system_prompt": system} if system else {}),
        },
        "nemo-gym": {
            "responses_create_params": {"input": turns},
            "id": name,
            "expected_answer": gold,
        },
    }[to]


@pytest.mark.parametrize("to", PROMPT_FORMATS)
def test_rows_have_documented_library_fields(run: RunDirectory, tmp_path: Path, to: str) -> None:
    model = run.recipe.model.model_copy(
        update={"chat_template": True, "system_instruction": "Spell."}
    )
    shutil.copytree(run.path, tmp_path / "chat")
    chat = RunDirectory(tmp_path / "chat", run.recipe.model_copy(update={"model": model}))
    chat.write_recipe()
    chat.update_manifest(lambda manifest: manifest["task"]["episode"].update(attempts=3))
    form = PROMPT_FORMATS[to]
    for exported_run, system in ((run, ""), (chat, "Spell.")):
        out = tmp_path / f"out{system}"
        row = export_and_load(exported_run, to, out)[0]
        within = {form.facts_field} if form.facts_field else {*FACTS}
        assert {key: row[key] for key in row.keys() - within} == build_expected_fields(
            to, "pool 0? a", "a", system
        )
        card = (out / "README.md").read_text()
        assert ("applies a chat template" in card) == (form.chat and not system)
        assert ("an episode of several attempts" in card) == bool(system)
    if to == "verl":
        assert [
            exported_row["extra_info"]["index"]
            for exported_row in export_and_load(run, to, tmp_path / "all")
        ] == [*range(24)]


def test_exported_verifier_reproduces_solve_rate(
    task: LettersTask, run: RunDirectory, tmp_path: Path
) -> None:
    plugins = load_plugins(task.plugins)
    sealed = Run(run).read("responses", split="pool").to_pylist()
    for row in export_and_load(run, "trl-grpo", tmp_path / "out"):
        texts = [entry["text"] for entry in sealed if entry["problem_id"] == row["problem_id"]]
        verifier = plugins.create_verifier(row["verifier"], json.loads(row["verifier_params"]))
        passed = [
            verdict.status == "pass"
            for verdict in verifier.verify(texts, [json.loads(row["gold"])] * len(texts))
        ]
        assert passed[0] is row["greedy_passed"] is False
        assert sum(passed[1:]) / len(passed[1:]) == row["solve_rate"] == 0.75


@pytest.mark.parametrize("to", PROMPT_FORMATS)
def test_exports_only_chosen_states(mixed_run: RunDirectory, tmp_path: Path, to: str) -> None:
    every = export_and_load(mixed_run, to, tmp_path / "all")
    some = export_and_load(mixed_run, to, tmp_path / "some", "U", "S")
    assert [get_facts(to, row) for row in some] == [
        row_facts for row in every if (row_facts := get_facts(to, row))["state"] in "SU"
    ]
    assert "| pool | train | 0 | 100 | 7 | 107 |" in (tmp_path / "some" / "README.md").read_text()


@pytest.mark.parametrize("to", PROMPT_FORMATS)
def test_exports_only_band_of_solve_rates(mixed_run: RunDirectory, tmp_path: Path, to: str) -> None:
    every = [get_facts(to, row) for row in export_and_load(mixed_run, to, tmp_path / "all")]
    band = parse_solve_rate_band(".25:.75")
    choice = ExportChoice(tmp_path / "some", states=["S"], solve_rates=band)
    export(mixed_run, to, choice)
    some = load_dataset(str(choice.out), split="train", cache_dir=f"{choice.out}.cache")
    expected = [row for row in every if row["state"] == "S" and 1 <= row["passing_samples"] <= 3]
    assert [get_facts(to, row) for row in some] == expected
    assert {row["solve_rate"] for row in expected} == {0.25, 0.5, 0.75}
    card = (choice.out / "README.md").read_text()
    assert f"| pool | train | 0 | {len(expected)} | 0 | {len(expected)} |" in card
    assert "solve rate from 0.25 to 0.75, bounds included" in card


def test_card_is_valid_for_hub(run: RunDirectory, tmp_path: Path) -> None:
    export(run, "verl", ExportChoice(tmp_path / "out"))
    card = DatasetCard.load(tmp_path / "out" / "README.md")
    (files,) = card.data.configs[0]["data_files"]
    assert files == {"split": "train", "path": "train.parquet"}
    for place in (layout.problems_path("pool"), layout.states_path("pool")):
        assert f"| {place} | {run.manifest()['files'][place]} |" in card.text
    for name, meaning in FACTS.items():
        assert f"| {name} | {meaning} |" in card.text
    assert str(run.path) not in card.content


def test_rejects_wrong_states_and_edited_runs(run: RunDirectory, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for to, states, message in [
        ("verl", ["S", "s"], "--states s: .*known: G, S, U"),
        ("verl", ["U", "G"], r"--states U,G: .* 0 in G, 24 in S, 0 in U"),
        ("trl", ["S"], "--to trl: remove --states; it applies only to trl-grpo, verl, prime-rl"),
    ]:
        with pytest.raises(UserError, match=message):
            export(run, to, ExportChoice(out, states=states))
    shutil.copytree(run.path, tmp_path / "edited")
    edited = RunDirectory.open(tmp_path / "edited")
    path = edited.path / layout.states_path("pool")
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(UserError, match=r"states.parquet: was changed after it was sealed"):
        export(edited, "nemo-gym", ExportChoice(out))
    assert not out.exists()


def test_verl_reads_rows(run: RunDirectory, tmp_path: Path) -> None:
    dataset = pytest.importorskip("verl.utils.dataset.rl_dataset", reason="make test-readers")
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer

    export(run, "verl", ExportChoice(tmp_path / "out"))
    model = write_byte_llama(tmp_path / "model", chat_template=CHAT_TEMPLATE)
    settings = {"cache_dir": str(tmp_path / "cache"), "filter_overlong_prompts_workers": 1}
    rows = dataset.RLHFDataset(
        str(tmp_path / "out" / "train.parquet"),
        AutoTokenizer.from_pretrained(model),
        OmegaConf.create(settings),
    )
    assert len(rows) == 24
    assert rows[3]["raw_prompt"] == [{"role": "user", "content": rows[3]["prompt"][0]["content"]}]
    assert (rows[3]["index"], rows[3]["extra_info"]["state"]) == (3, "S")


def test_verifiers_reads_rows(run: RunDirectory, tmp_path: Path) -> None:
    """prime-rl reads lines as ``TaskData``; NeMo Gym reads them with its taskset."""
    v1 = pytest.importorskip("verifiers.v1", reason="make test-readers")
    from verifiers.v1.tasksets.nemo_gym import NeMoGymTaskset
    from verifiers.v1.tasksets.nemo_gym.taskset import NeMoGymConfig

    data = type("Data", (v1.TaskData,), {"__annotations__": {"answer": str, "info": dict}})
    export(run, "prime-rl", ExportChoice(tmp_path / "prime"))
    lines = (tmp_path / "prime" / "train.jsonl").read_text("utf-8").splitlines()
    tasks = [data.model_validate_json(line) for line in lines]
    assert [task.id for task in tasks] == [task.info["problem_id"] for task in tasks]
    assert (tasks[0].prompt_text, tasks[0].answer) == ("pool 0? a", "a")
    export(run, "nemo-gym", ExportChoice(tmp_path / "gym"))
    gym = list(NeMoGymTaskset(NeMoGymConfig(dataset=tmp_path / "gym" / "train.jsonl")))
    assert [task.data.prompt_text for task in gym] == [task.prompt_text for task in tasks]
