"""The whole demo recipe with vLLM for search and audit, with the real command."""

from __future__ import annotations

from pathlib import Path

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
from tests.kit.tampering import read_rows

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


def test_samples_repeat_from_their_seeds(run: Path, prompts: dict[str, str]) -> None:
    """Rows contain the samples' seeds; this process draws all samples again."""
    rows = read_rows(run / "pool/responses.parquet")
    samples = [row for row in rows if row["index"] != GREEDY]
    assert len({row["seed"] for row in samples}) == len(samples) == 60 * 8
    requests = [
        Request(r["problem_id"], prompts[r["problem_id"]], (r["index"],), (r["seed"],))
        for r in samples
    ]
    engine = VllmSampler(SamplerSettings("vllm", MODEL | BATCH), None)
    try:
        drawn = engine.generate(requests, Decoding(True, 32, (), 1.0, 1.0, 0), ignore_progress)
    finally:
        engine.close()
    assert [list(a.generations[0].token_ids) for a in drawn] == [r["token_ids"] for r in samples]


def test_greedy_decodes_match_hf(run: Path, prompts: dict[str, str]) -> None:
    """Those of the source and of an adapter, which hf merges."""
    texts = []
    adapter = Adapter(Arm("gapft", 13), str(run / "adapters/gapft-seed13"))
    for table, merged in (
        ("audit/responses.parquet", None),
        ("decisions/gapft-seed13.parquet", adapter),
    ):
        greedy = [row for row in read_rows(run / table) if row["index"] == GREEDY]
        texts.append([row["text"] for row in greedy])
        requests = [
            make_request(r["problem_id"], prompts[r["problem_id"]], (GREEDY,)) for r in greedy
        ]
        hf = HfSampler(SamplerSettings("hf", MODEL | BATCH), merged)
        answers = generate_all(hf, requests, Decoding(False, 32), 0)
        assert [answer.generations[0].text for answer in answers] == texts[-1]
    assert texts[0] != texts[1]
