"""Estimate how long search, training and audit take on this machine's CPU, from a measurement."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gapft_harness.core.records import Problem
from gapft_harness.lm_eval_bridge.samplers.retokenizer import render_chat
from gapft_harness.presentation.content import format_duration
from gapft_harness.recipe.recipe import Recipe, resolve_model_args

#: Seconds of one measurement, and rows of a pass over prompts or training sequences.
_SECONDS, _ROWS = 0.05, 512
#: Problems of a split whose prompts are counted.
_COUNTED = 32
#: Operations of generation, and of training an adapter, per weight and token: training needs no
#: gradient of the base's weights.
_FORWARD, _TRAINING = 2, 4
#: Weights of the smallest model whose time is estimated: below, other work takes longer than its
#: arithmetic.
LEAST_WEIGHTS = 50_000_000


@dataclass(frozen=True, slots=True)
class Speed:
    """Floating-point operations per second of one worker.

    Attributes:
        passes: in passes over whole sequences: prompts and training.
        steps: in a step of decoding, which has a row for each response of a batch.
    """

    passes: float
    steps: float


@dataclass(frozen=True, slots=True)
class Shape:
    """What an estimate needs of a model.

    Attributes:
        body: weights that each token uses.
        head: weights that each generated or supervised token uses in addition, for its logits.
        hidden: width of the model.
    """

    body: int
    head: int
    hidden: int

    @classmethod
    def of(cls, model: Any) -> Shape:
        """Read the shape of a model, which may be on torch's meta device."""
        embeddings = model.get_input_embeddings().weight
        output = getattr(model.get_output_embeddings(), "weight", embeddings)
        total = sum(parameter.numel() for parameter in model.parameters())
        body = total - embeddings.numel() - (0 if output is embeddings else output.numel())
        return cls(body, output.numel(), embeddings.shape[1])


@dataclass(frozen=True, slots=True)
class Work:
    """What a run computes at most.

    Attributes:
        prompt_tokens: mean number of tokens of a prompt.
        searched: problems of the search, each with ``responses`` responses.
        responses: responses of a problem.
        audited: responses of the audit.
        exposures: examples of all adapters, each as often as it is trained on.
        new_tokens: the limit of a response.
    """

    prompt_tokens: float
    searched: int
    responses: int
    audited: int
    exposures: int
    new_tokens: int


def describe_time(recipe: Recipe, shape: Shape, work: Work) -> list[str]:
    """Describe the time of each stage, and how fast this CPU computes in each dtype."""
    settings = recipe.executor
    threads = settings.threads or max(1, (os.cpu_count() or 1) // settings.workers)
    rows = _read_batch_size(recipe)
    speeds = {
        dtype: measure_speed(shape.hidden, rows, dtype, threads)
        for dtype in ("float32", "bfloat16")
    }
    training = speeds[recipe.training.dtype]
    searching = speeds.get(str(recipe.model.args.get("dtype")), training)
    seconds = {
        stage: value / settings.workers
        for stage, value in estimate_seconds(shape, work, searching, training).items()
    }
    stages = ", ".join(f"{stage} {format_duration(value)}" for stage, value in seconds.items())
    workers = "1 worker" if settings.workers == 1 else f"{settings.workers} workers"
    rates = ", ".join(f"{speed.passes / 1e9:.0f} in {name}" for name, speed in speeds.items())
    return [
        f"at most about {format_duration(sum(seconds.values()))} on this CPU with {workers}: "
        f"{stages}",
        f"estimated from billions of operations a second, just measured on one worker: {rates}",
    ]


def estimate_seconds(
    shape: Shape, work: Work, searching: Speed, training: Speed
) -> dict[str, float]:
    """Estimate each stage's seconds on one worker, without startup, padding and verification.

    Args:
        shape: the model.
        work: what the run computes.
        searching: the speed in the dtype of search and audit.
        training: the speed in the dtype of training.
    """
    prompt = _FORWARD * shape.body * work.prompt_tokens / searching.passes
    response = _FORWARD * (shape.body + shape.head) * work.new_tokens / searching.steps
    tokens = work.prompt_tokens + work.new_tokens
    example = _TRAINING * (shape.body * tokens + shape.head * work.new_tokens) / training.passes
    return {
        "search": work.searched * (prompt + work.responses * response),
        "training": work.exposures * example,
        "audit": work.audited * (prompt + response),
    }


def count_prompt_tokens(
    recipe: Recipe, tokenizer: Any, problems: Mapping[Any, Sequence[Problem]]
) -> float:
    """Count the mean number of prompt tokens of some problems of all splits."""
    arguments = resolve_model_args(recipe).get("chat_template_args") or {}
    apply = partial(tokenizer.apply_chat_template, tokenize=False, **arguments)
    chosen = [
        problem
        for split in problems.values()
        for problem in split[:: max(1, len(split) // _COUNTED)][:_COUNTED]
    ]
    texts = [render_chat(apply, p.turns) if p.turns else p.prompt for p in chosen]
    return sum(len(tokenizer(text)["input_ids"]) for text in texts) / len(texts)


def measure_speed(hidden: int, rows: int, dtype: str, threads: int) -> Speed:
    """Measure the speed of a model's largest layers on this CPU.

    Args:
        hidden: width of the model.
        rows: responses of a batch.
        dtype: ``float32`` or ``bfloat16``.
        threads: threads of a worker.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return Speed(*(_measure(torch, hidden, count, dtype) for count in (_ROWS, rows)))
    finally:
        torch.set_num_threads(before)


def _measure(torch: Any, hidden: int, rows: int, dtype: str) -> float:
    """Measure operations per second of a layer with four times the model's width."""
    kind = getattr(torch, dtype)
    inputs, weight = (
        torch.ones(rows, hidden, dtype=kind),
        torch.ones(4 * hidden, hidden, dtype=kind),
    )
    torch.nn.functional.linear(inputs, weight)  # the first call prepares
    start, times = time.perf_counter(), 0
    while time.perf_counter() - start < _SECONDS:
        torch.nn.functional.linear(inputs, weight)
        times += 1
    return float(times * 2 * rows * weight.numel() / (time.perf_counter() - start))


def _read_batch_size(recipe: Recipe) -> int:
    """Read the number of rows of a decoding step; without one, the default."""
    from gapft_harness.lm_eval_bridge.samplers.hf import DEFAULT_BATCH_SIZE

    size = str(recipe.model.args.get("batch_size"))
    return int(size) if size.isdecimal() else DEFAULT_BATCH_SIZE
