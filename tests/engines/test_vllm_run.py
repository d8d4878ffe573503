"""The whole demo recipe with vLLM as backend of search and audit, through the real command."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tests.engines.needs_vllm  # noqa: F401
from gapft_harness.lm_eval_bridge.hf_sampler import HfSampler
from gapft_harness.lm_eval_bridge.tasks import load_task
from gapft_harness.lm_eval_bridge.vllm_sampler import VllmSampler
from gapft_harness.models import resolve_model
from gapft_harness.protocols import Request, SamplerSettings
from gapft_harness.records import GREEDY, Adapter, Arm, Decoding
from tests.command import gapft, succeed
from tests.end_to_end.results_checks import check_results

pytestmark = pytest.mark.xdist_group("vllm")

MODEL = {"pretrained": resolve_model("bundled:demo"), "dtype": "float32", "device": "cpu"}
#: What the recipe sets besides, so that batches are those of the run.
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
    return {problem.id: problem.prompt for problem in (*task.pool(), *task.audit())}


def rows(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return found


def test_the_report_obeys_every_law_and_names_the_engine(run: Path) -> None:
    results = json.loads((run / "report/results.json").read_text())
    check_results(results)
    assert set(results["conditions"]) == {"gapft", "replay"}
    source = json.loads((run / "manifest.json").read_text())["source"]
    assert source["backend"] == "vllm"
    assert source["versions"]["vllm"]
    assert source["engine"]["in_process"] is True


def test_the_search_is_as_hf_in_greedy_and_repeats_to_the_token_in_sampling(
    run: Path, prompts: dict[str, str]
) -> None:
    """A sealed row holds its chunk's seed: the chunk is drawn again, in this process."""
    found = rows(run / "pool/responses.parquet")
    hf = HfSampler(SamplerSettings("hf", MODEL | BATCH), None)
    greedy = [row for row in found if row["index"] == GREEDY]
    assert len(greedy) == 60
    requests = [Request(r["problem_id"], prompts[r["problem_id"]], (GREEDY,)) for r in greedy]
    again = hf.generate(requests, Decoding(False, 32), 0)
    assert [list(a.generations[0].token_ids) for a in again] == [r["token_ids"] for r in greedy]

    engine = VllmSampler(SamplerSettings("vllm", MODEL | BATCH), None)
    samples = sorted((r for r in found if r["index"] != GREEDY), key=lambda r: r["seed"])
    chunks = [list(rows) for _, rows in groupby(samples, key=lambda r: r["seed"])]
    assert sorted(map(len, chunks)) == [10 * 8, 25 * 8, 25 * 8]
    try:
        for chunk in chunks:
            requests = [
                Request(r["problem_id"], prompts[r["problem_id"]], (r["index"],)) for r in chunk
            ]
            drawn = engine.generate(requests, Decoding(True, 32, (), 1.0, 1.0, 0), chunk[0]["seed"])
            ids = [list(answer.generations[0].token_ids) for answer in drawn]
            assert ids == [row["token_ids"] for row in chunk]
            assert [r["text"] for r in chunk] == [answer.generations[0].text for answer in drawn]
    finally:
        engine.close()


def test_an_adapter_of_ours_is_audited_as_hf_would(run: Path, prompts: dict[str, str]) -> None:
    decisions = rows(run / "decisions/gapft-seed13.parquet")
    adapter = Adapter(Arm("gapft", 13), str(run / "adapters/gapft-seed13"))
    requests = [Request(r["problem_id"], prompts[r["problem_id"]], (GREEDY,)) for r in decisions]
    merged = HfSampler(SamplerSettings("hf", MODEL | BATCH), adapter)
    answers = merged.generate(requests, Decoding(False, 32), 0)
    assert [a.generations[0].text for a in answers] == [r["text"] for r in decisions]
    source = {
        r["problem_id"]: r["text"]
        for r in rows(run / "audit/responses.parquet")
        if r["index"] == GREEDY
    }
    assert any(source[r["problem_id"]] != r["text"] for r in decisions)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.args.gpu_memory_utilisation=0.5", "did you mean 'gpu_memory_utilization'"),
        ("search.max_gen_toks=500", "the model's context is 256 tokens"),
    ],
)
def test_mistakes_end_with_status_2_and_no_traceback(
    tmp_path: Path, setting: str, message: str
) -> None:
    done = gapft(
        *("run", "demo", "--run-dir", tmp_path / "run", "--set", "model.backend=vllm"),
        *("--set", setting),
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
