"""``gapft export`` writes the texts of the recorded ids for other trainers."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from datasets import load_dataset
from transformers import AutoTokenizer

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm
from gapft_harness.exporting.kinds import export
from gapft_harness.exporting.training_sets import TemplateCheck
from gapft_harness.interactive.runs import Run
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import (
    read_examples,
    read_problems,
    write_examples,
    write_problems,
)
from tests.kit.recording_run import write_letters_task
from tests.kit.records import record_again
from tests.kit.tiny_models import CHAT_TEMPLATE, write_byte_llama

KEYS: dict[str, Any] = {"search": {"k": 4}, "conditions": {"gapft": {}, "uniform": {}}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run of the letters task with two training sets; token ids are bytes."""
    task = write_letters_task(tmp_path_factory.mktemp("letters"))
    return task.run("run", ["states", "select"], ("pool", "audit"), **KEYS)


def copy_run(run: RunDirectory, folder: Path, **sections: Any) -> RunDirectory:
    """Copy the run with a changed recipe."""
    shutil.copytree(run.path, folder)
    copy = RunDirectory(folder, run.recipe.model_copy(update=sections))
    copy.record_recipe()
    copy.write_recipe()
    return copy


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def read_recorded_texts(run: RunDirectory, arm: Arm) -> list[tuple[str, str]]:
    """Decode the prompt and response of an arm's examples."""
    examples = read_examples(run.path / layout.selection_path(arm))
    return [
        (bytes(example.prompt_ids).decode(), bytes(example.response_ids).decode())
        for example in examples
    ]


def test_exports_examples_in_order(run: RunDirectory, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arms = [Arm(condition, 13) for condition in ("gapft", "uniform")]
    assert export(run, "trl", out) == [out / f"{arm.name}.jsonl" for arm in arms]
    for arm in arms:
        file = out / f"{arm.name}.jsonl"
        texts = [(row["prompt"], row["completion"]) for row in read_lines(file)]
        assert texts == read_recorded_texts(run, arm)
        loaded = load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path))
        assert loaded["completion"] == [text for _, text in texts]


def copy_chat_run(
    run: RunDirectory, folder: Path, turns: Sequence[dict[str, str]] = (), **model: Any
) -> RunDirectory:
    """Copy the run as that of a chat model.

    Args:
        run: the run.
        folder: the copy.
        turns: the turns of every problem; ``PROMPT`` is replaced by its prompt.
        model: other keys of the model.
    """
    model = {"chat_template": True, **model}
    chat = copy_run(run, folder, model=run.recipe.model.model_copy(update=model))
    if not turns:
        return chat
    place = layout.problems_path("pool")
    pairs = list(read_problems(chat.path / place))
    ids = {problem.id: prompt_ids for problem, prompt_ids in pairs}
    problems = [
        dataclasses.replace(problem, turns=replace_prompt(turns, problem.prompt))
        for problem, _ in pairs
    ]
    write_problems(chat.path / place, problems, lambda names: (ids[name] for name in names))
    record_again(chat.path, place)
    return RunDirectory.open(chat.path)


def replace_prompt(turns: Sequence[dict[str, str]], prompt: str) -> tuple[dict[str, str], ...]:
    return tuple({**turn, "content": turn["content"].replace("PROMPT", prompt)} for turn in turns)


SYSTEM = {"role": "system", "content": "Spell."}
QUESTION = {"role": "user", "content": "PROMPT"}
SHOT = [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "one"}]
BEGUN = {"role": "assistant", "content": "It is"}


def test_exports_turns_for_chat_models(run: RunDirectory, tmp_path: Path) -> None:
    from trl.data_utils import is_conversational

    plain = copy_chat_run(run, tmp_path / "plain", system_instruction="Spell.")
    few_shot = copy_chat_run(run, tmp_path / "few-shot", [SYSTEM, *SHOT, QUESTION])
    prompt, response = read_recorded_texts(run, Arm("gapft", 13))[0]
    answer = {"role": "assistant", "content": response}
    for chat, turns in ((plain, [SYSTEM, QUESTION]), (few_shot, [SYSTEM, *SHOT, QUESTION])):
        out = tmp_path / f"trl of {chat.path.name}"
        export(chat, "trl", out)
        row = read_lines(out / "gapft-seed13.jsonl")[0]
        assert row == {"messages": [*replace_prompt(turns, prompt), answer]}
        assert is_conversational(row)


def give_template(run: RunDirectory, folder: Path, template: str) -> RunDirectory:
    """Copy the run with a model whose chat template renders its conversations."""
    tokenizer = write_byte_llama(folder / "model", chat_template=template)
    return copy_chat_run(run, folder / "run", args={"pretrained": str(tokenizer)})


def test_rejects_template_that_opens_a_thought(run: RunDirectory, tmp_path: Path) -> None:
    """Its prompts end in ``<think>``, which it does not write before an answer in a chat."""
    opening = CHAT_TEMPLATE.replace("<assistant>{% endif", "<assistant><think>{% endif")
    assert opening != CHAT_TEMPLATE
    chat = give_template(run, tmp_path, opening)
    with pytest.raises(UserError, match="renders its conversation differently"):
        export(chat, "trl", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_conversations_with_other_token_ids_are_counted(run: RunDirectory, tmp_path: Path) -> None:
    """The run's ids are bytes, which this tokenizer does not give."""
    chat = give_template(run, tmp_path, CHAT_TEMPLATE)
    lines: list[str] = []
    (first, *_) = export(chat, "trl", tmp_path / "out", report_line=lines.append)
    count = 2 * len(read_lines(first))
    (line,) = lines
    assert line.startswith(f"{count} of {count} conversations have other token ids")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    tokenizer.chat_template = "{{ strftime_now('%Y') }}" + CHAT_TEMPLATE
    check = TemplateCheck(tokenizer, {"strftime_now": "2026-01-31"})
    ids = tokenizer("2026<s><user>Spell.\n<assistant>a, b")["input_ids"]
    turns = [{"role": "user", "content": "Spell."}]
    assert check.find_fault(turns, "a, b", ids) == ""
    check.report_other_ids(lines.append)
    assert lines == [line]
    assert check.find_fault(turns, "a, b", [*ids[:-1], 3]) == ""
    check.report_other_ids(lines.append)
    assert lines[1].startswith("1 of 2 conversations")
    assert "1 because the chat template" in lines[1]
    spelled = [*ids[:4], *tokenizer.convert_tokens_to_ids(["<", "s", ">"]), *ids[5:]]
    assert check.find_fault(turns, "a, b", spelled) == ""
    check.report_other_ids(lines.append)
    assert "1 because the tokenizer splits the same text differently" in lines[2]


def test_rejects_tasks_with_answer_prefix(run: RunDirectory, tmp_path: Path) -> None:
    chat = copy_chat_run(run, tmp_path / "run", [QUESTION, BEGUN])
    with pytest.raises(UserError, match="gen_prefix"):
        export(chat, "trl", tmp_path / "out")


@pytest.mark.parametrize("forged_ids", ["response_ids", "prompt_ids"])
def test_rejects_forged_token_ids(run: RunDirectory, tmp_path: Path, forged_ids: str) -> None:
    """Text is made of complete responses and their prompts only."""
    forged_run = copy_run(run, tmp_path / "run")
    place = layout.selection_path(Arm("gapft", 13))
    first, *others = read_examples(forged_run.path / place)
    ids = {"response_ids": first.response_ids[:-1], "prompt_ids": (1, 2)}[forged_ids]
    forged = [dataclasses.replace(first, **{forged_ids: ids}), *others]
    write_examples(forged_run.path / place, forged)
    record_again(forged_run.path, place)
    with pytest.raises(UserError, match="example 0"):
        export(forged_run, "trl", tmp_path / "out")


@pytest.mark.parametrize("to", ["trl", "dataset", "merged"])
def test_rejects_edited_recipe(run: RunDirectory, tmp_path: Path, to: str) -> None:
    """The recipe decides the form of a training set, and no hash protects it."""
    shutil.copytree(run.path, tmp_path / "run")
    path = tmp_path / "run" / layout.RECIPE
    content = yaml.safe_load(path.read_text())
    content["model"]["args"]["pretrained"] = "meta-llama/Llama-3.1-70B"
    content["search"]["k"], content["training"]["rank"] = 64, 999
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(UserError, match=r"recipe\.yaml: was changed"):
        export(RunDirectory.open(tmp_path / "run"), to, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_dataset_holds_recorded_responses(run: RunDirectory, tmp_path: Path) -> None:
    files = export(run, "dataset", tmp_path / "out")
    assert files == [tmp_path / "out" / f"{split}.parquet" for split in ("pool", "audit")]
    tables = Run(run)
    for file in files:
        rows = load_dataset(
            "parquet", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache")
        )
        problems, states = (
            {row["problem_id"]: row for row in tables.read(name, split=file.stem).to_pylist()}
            for name in ("problems", "states")
        )
        responses = tables.read("responses", split=file.stem).to_pylist()
        for row, recorded in zip(rows, responses, strict=True):
            problem, state = problems[row["problem_id"]], states[row["problem_id"]]
            assert [row[key] for key in ("prompt", "gold")] == [problem["prompt"], problem["gold"]]
            assert row["state"] == state["state"]
            assert row["solve_rate"] == state["passing_samples"] / 4
            assert row["verdict"] == recorded["status"]
            for key in ("problem_id", "index", "text", "reason", "answer", "finish_reason"):
                assert row[key] == recorded[key]
        assert json.loads(rows[0]["gold"]) in "aeiou"
