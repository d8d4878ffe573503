"""Complete run directories with planted outcomes, so that studies train nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapft_harness.recipe.reading import check_recipe
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.study.driver import run_study
from gapft_harness.study.recipe import read_study
from tests.report import planted
from tests.report.written_run import build_recipe


def build_cell(number: int, sizes: tuple[int, int, int] = (30, 20, 18)) -> ReportInputs:
    """Build planted inputs; each number gives different trained models on the same audit."""
    base = planted.build_inputs(sizes=sizes, k=4, pool_states=(9, 100 + 10 * number, 7))
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
    content = build_recipe(base)
    recipe = check_recipe(content, "planted").model_dump(mode="json")
    return replace(base, arms=tuple(arms), recipe=recipe)


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
