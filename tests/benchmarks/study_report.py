"""The report of a study with 6 cells x 4 conditions x 3 seeds, from sealed decisions.

The runs are planted: sealed tables of the size of the paper's audits, with checked hashes. The
whole command is measured in its own process, without torch.
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from tests.benchmarks.measure import Figure, run_process
from tests.report import planted
from tests.study.sealed import build_cell, write_run_directory
from tests.study.test_findings import move_to_other_audit

SECONDS, GB = 20, 1
#: G, S and U of 1,367 and 500 audit problems; K is 8.
AUDITS = {"LogiQA": (688, 364, 315), "ReClor": (277, 130, 93)}


def measure(folder: Path) -> list[Figure]:
    """Seal six runs, then time ``gapft run STUDY``."""
    cells = {}
    for model in range(3):
        for task, sizes in AUDITS.items():
            planted_cell = build_cell(model, sizes=sizes, k=8, replicates=2000)
            if task == "ReClor":
                planted_cell = move_to_other_audit(planted_cell, task)
            own = {"data": {"task": task}, "statistics": {"replicates": 2000}}
            write_run_directory(folder / f"{task}-{model}", planted_cell, **own)
            cells[f"model {model} / {task}"] = {"run": f"{task}-{model}"}
    conditions = list(planted.CONDITIONS)
    study = {"name": "six", "conditions": conditions, "cells": cells}
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False))
    command = [sys.executable, "-m", "gapft_harness.cli.main", "run", "study.yaml"]
    took = run_process(command, folder, {"PYTHONPATH": str(Path(__file__).parents[2])})
    assert (folder / "runs/six/report/index.html").exists()
    return [
        Figure("a study of 6 cells, whole command", took.seconds, SECONDS, "s"),
        Figure("its peak memory", took.peak_gb, GB, "GB"),
    ]
