"""``gapft import`` of a greedy log and a log of K samples, both written by lm_eval."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.run_directory.tables import read_states
from tests.kit.command import gapft, succeed

TASK = """\
task: sums
class: !function gapft_harness.lm_eval_bridge.task.GapTask
dataset_path: json
dataset_kwargs: {data_files: {train: pool.jsonl, test: audit.jsonl}}
training_split: train
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {do_sample: false, max_gen_toks: 32}
metadata:
  version: 1
  gapft: {verifier: boxed_math, keep: first, id: "{{id}}", gold_only: [solution]}
"""


def write_task(folder: Path, documents: Sequence[Mapping[str, Any]]) -> None:
    """Write a task with these audit documents; the field ``solution`` is for golds only."""
    (folder / "sums.yaml").write_text(TASK)
    (folder / "audit.jsonl").write_text("".join(json.dumps(doc) + "\n" for doc in documents))
    (folder / "pool.jsonl").write_text(json.dumps({**documents[0], "question": "1+1?"}) + "\n")


def test_imports_real_lm_eval_logs(logs: Path, tmp_path: Path) -> None:
    (greedy,) = (logs / "before").rglob("samples_gapft_demo_2*.jsonl")
    (samples,) = (logs / "before").rglob("samples_gapft_demo_passk_*.jsonl")
    rows = {path: [json.loads(line) for line in path.open()] for path in (greedy, samples)}
    passed = {json.dumps(row["doc"]): row[row["metrics"][0]] for row in rows[greedy]}
    k = len(rows[samples][0]["resps"][0])
    expected = sorted(
        "G" if passed[json.dumps(row["doc"])]
        else "S" if any(record["status"] == "pass" for record in row["verdicts"]) else "U"
        for row in rows[samples]
    )  # fmt: skip
    assert len(set(expected)) > 1
    write_task(tmp_path, [row["doc"] for row in rows[greedy]])
    run = tmp_path / "run"
    command = ("import", run, samples, "--greedy", greedy, "--split", "audit")
    recipe = ("--recipe", "demo", "--task", "sums", "--include-path", tmp_path, "--set")
    refused = gapft(*command, *recipe, f"search.k={k + 1}")
    assert refused.returncode == 2
    assert f"{k} samples of each problem, but search.k is {k + 1}" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not run.exists(), "a mistake creates no run directory"
    done = succeed(*command, *recipe, f"search.k={k}")
    assert done.stdout.startswith(f"audit: {16 * (k + 1)} responses imported; states: G ")
    assert sorted(record.state for record in read_states(run / "audit/states.parquet")) == expected
    verified = succeed("verify", run)
    assert "judged again, 0 of them differ" in verified.stdout
    assert f"{greedy} (sha256 " in verified.stdout
    again = gapft(*command)
    assert again.returncode == 0, "the import is the same, so nothing is to do"
    for changed_command in (
        (*command, "--judge"),
        ("import", run, greedy, "--greedy", samples, *command[5:]),
    ):
        other = gapft(*changed_command)
        assert other.returncode == 2
        assert "the audit was imported with other options (" in other.stderr
    other = gapft("import", run, samples, "--split", "audit")
    assert other.returncode == 2
    assert "was imported from other files already" in other.stderr
