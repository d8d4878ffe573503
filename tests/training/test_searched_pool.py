"""Trainers that declare needs_problems receive the searched pool; others do not."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.recorded import read_training
from tests.kit.command import succeed
from tests.kit.plugins import build_plugin
from tests.training.examples import write_letters_recipe

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


PLUGINS = ("--plugin", "plugin.py", "--plugin", "online.py")


def test_only_a_declared_trainer_receives_the_searched_pool(tmp_path: Path) -> None:
    write_letters_recipe(tmp_path, training={"trainer": "online", "repetitions": 1})
    (tmp_path / "online.py").write_text(ONLINE)
    conditions = "{gapft: {}, offline: {selector: gapft, training: {trainer: offline}}}"
    setting = ("--set", f"conditions={conditions}")
    stages = [word for name in ("search", "states", "select", "train") for word in ("--only", name)]
    succeed(
        *("run", "recipe.yaml", "--run-dir", "run", "--include-path", "tasks", *PLUGINS, *setting),
        *stages,
        cwd=tmp_path,
    )
    training = read_training(RunDirectory.open(tmp_path / "run"))
    assert "read" not in training["offline-seed13"]
    read = training["gapft-seed13"]["read"]
    pool = pq.read_table(tmp_path / "run" / "pool" / "problems.parquet")
    assert read["problems"] == pool["problem_id"].to_pylist()
    assert len(read["problems"]) == 60
    assert read["right"] == ["pass"] * 60
    assert read["wrong"] == ["fail"] * 60
    assert read["prompts"] == pool["prompt_ids"].to_pylist()
    assert all(read["prompts"])
    assert read["own"] is True
    assert [read[key] for key in ("do_sample", "temperature", "max_gen_toks")] == [True, 1.0, 12]
    assert read["verifier"] == ["contains", {}]
    succeed("verify", "run", *PLUGINS, cwd=tmp_path)
