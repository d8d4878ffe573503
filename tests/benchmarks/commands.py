"""Whole commands, with their start: a search without a model, Ray."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from gapft_harness.executors.ray import RayExecutor
from gapft_harness.hooks.protocols import Job
from tests.benchmarks.measure import Figure, run_process, time_in_turn
from tests.kit.local_tasks import build_task

GAPFT = (sys.executable, "-m", "gapft_harness.cli.main")
LM_EVAL = (sys.executable, "-m", "lm_eval")

#: Problems and samples of the search with lm-eval's dummy model.
PROBLEMS, K = 10_000, 8

#: The harness's task for lm_eval alone. It decodes the test split, which here is the pool.
_STOCK = """\
task: stock
dataset_path: json
dataset_kwargs: {data_files: {test: tasks/pool.jsonl}}
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
output_type: generate_until
generation_kwargs: {do_sample: true, max_gen_toks: 12, until: ["\\n"]}
repeats: 8
filter_list:
  - name: all
    filter: [{function: take_first_k, k: 8}]
metric_list: [{metric: bypass}]
"""


def measure(folder: Path) -> Iterator[Figure]:
    """Measure each pair of commands in turn; each run has a new directory and store."""
    directories = (folder / f"run{number}" for number in itertools.count())
    write_dummy_tasks(folder)
    yield measure_dummy_search(folder, directories)
    yield measure_ray(directories)


def write_dummy_tasks(folder: Path) -> None:
    """Write the same task for the harness and for lm-eval alone."""
    tasks = folder / "tasks"
    tasks.mkdir()
    with (tasks / "pool.jsonl").open("w") as file:
        for i in range(PROBLEMS):
            row = {"question": f"What is {i} plus {i}?", "answer": str(2 * i)}
            file.write(json.dumps(row) + "\n")
    (tasks / "audit.jsonl").write_text('{"question": "What is one plus one?", "answer": "2"}\n')
    (tasks / "stock.yaml").write_text(_STOCK)
    (tasks / "many.yaml").write_text(build_task("many", "verifier: boxed_math, keep: first"))
    (folder / "many.yaml").write_text(
        "name: many\ndata: {task: many}\nmodel: {backend: dummy, args: {pretrained: none}}\n"
        f"search: {{k: {K}, chunk: 500}}\n"
    )


def measure_dummy_search(folder: Path, directories: Iterator[Path]) -> Figure:
    """Compare a search with lm_eval on the same prompts."""

    def search() -> None:
        where = ["--run-dir", str(next(directories)), "--include-path", "tasks"]
        only = ["--only", "search", "--split", "pool"]
        run_process([*GAPFT, "run", "many.yaml", *where, *only], folder)

    def search_with_lm_eval() -> None:
        arguments = ["--model", "dummy", "--tasks", "stock", "--include_path", "tasks"]
        hub = {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"}
        command = [*LM_EVAL, *arguments, "--output_path", "out", "--log_samples"]
        run_process(command, folder, hub)

    ratio, a, b = time_in_turn(search, search_with_lm_eval, rounds=3)
    detail = f"{a:.1f} s against {b:.1f} s; {PROBLEMS:,} problems x {K}"
    return Figure("search / lm_eval, dummy model", ratio, 0.75, detail=detail)


def measure_ray(directories: Iterator[Path]) -> Figure:
    """Compare Ray with the local executor: the demo's 4 conditions x 3 seeds, two workers.

    Ray is already running with the same two CPUs. Each command joins it and gets its own workers,
    so both sides import torch in two processes.
    """

    def run_demo(*settings: str) -> None:
        folder = next(directories)
        chosen = [word for setting in settings for word in ("--set", setting)]
        command = [*GAPFT, "run", "demo", "--run-dir", str(folder), *chosen]
        run_process(command, folder.parent)

    local = ("executor.workers=2",)
    with contextlib.closing(RayExecutor({"workers": 2, "threads": 1})) as executor:
        started = Job("start", "tests.executors.job_functions:nap", {"value": 0})
        executor.run([started], lambda *_: None)
        import ray  # after starting our Ray: it reads its settings on import

        address = ray.get_runtime_context().gcs_address
        with_ray = (*local, "executor.name=ray", f"executor.address={address}")
        ratio, a, b = time_in_turn(lambda: run_demo(*with_ray), lambda: run_demo(*local), rounds=2)
    name = "gapft run demo, Ray / local executor"
    return Figure(name, ratio, 1.3, detail=f"{a:.0f} s, {b:.0f} s")
