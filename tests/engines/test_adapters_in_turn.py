"""``gapft eval --adapters`` gives each adapter's answers on vLLM as on transformers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tests.engines.needs_vllm  # noqa: F401
from gapft_harness.recipe.recipe import resolve_model
from tests.engines.test_vllm_adapters import random_adapter
from tests.lm_eval_bridge.test_adapters_in_turn import copy_adapter

ENGINE = (
    "enforce_eager=True,enable_chunked_prefill=False,max_model_len=256,"
    f"kv_cache_memory_bytes={2**28}"
)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three adapters of the demo policy: two that change it differently, and one without effect."""
    folder = tmp_path_factory.mktemp("adapters")
    random_adapter(Path(resolve_model("bundled:demo")), folder / "random")
    for name, factor in (("one", 2.0), ("two", -2.0), ("tiny", 1e-30)):
        copy_adapter(folder / "random", folder / name, lambda weight, by=factor: weight * by)
    return folder


def evaluate(
    folder: Path, out: Path, model: str, *names: str, more: str = ""
) -> subprocess.CompletedProcess[str]:
    arguments = f"pretrained={resolve_model('bundled:demo')},dtype=float32{more}"
    return subprocess.run(
        [
            *(sys.executable, "-m", "gapft_harness.cli.main", "eval", "--model", model),
            *("--model_args", arguments, "--tasks", "gapft_demo", "--limit", "12"),
            *("--batch_size", "12", "--output_path", str(out)),
            *("--adapters", ",".join(str(folder / name) for name in names)),
        ],
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def read_answers(out: Path) -> list[str]:
    [log] = out.rglob("samples_*.jsonl")
    return [json.loads(line)["resps"][0][0] for line in log.read_text().splitlines()]


def test_adapters_answer_as_on_transformers(adapters: Path, tmp_path: Path) -> None:
    done = evaluate(adapters, tmp_path / "hf", "hf", "one", "two")
    assert done.returncode == 0, done.stdout + done.stderr
    done = evaluate(adapters, tmp_path / "vllm", "vllm", "one", "two", "tiny", more=f",{ENGINE}")
    assert done.returncode == 1
    assert "tiny: not applied" in done.stderr
    answers_by_backend = {
        model: {name: read_answers(tmp_path / model / name) for name in ("base", "one", "two")}
        for model in ("hf", "vllm")
    }
    assert answers_by_backend["vllm"] == answers_by_backend["hf"]
    assert len({tuple(texts) for texts in answers_by_backend["vllm"].values()}) == 3
    [results_file] = (tmp_path / "vllm" / "two").rglob("results_*.json")
    arguments = json.loads(results_file.read_text())["config"]["model_args"]
    assert arguments["lora_local_path"] == str(adapters / "two")


def test_refuses_to_overwrite_other_results(adapters: Path, tmp_path: Path) -> None:
    more = f",lora_local_path={adapters / 'two'}"
    done = evaluate(adapters, tmp_path / "out", "vllm", "one", more=more)
    assert done.returncode == 2
    assert "--model_args lora_local_path=…: conflicts with --adapters" in done.stderr
