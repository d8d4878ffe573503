"""The pool's prompts for online training: what rows say is sealed, and libraries read them."""

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
from gapft_harness.exporting.prompt_sets import FACTS, PROMPT_FORMATS
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.interactive.runs import Run
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import state_schema
from tests.recording_run import Letters, letters
from tests.study.sealed import update_recorded_hash
from tests.tiny_models import CHAT_TEMPLATE, byte_llama


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Letters:
    return letters(tmp_path_factory.mktemp("letters"))


@pytest.fixture(scope="module")
def run(made: Letters) -> RunDirectory:
    """Every problem is in S: samples 0, 1 and 3 of four pass."""
    return made.run("run", ["states"], ("pool", "audit"), search={"k": 4})


@pytest.fixture(scope="module")
def mixed(planted: RunDirectory, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """The planted run with samples of each state in its pool, from 0 to 4 of which pass."""
    folder = tmp_path_factory.mktemp("mixed") / "run"
    shutil.copytree(planted.path, folder)
    table = layout.states_path("pool")
    rows = pq.read_table(folder / table).to_pylist()
    for number, row in enumerate(rows):
        passing = {"G": number % 5, "S": 1 + number % 4, "U": 0}[row["state"]]
        row.update(samples=4, passing_samples=passing)
    pq.write_table(pa.Table.from_pylist(rows, state_schema()), folder / table)
    update_recorded_hash(folder, table)
    return RunDirectory.open(folder)


def read(run: RunDirectory, to: str, out: Path, *states: str) -> list[dict[str, Any]]:
    """What an export holds, as ``datasets`` loads its folder."""
    export(run, to, ExportChoice(out, states=states))
    return list(load_dataset(str(out), split="train", cache_dir=f"{out}.cache"))


def facts(to: str, row: dict[str, Any]) -> dict[str, Any]:
    under = PROMPT_FORMATS[to].facts_field
    within = row[under] if under else row
    return {name: within[name] for name in FACTS}


@pytest.mark.parametrize("to", PROMPT_FORMATS)
def test_rows_say_what_is_sealed(mixed: RunDirectory, tmp_path: Path, to: str) -> None:
    rows = read(mixed, to, tmp_path / "out")
    tables, task = Run(mixed), mixed.manifest()["task"]
    problems = tables.read("problems", split="pool").to_pylist()
    states = tables.read("states", split="pool").to_pylist()
    assert {(row["state"], row["passing_samples"]) for row in states} >= {("G", 0), ("S", 4)}
    for row, problem, state in zip(rows, problems, states, strict=True):
        assert facts(to, row) == {
            **{key: state[key] for key in ("problem_id", "state", "samples", "passing_samples")},
            "origin": task["name"],
            "gold": problem["gold"],
            "solve_rate": state["passing_samples"] / 4,
            "greedy_passed": state["state"] == "G",
            "verifier": "boxed_math",
            "verifier_params": "{}",
        }


def own(to: str, text: str, gold: str, system: str = "") -> dict[str, Any]:
    """The fields that a library documents, of the first problem."""
    said = [{"role": "system", "content": system}] if system else []
    turns = [*said, {"role": "user", "content": text}]
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
def test_each_library_finds_the_fields_that_it_documents(
    run: RunDirectory, tmp_path: Path, to: str
) -> None:
    model = run.recipe.model.model_copy(
        update={"chat_template": True, "system_instruction": "Spell."}
    )
    shutil.copytree(run.path, tmp_path / "chat")
    chat = RunDirectory(tmp_path / "chat", run.recipe.model_copy(update={"model": model}))
    chat.write_recipe()
    chat.update_manifest(lambda manifest: manifest["task"]["episode"].update(attempts=3))
    form = PROMPT_FORMATS[to]
    for of, system in ((run, ""), (chat, "Spell.")):
        out = tmp_path / f"out{system}"
        row = read(of, to, out)[0]
        within = {form.facts_field} if form.facts_field else {*FACTS}
        assert {key: row[key] for key in row.keys() - within} == own(to, "pool 0? a", "a", system)
        card = (out / "README.md").read_text()
        assert ("applies a chat template" in card) == (form.chat and not system)
        assert ("an episode of several attempts" in card) == bool(system)
    if to == "verl":
        assert [each["extra_info"]["index"] for each in read(run, to, tmp_path / "all")] == [
            *range(24)
        ]


def test_a_row_alone_judges_as_the_search_did(
    made: Letters, run: RunDirectory, tmp_path: Path
) -> None:
    plugins = load_plugins(made.plugins)
    sealed = Run(run).read("responses", split="pool").to_pylist()
    for row in read(run, "trl-grpo", tmp_path / "out"):
        texts = [each["text"] for each in sealed if each["problem_id"] == row["problem_id"]]
        verifier = plugins.create_verifier(row["verifier"], json.loads(row["verifier_params"]))
        passed = [
            verdict.status == "pass"
            for verdict in verifier.verify(texts, [json.loads(row["gold"])] * len(texts))
        ]
        assert passed[0] is row["greedy_passed"] is False
        assert sum(passed[1:]) / len(passed[1:]) == row["solve_rate"] == 0.75


@pytest.mark.parametrize("to", PROMPT_FORMATS)
def test_only_problems_in_the_states_that_are_named(
    mixed: RunDirectory, tmp_path: Path, to: str
) -> None:
    every = read(mixed, to, tmp_path / "all")
    some = read(mixed, to, tmp_path / "some", "U", "S")
    assert [facts(to, row) for row in some] == [
        told for row in every if (told := facts(to, row))["state"] in "SU"
    ]
    assert "| pool | train | 0 | 100 | 7 | 107 |" in (tmp_path / "some" / "README.md").read_text()


def test_a_search_that_stopped_early_gives_no_solve_rate(tmp_path: Path) -> None:
    made = letters(tmp_path)
    keys = {"search": {"k": 4, "stop": "first_pass"}, "evidence": {"keep": "first"}}
    run = made.run("run", ["states"], ("pool", "audit"), **keys)
    for to in PROMPT_FORMATS:
        rows = [facts(to, row) for row in read(run, to, tmp_path / to)]
        assert {(row["samples"], row["passing_samples"]) for row in rows} == {(1, 1)}
        assert {row["solve_rate"] for row in rows} == {None}


def test_the_card_is_the_hubs(run: RunDirectory, tmp_path: Path) -> None:
    export(run, "verl", ExportChoice(tmp_path / "out"))
    card = DatasetCard.load(tmp_path / "out" / "README.md")
    (files,) = card.data.configs[0]["data_files"]
    assert files == {"split": "train", "path": "train.parquet"}
    for place in (layout.problems_path("pool"), layout.states_path("pool")):
        assert f"| {place} | {run.manifest()['files'][place]} |" in card.text
    for name, meaning in FACTS.items():
        assert f"| {name} | {meaning} |" in card.text
    assert str(run.path) not in card.content


def test_mistakes_and_edited_runs_are_refused(run: RunDirectory, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for to, states, told in [
        ("verl", ["S", "s"], "--states s: .*known: G, S, U"),
        ("verl", ["U", "G"], r"--states U,G: no problem .* it has 0 in G, 24 in S, 0 in U"),
        ("trl", ["S"], "--to trl: remove --states; it applies only to trl-grpo, verl, prime-rl"),
    ]:
        with pytest.raises(UserError, match=told):
            export(run, to, ExportChoice(out, states=states))
    shutil.copytree(run.path, tmp_path / "edited")
    edited = RunDirectory.open(tmp_path / "edited")
    path = edited.path / layout.states_path("pool")
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(UserError, match=r"states.parquet: was changed after it was sealed"):
        export(edited, "nemo-gym", ExportChoice(out))
    assert not out.exists()


def test_verl_reads_them(run: RunDirectory, tmp_path: Path) -> None:
    dataset = pytest.importorskip("verl.utils.dataset.rl_dataset", reason="make test-readers")
    from omegaconf import OmegaConf
    from transformers import AutoTokenizer

    export(run, "verl", ExportChoice(tmp_path / "out"))
    model = byte_llama(tmp_path / "model", chat_template=CHAT_TEMPLATE)
    settings = {"cache_dir": str(tmp_path / "cache"), "filter_overlong_prompts_workers": 1}
    rows = dataset.RLHFDataset(
        str(tmp_path / "out" / "train.parquet"),
        AutoTokenizer.from_pretrained(model),
        OmegaConf.create(settings),
    )
    assert len(rows) == 24
    assert rows[3]["raw_prompt"] == [{"role": "user", "content": rows[3]["prompt"][0]["content"]}]
    assert (rows[3]["index"], rows[3]["extra_info"]["state"]) == (3, "S")


def test_verifiers_reads_them(run: RunDirectory, tmp_path: Path) -> None:
    """A line is prime-rl's ``TaskData``; NeMo Gym's lines are read by the taskset for them."""
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
