"""Runs and dry runs report training faults before anything is generated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chat_models import CHATML, set_generation_ends, write_chat_model
from tests.kit.command import call
from tests.kit.recording_run import IN_PROCESS_PLUGIN
from tests.training.examples import write_letters_recipe
from tests.training.test_tied import build_base_model


def break_template(folder: Path) -> str:
    write_chat_model(
        folder / "model", "Gemma", "{% if messages|length > 1 %}{{ 1/0 }}{% endif %}Q:"
    )
    return "model.chat_template=true"


def break_end_text(folder: Path) -> str:
    write_chat_model(folder / "model", "Gemma", CHATML.replace("<|im_end|>", "###END###"))
    return "model.chat_template=true"


def remove_end_token(folder: Path) -> str:
    set_generation_ends(folder / "model", None)
    path = folder / "model" / "tokenizer_config.json"
    content = json.loads(path.read_text())
    del content["eos_token"]
    path.write_text(json.dumps(content))
    return ""


def tie_embeddings(folder: Path) -> str:
    build_base_model(folder / "model", tied=True)
    return "training.target_modules=[q_proj,lm_head]"


def write_time(folder: Path) -> str:
    write_chat_model(folder / "model", "Gemma", "{{ strftime_now('%H:%M:%S') }}" + CHATML)
    return "model.chat_template=true"


FAULTS = {
    "strftime_now": write_time,
    "model.chat_template": break_template,
    "###END###": break_end_text,
    "training.supervise_eos": remove_end_token,
    "training.target_modules": tie_embeddings,
}


def write_faulty_recipe(folder: Path, key: str) -> list[str]:
    """Write a recipe with a fault; return the command that uses it."""
    write_letters_recipe(folder, executor={"name": "here"})
    (folder / "here.py").write_text(IN_PROCESS_PLUGIN)
    setting = FAULTS[key](folder)
    options = ["--include-path", "tasks", "--plugin", "plugin.py", "--plugin", "here.py"]
    return ["run", "recipe.yaml", *options, *(["--set", setting] if setting else [])]


@pytest.mark.parametrize("key", FAULTS)
def test_rejects_fault_before_generating(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = call(*write_faulty_recipe(tmp_path, key), "--run-dir", "run")
    assert refused.returncode == 2, refused.stderr
    assert key in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not list(tmp_path.glob("run/**/*.jsonl"))
    assert not list(tmp_path.glob("run/**/*.parquet"))


def test_dry_run_lists_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dry = call(*write_faulty_recipe(tmp_path, "###END###"), "--dry-run").stdout
    assert "###END###" in dry.partition("# missing here")[2]
