"""Complete run directories with planted outcomes, so that studies train nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapft_harness.core.files import sha256, write_json
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import new_manifest
from gapft_harness.run_directory.tables import problem_schema, response_schema
from gapft_harness.study.driver import run_study
from gapft_harness.study.recipe import read_study
from tests.report import planted
from tests.report.written_run import build_response, write_rows, write_run

SEEDS = (13, 21, 73)


def build_recipe(inputs: ReportInputs, **changes: Any) -> dict[str, Any]:
    """Build a run's recipe for planted inputs."""
    return {
        "name": "planted",
        "data": {"task": inputs.task["name"]},
        "model": {"args": {"pretrained": "planted"}},
        "search": {"k": inputs.k},
        "conditions": list(inputs.conditions),
        "seeds": list(inputs.seeds),
        "statistics": {"replicates": 200},
        **changes,
    }


def build_cell(
    number: int = 0,
    sizes: tuple[int, int, int] = (30, 20, 18),
    k: int = 4,
    replicates: int = 200,
) -> ReportInputs:
    """Build planted inputs; each number gives different trained models on the same audit."""
    base = planted.build_inputs(sizes=sizes, k=k, pool_states=(9, 100 + 10 * number, 7))
    arms = [
        planted.build_arm(
            base.audit,
            trained.arm.condition,
            trained.arm.seed,
            tuple(
                min(1.0, rate * (0.8 + 0.15 * number))
                for rate in planted.FLOWS[trained.arm.condition]
            ),
            n=295 if trained.arm.condition == "all_verified" else 100 + 10 * number,
        )
        for trained in base.arms
    ]
    content = build_recipe(base, statistics={"replicates": replicates})
    recipe = check_recipe(content, "planted").model_dump(mode="json")
    return replace(base, arms=tuple(arms), recipe=recipe)


def write_run_directory(folder: Path, inputs: ReportInputs, **changes: Any) -> Path:
    """Write planted inputs as a run directory whose manifest has every table's hash."""
    recipe = check_recipe(build_recipe(inputs, **changes), "planted")
    planted_run = write_run(folder, inputs)
    write_pool(folder, inputs)
    (folder / layout.RECIPE).write_text(yaml.safe_dump(recipe.model_dump(mode="json")))
    tables = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.parquet"))
    manifest = {
        **new_manifest(recipe),
        **planted_run,
        "recipe": recipe.model_dump(mode="json"),
        "files": {name: sha256(folder / name) for name in tables},
        "verdict_counts": {"pool": {"fail": sum(inputs.pool_states.values()) * (inputs.k + 1)}},
        "n": 134,
    }
    write_json(folder / layout.MANIFEST, manifest)
    return folder


def write_pool(folder: Path, inputs: ReportInputs) -> None:
    """Write the pool's problems and responses; a study only checks their hashes."""
    ids = [f"{state}{i}" for state, count in inputs.pool_states.items() for i in range(count)]
    problems = [
        {
            "problem_id": i,
            "prompt": f"pool {i}",
            "gold": "1",
            "document": "{}",
            "turns": "[]",
            "prompt_ids": [1],
        }
        for i in ids
    ]
    write_rows(folder / layout.problems_path("pool"), problems, problem_schema())
    rows = [build_response(i, index, "", "fail") for i in ids for index in range(-1, inputs.k)]
    write_rows(folder / layout.responses_path("pool"), rows, response_schema())


def update_recorded_hash(folder: Path, file: str) -> None:
    """Record the current hash of a table, as someone who forges a run would."""
    run = RunDirectory.open(folder)
    run.update_manifest(lambda manifest: manifest["files"].update({file: sha256(folder / file)}))


def write_study_file(**changes: Any) -> None:
    """Write a study of ``runs/a`` and ``runs/b``, with changes, in the working directory."""
    content = {"name": "two", "cells": {"A": {"run": "runs/a"}, "B / b": {"run": "runs/b"}}}
    with open("study.yaml", "w") as file:
        yaml.safe_dump({**content, **changes}, file, sort_keys=False)


def run_planted_study(folder: Path) -> Path:
    """Run the study in this process; its cells need no recipe."""
    refuse = pytest.fail
    return run_study(read_study("study.yaml"), folder / "study", refuse, refuse, print)


def read_results(folder: Path) -> dict[str, Any]:
    """Read the study's results.json."""
    return json.loads((folder / "study/report/results.json").read_text())
