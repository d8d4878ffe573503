"""The cost outside generation: 10,000 problems x 8 with lm-eval's dummy model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.benchmarks.measure import Figure, run_process, time_in_turn

PROBLEMS, K = 10_000, 8

_TASK = """
task: {name}
{kind}
dataset_path: json
dataset_kwargs: {{data_files: {{train: {data}, test: {test}}}}}
training_split: train
test_split: test
doc_to_text: "{{{{question}}}}\\nAnswer:"
doc_to_target: "{{{{answer}}}}"
output_type: generate_until
generation_kwargs: {{do_sample: {sample}, max_gen_toks: 16, until: ["\\n"]}}
{rest}
metadata:
  version: 1
  gapft: {{verifier: boxed_math, keep: first, id: "{{{{id}}}}"}}
"""

_STOCK = """
repeats: 8
filter_list:
  - name: all
    filter: [{function: take_first_k, k: 8}]
metric_list: [{metric: bypass}]
"""


def measure(folder: Path) -> list[Figure]:
    """Time three rounds of whole processes, including start-up."""
    data = folder / "problems.jsonl"
    with data.open("w") as file:
        for i in range(PROBLEMS):
            record = {"id": f"p{i}", "question": f"What is {i} plus {i}?", "answer": str(2 * i)}
            file.write(json.dumps(record) + "\n")
    # stock lm_eval decodes the test split; here it is the pool, which must not be the audit
    audit = folder / "audit.jsonl"
    audit.write_text('{"id": "a", "question": "What is one plus one?", "answer": "2"}\n')
    ours_yaml = _TASK.format(
        name="bench",
        kind="class: !function gapft_harness.lm_eval_bridge.task.GapTask",
        data=data,
        test=audit,
        sample="false",
        rest="",
    )
    stock_yaml = _TASK.format(
        name="bench_stock", kind="", data=data, test=data, sample="true", rest=_STOCK
    )
    (folder / "tasks").mkdir()
    (folder / "tasks" / "bench.yaml").write_text(ours_yaml)
    (folder / "tasks" / "bench_stock.yaml").write_text(stock_yaml)
    (folder / "recipe.yaml").write_text(
        "name: bench\ndata: {task: bench}\n"
        "model: {backend: dummy, args: {pretrained: none}}\n"
        f"search: {{k: {K}, chunk: 500}}\n"
    )
    runs = iter(range(100))
    peaks = []

    def ours() -> None:
        done = run_process(
            [
                sys.executable, "-m", "gapft_harness.cli.main", "run", "recipe.yaml",
                "--run-dir", f"run{next(runs)}", "--only", "search",
                "--include-path", "tasks", "--split", "pool",
            ],
            folder,
        )  # fmt: skip
        peaks.append(done.peak_gb)

    def other() -> None:
        run_process(
            [
                sys.executable, "-m", "lm_eval", "--model", "dummy", "--tasks", "bench_stock",
                "--include_path", "tasks", "--output_path", "out", "--log_samples",
            ],
            folder,
            {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"},
        )  # fmt: skip

    ratio, a, b = time_in_turn(ours, other, rounds=3)
    detail = f"{a:.1f} s against {b:.1f} s; {PROBLEMS} problems x {K}"
    return [
        Figure("search / lm_eval, dummy model", ratio, 1 / 3, detail=detail),
        Figure("search, peak memory", max(peaks), 1.0, "GB"),
    ]
