"""Top-p over 151,936 tokens compared with plain sampling: whole searches with a small model.

The random model's logits are as peaked as a trained model's, so a nucleus of 0.95 holds about ten
tokens. Times are processor time of the command and its worker.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from tests.benchmarks.measure import Figure, run_process, time_in_turn
from tests.kit.tiny_models import write_byte_llama

VOCABULARY, HIDDEN, PROBLEMS, ROUNDS = 151_936, 128, 64, 3

#: The standard deviation of the logits.
_SPREAD = 7.0


def measure(folder: Path) -> list[Figure]:
    """Measure a pool search of 64 problems, 1 greedy decode and 8 samples of 32 tokens."""
    model = write_model(folder / "model")
    number = iter(range(10**6))

    def search(top_p: float) -> None:
        command = [
            sys.executable, "-m", "gapft_harness.cli.main", "run", "--task", "gapft_demo",
            "--run-dir", f"run{next(number)}", "--only", "search", "--split", "pool",
            "--model-args", f"pretrained={model},dtype=float32,device=cpu",
        ]  # fmt: skip
        for setting in (
            f"data.pool_limit={PROBLEMS}", "search.k=8", "search.max_gen_toks=32",
            "search.temperature=1.0", f"search.top_p={top_p}", "executor.threads=1",
        ):  # fmt: skip
            command += ["--set", setting]
        run_process(command, folder)

    search(0.95)
    ratio, nucleus, plain = time_in_turn(
        lambda: search(0.95), lambda: search(1.0), ROUNDS, clock=measure_children
    )
    return [
        Figure(
            f"search with top-p over {VOCABULARY:,} tokens / without",
            ratio,
            1.15,
            detail=f"{nucleus:.1f} s against {plain:.1f} s of processor time",
        )
    ]


def measure_children() -> float:
    """Return the processor seconds of finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write_model(folder: Path) -> Path:
    """Write a random Llama whose tokenizer has as many tokens."""
    import torch
    from transformers import LlamaForCausalLM

    write_byte_llama(folder, 0, HIDDEN, vocabulary=VOCABULARY)
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        weight = model.lm_head.weight
        model.model.norm.weight.fill_(_SPREAD / float(weight.std()) / HIDDEN**0.5)
    model.save_pretrained(folder)
    return folder
