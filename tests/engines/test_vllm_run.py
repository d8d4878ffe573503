"""The whole demo recipe with vLLM for search and audit, with the real command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tests.engines.needs_vllm  # noqa: F401
from gapft_harness.core.records import GREEDY, Adapter, Arm, Decoding
from gapft_harness.hooks.protocols import Request, SamplerSettings
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.lm_eval_bridge.samplers.hf import HfSampler
from gapft_harness.lm_eval_bridge.samplers.vllm.sampler import VllmSampler
from gapft_harness.recipe.recipe import resolve_model
from tests.asking import generate_all, ignore_progress, make_request
from tests.kit.command import succeed

MODEL = {"pretrained": resolve_model("bundled:demo"), "dtype": "float32", "device": "cpu"}
#: The recipe's other settings, so that batches equal those of the run.
BATCH = {"batch_size": 256}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vllm") / "run"
    limits = ("data.pool_limit=60", "data.audit_limit=60", "search.chunk=25")
    settings = ("model.backend=vllm", *limits)
    succeed(
        *("run", "demo", "--run-dir", folder, "--seed", 13),
        *("--condition", "gapft", "--condition", "replay"),
        *(part for setting in settings for part in ("--set", setting)),
    )
    return folder


@pytest.fixture(scope="module")
def prompts() -> dict[str, str]:
    task = load_task("gapft_demo")
    return {problem.id: problem.prompt for problem in (*task.read("pool"), *task.read("audit"))}


def read_rows(path: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return records


def test_greedy_matches_hf_and_samples_repeat(run: Path, prompts: dict[str, str]) -> None:
    """Rows contain the samples' seeds; this process draws all samples again."""
    responses = read_rows(run / "pool/responses.parquet")
    hf = HfSampler(SamplerSettings("hf", MODEL | BATCH), None)
    greedy = [row for row in responses if row["index"] == GREEDY]
    assert len(greedy) == 60
    requests = [make_request(r["problem_id"], prompts[r["problem_id"]], (GREEDY,)) for r in greedy]
    again = generate_all(hf, requests, Decoding(False, 32), 0)
    assert [list(a.generations[0].token_ids) for a in again] == [r["token_ids"] for r in greedy]

    engine = VllmSampler(SamplerSettings("vllm", MODEL | BATCH), None)
    samples = [row for row in responses if row["index"] != GREEDY]
    assert len(samples) == 60 * 8
    assert len({row["seed"] for row in samples}) == len(samples)
    requests = [
        Request(r["problem_id"], prompts[r["problem_id"]], (r["index"],), (r["seed"],))
        for r in samples
    ]
    try:
        drawn = engine.generate(requests, Decoding(True, 32, (), 1.0, 1.0, 0), ignore_progress)
    finally:
        engine.close()
    assert [list(a.generations[0].token_ids) for a in drawn] == [r["token_ids"] for r in samples]
    assert [a.generations[0].text for a in drawn] == [row["text"] for row in samples]


def test_adapter_audit_matches_hf(run: Path, prompts: dict[str, str]) -> None:
    decisions = read_rows(run / "decisions/gapft-seed13.parquet")
    adapter = Adapter(Arm("gapft", 13), str(run / "adapters/gapft-seed13"))
    requests = [
        make_request(r["problem_id"], prompts[r["problem_id"]], (GREEDY,)) for r in decisions
    ]
    merged = HfSampler(SamplerSettings("hf", MODEL | BATCH), adapter)
    answers = generate_all(merged, requests, Decoding(False, 32), 0)
    assert [a.generations[0].text for a in answers] == [r["text"] for r in decisions]
    source = {
        r["problem_id"]: r["text"]
        for r in read_rows(run / "audit/responses.parquet")
        if r["index"] == GREEDY
    }
    assert any(source[r["problem_id"]] != r["text"] for r in decisions)
