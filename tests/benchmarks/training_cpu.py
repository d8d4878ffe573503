"""LoRA on a CPU with a large vocabulary: peak memory, and speed compared with simpler loops.

``GAPFT_BENCH_MODELS`` names model folders, separated as in ``PATH``, whose speed is measured in
bfloat16. Without it, only the memory of a small random model is measured.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gapft_harness.recipe.sections import Training
from gapft_harness.training.plan import build_sequences, plan_steps
from tests.benchmarks.measure import Figure, list_models, read_vocabulary_size, run_process
from tests.benchmarks.training_speed import Case, compare_with_trl, train_ours
from tests.kit.tiny_models import write_byte_llama

VOCABULARY, LIMIT_GB = 151_936, 6.0
#: Repetitions of the five examples whose training memory is measured: a step of 16 and 4 more.
REPETITIONS = 4


def measure(folder: Path) -> Iterator[Figure]:
    """Measure the random model and those named by the environment; yield each figure."""
    import torch

    torch.set_num_threads(1)
    yield measure_peak(
        folder, "random, 4 layers", str(write_large_vocabulary_model(folder / "model")), 1.5
    )
    for model in list_models("training_cpu"):
        case = build_case(model)
        yield from compare_with_all_logits(folder, case)
        yield from compare_with_trl(folder, case, ("padded 2 x 8", "without padding"))
        yield measure_peak(folder, case.name, str(model), LIMIT_GB)


def build_case(model: Path) -> Case:
    """Build two steps of 16 sequences of about 130 tokens; the second is timed."""
    size = read_vocabulary_size(model)
    return Case(model.name, str(model), size, (50, 130), (20, 60), 2, 2, "bfloat16", 0.05)


def write_large_vocabulary_model(folder: Path) -> Path:
    """Write a random Llama with 4 thin layers and the vocabulary size of Qwen2.5."""
    return write_byte_llama(
        folder, 0, 128, 4, context=2048, vocabulary=VOCABULARY, inner=512, spread=0.02
    )


_CHILD = """
import sys
from pathlib import Path
from tests.benchmarks.training_cpu import train_five
train_five(Path(sys.argv[1]), sys.argv[2])
"""


def train_five(output: Path, model: str) -> None:
    """Train on five examples of 300 to 500 tokens without padding, with the recipe's defaults."""
    case = dataclasses.replace(build_case(Path(model)), prompt=(100, 200), response=(200, 300))
    train_ours(output, case, case.examples(5), padding_free=True, repetitions=REPETITIONS)


def measure_peak(folder: Path, name: str, model: str, limit: float) -> Figure:
    root = Path(__file__).parents[2]
    child = run_process([sys.executable, "-c", _CHILD, str(folder / f"peak {name}"), model], root)
    return Figure(
        f"{name}: peak memory, n = 5, without padding",
        child.peak_gb,
        limit,
        "GB",
        detail=f"{build_case(Path(model)).vocabulary:,} words, a step of 16 of about 400 tokens",
    )


def compare_with_all_logits(folder: Path, case: Case) -> list[Figure]:
    """Compare our loops with the literal loop in turn; first losses do not depend on dropout."""
    examples = case.examples(16 * case.steps)
    ways: dict[str, dict[str, Any]] = {
        "padded 2 x 8": {},
        "without padding": {"padding_free": True},
    }
    measured: dict[str, list[float]] = {way: [] for way in ways}
    literal: list[float] = []
    gap = 0.0
    for turn in range(case.rounds):
        seconds, expected = train_literally(case, examples)
        literal.append(seconds)
        for way, changes in ways.items():
            output = folder / f"{case.name} all logits {way} {turn}"
            seconds, losses = train_ours(output, case, examples, **changes)
            measured[way].append(seconds)
            gap = max(gap, abs(losses[0] - expected) / expected)
    tokens = count_timed_tokens(case, examples)
    figures = []
    for way, seconds_of_way in measured.items():
        ratio = statistics.median(o / t for o, t in zip(seconds_of_way, literal, strict=True))
        rates = (tokens / statistics.median(s) for s in (seconds_of_way, literal))
        figures.append(
            Figure(
                f"{case.name}, {way}: our CPU time / logits for every position",
                ratio,
                0.5 if way == "without padding" else None,
                detail="{:.0f} tokens a CPU second against {:.0f}; ".format(*rates)
                + f"{1 / ratio:.2f} times as fast",
            )
        )
    name = f"{case.name}: relative difference of the first loss from that loop's"
    return [*figures, Figure(name, gap, 1e-2, "")]


def count_timed_tokens(case: Case, examples: Any) -> int:
    settings = Training(repetitions=1)
    length = {s.slot: s.tokens for s in build_sequences(examples, settings)}
    steps = plan_steps(length, settings, 13)
    return sum(length[slot] for step in steps[1:] for slot in step)


def train_literally(case: Case, examples: Any) -> tuple[float, float]:
    """Return CPU seconds of all steps but the first, and the first loss."""
    from gapft_harness.training.model import load_base
    from tests.training.literal import run_literal_training

    settings = case.settings()
    fitted = {s.slot: s for s in build_sequences(examples, settings)}
    steps = [[fitted[slot] for slot in step] for step in plan_steps(fitted, settings, 13)]
    base = load_base({"pretrained": case.model}, settings)
    seen, losses = [], []
    for loss, _, _ in run_literal_training(base, steps, settings, None):
        seen.append(time.process_time())
        losses.append(loss)
    return seen[-1] - seen[0], losses[0]
