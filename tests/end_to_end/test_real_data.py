"""The real LogiQA 2.0 validation file and MATH training file, from task to report.

A random byte-level Llama generates on a part of the data; it solves almost nothing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import succeed
from tests.kit.report_tables import find_row, read_results
from tests.kit.tiny_models import write_byte_llama
from tests.real_data import find_real_file

#: the first part of the validation file is the training split, the rest the test split
LOGIQA_TRAIN = 1100


def lay_out(benchmark: str, folder: Path) -> Path:
    """Write the real file as the benchmark's splits below a test folder."""
    data = folder / "data"
    if benchmark == "logiqa":
        lines = find_real_file("logiqa2/dev.txt").read_text("utf-8").splitlines(keepends=True)
        assert len(lines) == 1569
        (data / "logiqa2").mkdir(parents=True)
        (data / "logiqa2" / "train.txt").write_text("".join(lines[:LOGIQA_TRAIN]), "utf-8")
        (data / "logiqa2" / "test.txt").write_text("".join(lines[LOGIQA_TRAIN:]), "utf-8")
    else:
        (data / "MATH").mkdir(parents=True)
        (data / "MATH" / "train.jsonl").symlink_to(find_real_file("MATH/train.jsonl"))
    return data


def run_recipe(folder: Path, recipe: dict[str, Any], data: Path) -> dict[str, Any]:
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    succeed("run", "recipe.yaml", "--run-dir", "run", cwd=folder, env={"GAPFT_DATA_DIR": str(data)})
    return read_results(folder / "run")


@pytest.mark.thorough
@pytest.mark.parametrize("benchmark", ["logiqa", "math"])
def test_random_model_generates_on_real_data(benchmark: str, tmp_path: Path) -> None:
    data = lay_out(benchmark, tmp_path)
    model = write_byte_llama(tmp_path / "model", hidden=16, layers=1, heads=1, context=8192)
    results = run_recipe(
        tmp_path,
        {
            "name": f"random-{benchmark}",
            "data": {"task": f"gapft_{benchmark}", "pool_limit": 600, "audit_limit": 300},
            "model": {"args": {"pretrained": str(model), "dtype": "float32", "batch_size": 32}},
            "search": {"k": 1, "max_gen_toks": 4, "chunk": 512},
            "conditions": ["gapft"],
            "seeds": [13],
            "training": {"dtype": "float32", "max_length": 8192, "repetitions": 1},
            "executor": {"workers": 2},
        },
        data,
    )
    assert results["run"][0]["problems"] == 300
    assert sum(row["problems"] for row in results["states"] if row["split"] == "pool") == 600
    recovered = find_row(results["states"], split="pool", state="S")["problems"]
    if recovered == 0:
        assert "nothing to train on" in results["run"][0]["answer"]
    else:
        assert find_row(results["seeds"], condition="gapft", seed=13)["slots"] == recovered
