"""The stock ``lm_eval`` command with vLLM on a bundled task: K distinct samples, Pass@k."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import tests.engines.needs_vllm  # noqa: F401
from gapft_harness.recipe.recipe import resolve_model

LIMIT = 12


def test_stock_lm_eval_draws_k_distinct_samples_of_the_demo_task(tmp_path: Path) -> None:
    """The installed package registers our tasks; no option names their folder."""
    model = resolve_model("bundled:demo")
    arguments = (
        f"pretrained={model},dtype=float32,enforce_eager=True,enable_chunked_prefill=False,"
        f"max_model_len=256,kv_cache_memory_bytes={2**28}"
    )
    command = [
        *(Path(sys.executable).parent / "lm_eval", "--model", "vllm", "--model_args", arguments),
        *("--tasks", "gapft_demo_passk", "--limit", str(LIMIT), "--batch_size", "auto"),
        *("--output_path", tmp_path, "--log_samples"),
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [samples] = tmp_path.rglob("samples_gapft_demo_passk_*.jsonl")
    records = [json.loads(line) for line in samples.read_text().splitlines()]
    assert len(records) == LIMIT
    responses = [record["resps"][0] for record in records]
    assert {len(row) for row in responses} == {len(responses[0])}
    k = len(responses[0])
    assert k >= 8
    # Easy problems get equal answers; if one seed were used K times, all problems would.
    distinct = [len(set(row)) for row in responses]
    assert max(distinct) > 4
    assert sum(distinct) > 2 * LIMIT
    [results] = tmp_path.rglob("results_*.json")
    results_of_task = json.loads(results.read_text())["results"]["gapft_demo_passk"]
    rates = {key: value for key, value in results_of_task.items() if key.startswith("pass@")}
    assert rates
    assert all(0 <= value <= 1 for key, value in rates.items() if "stderr" not in key)
