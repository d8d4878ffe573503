"""Trainers that declare needs_problems receive the searched pool; others do not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_training
from tests.kit.command import succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.plugins import build_plugin
from tests.kit.records import change_recipe

ONLINE = build_plugin(
    '''
import json


def online(job):
    """Train LoRA and record the inputs that an online trainer needs."""
    found = job.searched
    golds = [problem.gold for problem in found.problems]
    judge = found.verifier.load()
    read = {
        "problems": [problem.id for problem in found.problems],
        "right": [v.status for v in judge.verify(golds, golds)],
        "wrong": [v.status for v in judge.verify([""] * len(golds), golds)],
        "prompts": [found.prompt_ids[problem.id] for problem in found.problems],
        "own": all(found.prompt_ids[e.problem_id] == e.prompt_ids for e in job.examples),
        "temperature": found.decoding.temperature,
        "max_gen_toks": found.decoding.max_gen_toks,
        "do_sample": found.decoding.do_sample,
        "verifier": [found.verifier.name, found.verifier.params],
    }
    facts = train_lora(job)
    path = job.output / "training.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "read": read}))
    return {**facts, "read": read}


def offline(job):
    """Fail if the searched pool is passed."""
    assert job.searched is None, job.searched
    return train_lora(job)
''',
    trainers=['"online", online, needs_problems=True', '"offline", offline'],
)


@pytest.fixture(scope="module")
def searched_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("searched")
    prepare_letters_run(folder)
    content = yaml.safe_load((folder / "recipe.yaml").read_text())
    content |= {"conditions": ["gapft"], "seeds": [13], "executor": {"workers": 1}}
    content["training"] |= {"trainer": "online", "repetitions": 1}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(content))
    (folder / "online.py").write_text(ONLINE)
    succeed(
        *("run", "recipe.yaml", "--run-dir", "run", "--include-path", "tasks", *PLUGINS),
        *("--only", "search", "--only", "states", "--only", "select"),
        cwd=folder,
    )
    shutil.copytree(folder / "run", folder / "other")
    return folder


PLUGINS = ("--plugin", "plugin.py", "--plugin", "online.py")


def test_online_trainer_receives_searched_pool(searched_folder: Path) -> None:
    succeed("run", "run", "--only", "train", *PLUGINS, cwd=searched_folder)
    read = read_training(RunDirectory.open(searched_folder / "run"))["gapft-seed13"]["read"]
    pool = pq.read_table(searched_folder / "run" / "pool" / "problems.parquet")
    assert read["problems"] == pool["problem_id"].to_pylist()
    assert len(read["problems"]) == 60
    assert read["right"] == ["pass"] * 60
    assert read["wrong"] == ["fail"] * 60
    assert read["prompts"] == pool["prompt_ids"].to_pylist()
    assert all(read["prompts"])
    assert read["own"] is True
    assert [read[key] for key in ("do_sample", "temperature", "max_gen_toks")] == [True, 1.0, 12]
    assert read["verifier"] == ["contains", {}]
    succeed("verify", "run", *PLUGINS, cwd=searched_folder)


def test_other_trainer_receives_no_pool(searched_folder: Path) -> None:
    path = searched_folder / "other/recipe.yaml"
    before = path.read_text()
    path.write_text(before.replace("online", "offline"))
    assert path.read_text() != before
    change_recipe(searched_folder / "other", lambda recipe: None)
    succeed("run", "other", "--only", "train", *PLUGINS, cwd=searched_folder)
