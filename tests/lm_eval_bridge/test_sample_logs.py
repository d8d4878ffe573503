"""lm_eval's sample logs contain the verdict on every response; its metrics do not change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapft_harness.analysis.pass_at_k import pass_at_k
from gapft_harness.lm_eval_bridge.discovery import load_task
from tests.kit.command import lm_eval

ROOT = Path(__file__).parents[2]


@pytest.mark.thorough
def test_logs_verdict_of_each_sample(tmp_path: Path) -> None:
    policy = ROOT / "gapft_harness/demo/policy"
    done = lm_eval(
        "--model", "hf", "--device", "cpu", "--batch_size", 16, "--tasks",
        "gapft_demo,gapft_demo_passk", "--limit", 6, "--log_samples", "--output_path", tmp_path,
        "--model_args", f"pretrained={policy},dtype=float32",
    )  # fmt: skip
    assert "verdicts" not in done.stdout
    import numpy as np

    statuses = set()
    for task, samples in (("gapft_demo", 1), ("gapft_demo_passk", 8)):
        (file,) = tmp_path.rglob(f"samples_{task}_2*.jsonl")
        records = [json.loads(line) for line in file.read_text().splitlines()]
        assert len(records) == 6
        for record in records:
            record_statuses = [verdict["status"] for verdict in record["verdicts"]]
            statuses |= set(record_statuses)
            assert len(record_statuses) == samples == len(np.ravel(record["filtered_resps"]))
            for verdict in record["verdicts"]:
                assert bool(verdict["reason"]) == (verdict["status"] != "pass")
                assert ("answer" in verdict) == (" box" not in verdict["reason"])
            passing = np.array([record_statuses.count("pass")])
            for k in (1, samples):
                assert record[f"pass@{k}"] == pytest.approx(pass_at_k(passing, samples, k)[0])
    assert statuses == {"pass", "fail"}
    (results,) = tmp_path.rglob("results_*.json")
    assert "verdicts" not in results.read_text()


def test_loads_task_beside_clone(tmp_path: Path) -> None:
    """lm-eval prefers a class from a file next to the YAML, which in a clone is another copy."""
    (tmp_path / "gapft_harness").symlink_to(ROOT / "gapft_harness")
    (tmp_path / "pool.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')
    (tmp_path / "mine.yaml").write_text(
        "task: mine\nclass: !function gapft_harness.lm_eval_bridge.task.GapTask\n"
        "dataset_path: json\ndataset_kwargs: {data_files: {train: pool.jsonl, test: pool.jsonl}}\n"
        "training_split: train\ntest_split: test\n"
        'doc_to_text: "{{question}}"\ndoc_to_target: "{{answer}}"\n'
        "generation_kwargs: {do_sample: false, max_gen_toks: 9}\n"
        "metadata: {version: 1, gapft: {verifier: boxed_math, keep: first}}\n"
    )
    assert load_task(str(tmp_path / "mine.yaml")).verifier == "boxed_math"
