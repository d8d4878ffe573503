"""Compare several adapters in one forward pass with one adapter after another.

The batched form exists only for this measurement: every layer has the A and B matrices of all
adapters in one tensor each, and a pass has a group of rows for each adapter. The benchmark checks
that both forms compute the same losses and gradients.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.gpu.device import synchronize
from tests.benchmarks.measure import Figure

_RANK, _SCALING = 8, 2.0
_NAMES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_ADAPTERS = 4
_PASSES, _ROUNDS = 2, 5


class BatchedLora(torch.nn.Module):
    """A frozen linear layer with an adapter for each of several groups of rows.

    Input (groups · rows, T, in): the first rows are the first adapter's, and so on.

    Attributes:
        only: the adapter that all rows belong to; None: every adapter has its group.
    """

    def __init__(self, base: torch.nn.Linear, draw: torch.Generator) -> None:
        super().__init__()
        self.base = base
        self.only: int | None = None
        device, shape = base.weight.device, (base.in_features, base.out_features)
        a, b = (
            torch.randn(_ADAPTERS, *sides, generator=draw, device=device) * 0.02
            for sides in ((shape[0], _RANK), (_RANK, shape[1]))
        )
        self.a, self.b = torch.nn.Parameter(a), torch.nn.Parameter(b)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add each group's adapter output to the base's output."""
        own_groups = slice(None) if self.only is None else slice(self.only, self.only + 1)
        a, b = (factor[own_groups].to(x.dtype) for factor in (self.a, self.b))
        groups = x.reshape(len(a), -1, x.shape[-1])
        update = torch.bmm(torch.bmm(groups, a), b) * _SCALING
        output: torch.Tensor = self.base(x) + update.view(*x.shape[:-1], -1)
        return output


def measure(folder: Path) -> list[Figure]:
    """Measure the demo policy and a 27M-parameter Llama with 2 sequences per adapter."""
    from transformers import AutoModelForCausalLM

    from gapft_harness.recipe.recipe import resolve_model
    from tests.benchmarks.training_speed import write_small_llama

    torch.set_num_threads(1)
    figures = []
    for name, model, length in (
        ("demo policy", resolve_model("bundled:demo"), 52),
        ("27M Llama", str(write_small_llama(folder / "llama")), 220),
    ):
        base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        layers = add_adapters(base)
        figures.append(compare_ways(name, base, layers, rows=2, length=length, tolerance=1e-4))
    return figures


def compare_ways(
    name: str, model: Any, layers: Sequence[BatchedLora], rows: int, length: int, tolerance: float
) -> Figure:
    """Time a few passes with sequences for every adapter; return the median over rounds.

    Processor time on a CPU, wall time on a GPU.

    Args:
        name: the figure's name.
        model: the model with batched adapters.
        layers: the adapters.
        rows: sequences per adapter in a pass.
        length: tokens per sequence.
        tolerance: how far the two forms' gradients may differ.
    """
    device = model.device
    draw = torch.Generator(device).manual_seed(1)
    shape = (_PASSES, _ADAPTERS, rows, length)
    ids = torch.randint(3, model.config.vocab_size, shape, generator=draw, device=device)

    def run_together() -> None:
        select_adapter(layers, None)
        for part in ids:
            compute_loss(model, part.flatten(0, 1)).backward()  # type: ignore[no-untyped-call, unused-ignore]

    def run_one_by_one() -> None:
        for adapter in range(_ADAPTERS):
            select_adapter(layers, adapter)
            for part in ids:
                compute_loss(model, part[adapter]).backward()  # type: ignore[no-untyped-call, unused-ignore]

    model.zero_grad()
    gradients = []
    for way in (run_together, run_one_by_one):  # also the warm-up
        way()
        gradients.append([take_gradient(p) for layer in layers for p in (layer.a, layer.b)])
    gap = max(
        float((first - second).abs().max() / second.abs().max())
        for first, second in zip(*gradients, strict=True)
    )
    assert gap < tolerance, f"the two forms differ by {gap}"
    ratios, tokens = [], ids.numel()
    rates: dict[Any, list[float]] = {run_together: [], run_one_by_one: []}
    for turn in range(_ROUNDS):
        order = (run_together, run_one_by_one) if turn % 2 else (run_one_by_one, run_together)
        seconds = {way: measure_seconds(way, device) for way in order}
        ratios.append(seconds[run_together] / seconds[run_one_by_one])
        for way in order:
            rates[way].append(tokens / seconds[way])
    in_one, alone = (statistics.median(rates[way]) for way in (run_together, run_one_by_one))
    return Figure(
        f"{name}: {_ADAPTERS} adapters in one pass / one after another",
        statistics.median(ratios),
        None,
        detail=(
            f"{'CPU' if device.type == 'cpu' else 'wall'} time; {min(ratios):.2f} to "
            f"{max(ratios):.2f}; {in_one:,.0f} and {alone:,.0f} tokens/s; "
            f"gradients differ by {gap:.0e}"
        ),
    )


def add_adapters(base: Any) -> list[BatchedLora]:
    """Freeze a model and add the adapters to each of its seven projections, in place."""
    base.requires_grad_(False)
    base.config.use_cache = False
    draw = torch.Generator(base.device).manual_seed(0)
    layers = []
    for path, module in list(base.named_modules()):
        parent, _, leaf = path.rpartition(".")
        if leaf in _NAMES and isinstance(module, torch.nn.Linear):
            layers.append(BatchedLora(module, draw))
            setattr(base.get_submodule(parent), leaf, layers[-1])
    return layers


def select_adapter(layers: Sequence[BatchedLora], adapter: int | None) -> None:
    for layer in layers:
        layer.only = adapter


def compute_loss(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Compute the sum over all tokens, so that the adapters' losses add up."""
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    loss: torch.Tensor = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum"
    )
    return loss


def take_gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    """Return a parameter's gradient and clear it."""
    gradient, parameter.grad = parameter.grad, None
    assert gradient is not None
    return gradient


def measure_seconds(way: Any, device: torch.device) -> float:
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    synchronize(device)
    start = clock()
    way()
    synchronize(device)
    return clock() - start
