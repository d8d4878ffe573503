"""Conditions with their own K and training settings, in one run and one paired table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.command import succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.report_tables import index_rows
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


@pytest.mark.thorough
def test_arms_with_other_settings_are_never_matched(folder: Path, results: dict[str, Any]) -> None:
    own: dict[str, dict[str, object]] = {
        "gapft": {},
        "uniform": {},
        "uniform_2": {"k": 2},
        "gapft_1": {"k": 1},
        "fast": {"training.learning_rate": 0.001},
        "older": {"training.start_tokens": 1},
        "online": {"training.trainer": "online"},
        "again": {},
    }
    pairs = index_rows(results["contrasts"], "a", "b")
    pairs = {pair: row for pair, row in pairs.items() if pair[1] != "source"}
    assert len(pairs) == len(CONDITIONS) * (len(CONDITIONS) - 1) // 2
    for (a, b), contrast in pairs.items():
        alike = own[a] == own[b]
        assert contrast["matched_budget"] == alike, (a, b)
        assert set(contrast["differs"].split()) == {*own[a]} ^ {*own[b]} | {
            key for key in {*own[a]} & {*own[b]} if own[a][key] != own[b][key]
        }
    labels = [row["label"] for row in results["conditions"]]
    for label in ("uniform 2 (K = 2 of 4)", "online (trainer online)", "older (start tokens 1)"):
        assert label in labels
    assert pairs["gapft", "older"]["label"].endswith("‡")
