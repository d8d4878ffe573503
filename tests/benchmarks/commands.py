"""Whole commands, with their start: a search without a model, top-p, Ray."""

from __future__ import annotations

import contextlib
import itertools
import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

from gapft_harness.executors.ray import RayExecutor
from gapft_harness.hooks.protocols import Job
from tests.benchmarks.measure import Figure, Process, run_process, time_in_turn
from tests.kit.tiny_models import write_byte_llama

GAPFT = (sys.executable, "-m", "gapft_harness.cli.main")
LM_EVAL = (sys.executable, "-m", "lm_eval")

#: Problems and samples of the search with lm-eval's dummy model, and problems of a small one.
PROBLEMS, K, FEW_PROBLEMS = 10_000, 8, 1_000

#: The search with top-p: tokens of the vocabulary, the model's width and the deviation of its
#: logits. They are as peaked as a trained model's: a nucleus of 0.95 holds about ten tokens.
VOCABULARY, HIDDEN, SPREAD = 151_936, 128, 7.0

_TASK = """
task: {name}
{kind}
dataset_path: json
dataset_kwargs: {{data_files: {{train: {pool}, test: {audit}}}}}
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
_GAP_TASK = "class: !function gapft_harness.lm_eval_bridge.task.GapTask"
_STOCK = """
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
    yield from measure_dummy_search(folder, directories)
    yield measure_top_p(folder, directories)
    yield measure_ray(folder, directories)


def write_dummy_tasks(folder: Path) -> None:
    """Write the same task for the harness and for lm-eval alone, and a small one."""
    (folder / "tasks").mkdir()
    for count, name in ((PROBLEMS, "many"), (FEW_PROBLEMS, "few")):
        with (folder / f"{name}.jsonl").open("w") as file:
            for i in range(count):
                row = {"id": f"p{i}", "question": f"What is {i} plus {i}?", "answer": str(2 * i)}
                file.write(json.dumps(row) + "\n")
    audit = folder / "audit.jsonl"
    audit.write_text('{"id": "a", "question": "What is one plus one?", "answer": "2"}\n')
    many = folder / "many.jsonl"
    # lm_eval decodes the test split; here it is the pool, which must not be the audit
    stock = _TASK.format(name="stock", kind="", pool=many, audit=many, sample="true", rest=_STOCK)
    (folder / "tasks/stock.yaml").write_text(stock)
    for name in ("many", "few"):
        pool = folder / f"{name}.jsonl"
        task = _TASK.format(
            name=name, kind=_GAP_TASK, pool=pool, audit=audit, sample="false", rest=""
        )
        (folder / f"tasks/{name}.yaml").write_text(task)
        (folder / f"{name}.yaml").write_text(
            f"name: {name}\ndata: {{task: {name}}}\n"
            "model: {backend: dummy, args: {pretrained: none}}\n"
            f"search: {{k: {K}, chunk: 500}}\n"
        )


def measure_dummy_search(folder: Path, directories: Iterator[Path]) -> list[Figure]:
    """Compare a search with lm_eval, and the processor time of its responses with a small one's."""
    peaks = []

    def search(name: str) -> None:
        where = ["--run-dir", str(next(directories)), "--include-path", "tasks"]
        only = ["--only", "search", "--split", "pool"]
        peaks.append(run_process([*GAPFT, "run", f"{name}.yaml", *where, *only], folder).peak_gb)

    def search_with_lm_eval() -> Process:
        arguments = ["--model", "dummy", "--tasks", "stock", "--include_path", "tasks"]
        hub = {"HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"}
        command = [*LM_EVAL, *arguments, "--output_path", "out", "--log_samples"]
        return run_process(command, folder, hub)

    ratio, a, b = time_in_turn(lambda: search("many"), search_with_lm_eval, rounds=3)
    growth, *_ = time_in_turn(
        lambda: search("many"), lambda: search("few"), rounds=3, clock=measure_children
    )
    detail = f"{a:.1f} s against {b:.1f} s; {PROBLEMS:,} problems x {K}; {max(peaks):.2f} GB"
    return [
        Figure("search / lm_eval, dummy model", ratio, 1 / 3, detail=detail),
        Figure(
            f"processor time of a response, {PROBLEMS:,} / {FEW_PROBLEMS:,} problems",
            growth * FEW_PROBLEMS / PROBLEMS,
            1.2,
        ),
    ]


def measure_top_p(folder: Path, directories: Iterator[Path]) -> Figure:
    """Compare top-p with plain sampling: 64 problems, 1 + 8 decodes of 32 tokens."""
    model = write_large_vocabulary_model(folder / "model")

    def search(top_p: float) -> None:
        settings = [
            "data.pool_limit=64", "search.k=8", "search.max_gen_toks=32",
            "search.temperature=1.0", f"search.top_p={top_p}", "executor.threads=1",
        ]  # fmt: skip
        arguments = [
            "run", "--task", "gapft_demo", "--run-dir", str(next(directories)),
            "--only", "search", "--split", "pool",
            "--model-args", f"pretrained={model},dtype=float32,device=cpu",
        ]  # fmt: skip
        run_process([*GAPFT, *arguments, *write_settings(settings)], folder)

    search(0.95)
    ratio, nucleus, plain = time_in_turn(
        lambda: search(0.95), lambda: search(1.0), rounds=3, clock=measure_children
    )
    detail = f"{nucleus:.1f} s against {plain:.1f} s of processor time"
    name = f"search with top-p over {VOCABULARY:,} tokens / without"
    return Figure(name, ratio, 1.15, detail=detail)


def measure_ray(folder: Path, directories: Iterator[Path]) -> Figure:
    """Compare Ray with the local executor: the demo's 4 conditions x 3 seeds, two workers.

    Ray is already running with the same two CPUs. Each command joins it and gets its own workers,
    so both sides import torch in two processes.
    """

    def run_demo(*settings: str) -> None:
        words = ["run", "demo", "--run-dir", str(next(directories))]
        run_process([*GAPFT, *words, *write_settings(["executor.workers=2", *settings])], folder)

    with contextlib.closing(RayExecutor({"workers": 2, "threads": 1})) as executor:
        started = Job("start", "tests.executors.job_functions:nap", {"value": 0})
        executor.run([started], lambda label, done, total: None)
        import ray  # after starting our Ray: it reads its settings on import

        settings = (
            "executor.name=ray",
            f"executor.address={ray.get_runtime_context().gcs_address}",
        )
        ratio, a, b = time_in_turn(lambda: run_demo(*settings), run_demo, rounds=2)
    return Figure(
        "gapft run demo, Ray / local executor", ratio, 1.3, detail=f"{a:.0f} s, {b:.0f} s"
    )


def write_settings(settings: list[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def measure_children() -> float:
    """Return the processor seconds of finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write_large_vocabulary_model(folder: Path) -> Path:
    """Write a random Llama with a large vocabulary and peaked logits."""
    import torch
    from transformers import LlamaForCausalLM

    write_byte_llama(folder, 0, HIDDEN, vocabulary=VOCABULARY)
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        weight = model.lm_head.weight
        model.model.norm.weight.fill_(SPREAD / float(weight.std()) / HIDDEN**0.5)
    model.save_pretrained(folder)
    return folder
