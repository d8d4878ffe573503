"""The real MATH training file, from task to report.

A random byte-level Llama generates on a part of the data; it solves almost nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.command import succeed
from tests.kit.report_tables import find_row, read_results
from tests.kit.tiny_models import write_byte_llama
from tests.real_data import find_real_file


@pytest.mark.thorough
def test_random_model_generates_on_real_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "MATH").mkdir(parents=True)
    (data / "MATH" / "train.jsonl").symlink_to(find_real_file("MATH/train.jsonl"))
    model = write_byte_llama(tmp_path / "model", hidden=16, layers=1, heads=1, context=8192)
    recipe = {
        "name": "random-math",
        "data": {"task": "gapft_math", "pool_limit": 600, "audit_limit": 300},
        "model": {"args": {"pretrained": str(model), "dtype": "float32", "batch_size": 32}},
        "search": {"k": 1, "max_gen_toks": 4, "chunk": 512},
        "conditions": ["gapft"],
        "seeds": [13],
        "training": {"dtype": "float32", "max_length": 8192, "repetitions": 1},
        "executor": {"workers": 2},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    command = ("run", "recipe.yaml", "--run-dir", "run")
    succeed(*command, cwd=tmp_path, env={"GAPFT_DATA_DIR": str(data)})
    results = read_results(tmp_path / "run")
    assert results["run"][0]["problems"] == 300
    assert sum(row["problems"] for row in results["states"] if row["split"] == "pool") == 600
    recovered = find_row(results["states"], split="pool", state="S")["problems"]
    if recovered == 0:
        assert "nothing to train on" in results["run"][0]["answer"]
    else:
        assert find_row(results["seeds"], condition="gapft", seed=13)["slots"] == recovered
