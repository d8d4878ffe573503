"""Several adapters in one forward pass against one adapter after another: does batching pay?

The batched form is a plain one, for this measurement alone: every layer has the A and B matrices
of all adapters in one tensor each, and a pass has a row of tokens for each adapter. Both forms
compute the same losses and gradients, which is checked.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.measure import Figure

_RANK, _SCALING = 8, 2.0
_NAMES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_ADAPTERS = 4
_PASSES, _ROUNDS = 2, 5


class BatchedLora(torch.nn.Module):
    """A frozen linear layer with an adapter for each of several groups of rows.

    Input (adapters · rows, T, in): the first rows are the first adapter's, and so on.
    """

    def __init__(self, base: torch.nn.Linear, adapters: int, draw: torch.Generator) -> None:
        super().__init__()
        self.base = base
        wide, out = base.in_features, base.out_features
        self.a = torch.nn.Parameter(torch.randn(adapters, wide, _RANK, generator=draw) * 0.02)
        self.b = torch.nn.Parameter(torch.randn(adapters, _RANK, out, generator=draw) * 0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The base's output plus each group's own adapter's."""
        groups = x.reshape(len(self.a), -1, x.shape[-1])
        update = torch.bmm(torch.bmm(groups, self.a), self.b) * _SCALING
        found: torch.Tensor = self.base(x) + update.view(*x.shape[:-1], -1)
        return found


def measure(folder: Path) -> list[Figure]:
    """The demo policy and a 27M-parameter Llama; passes of 2 sequences an adapter."""
    from transformers import AutoModelForCausalLM

    from gapft_harness.recipe.models import resolve_model
    from tests.benchmarks.training_speed import small_llama

    torch.set_num_threads(1)
    figures = []
    for name, model, length in (
        ("demo policy", resolve_model("bundled:demo"), 52),
        ("27M Llama", str(small_llama(folder / "llama")), 220),
    ):
        base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        base.requires_grad_(False)
        figures.append(_compare(name, base, length))
    return figures


def _compare(name: str, base: Any, length: int) -> Figure:
    """A few passes of 2 sequences for every adapter; the median of the rounds."""
    together = _with_adapters(base, _ADAPTERS)
    alone = [_with_adapters(base, 1, of=together, number=i) for i in range(_ADAPTERS)]
    draw = torch.Generator().manual_seed(1)
    words = base.config.vocab_size
    ids = torch.randint(3, words, (_PASSES, _ADAPTERS * 2, length), generator=draw)

    def one_pass() -> None:
        for part in ids:
            _loss(together, part).backward()  # type: ignore[no-untyped-call, unused-ignore]

    def one_by_one() -> None:
        for i, model in enumerate(alone):
            for part in ids:
                rows = part[2 * i : 2 * i + 2]
                _loss(model, rows).backward()  # type: ignore[no-untyped-call, unused-ignore]

    one_pass()
    one_by_one()
    gap = _gradient_gap(together, alone)
    assert gap < 1e-4, f"the two forms differ by {gap}"
    ratios = []
    for turn in range(_ROUNDS):
        first, second = (one_pass, one_by_one) if turn % 2 else (one_by_one, one_pass)
        seconds = {way: _cpu(way) for way in (first, second)}
        ratios.append(seconds[one_pass] / seconds[one_by_one])
    return Figure(
        f"{name}: {_ADAPTERS} adapters in one pass / one after another",
        statistics.median(ratios),
        None,
        detail=f"CPU time; {min(ratios):.2f} to {max(ratios):.2f}; gradients differ by {gap:.0e}",
    )


def _with_adapters(
    base: Any, adapters: int, of: Any | None = None, number: int = 0
) -> torch.nn.Module:
    """A copy of the base with adapters: drawn, or one of those of another copy."""
    model: torch.nn.Module = copy.deepcopy(base)
    draw = torch.Generator().manual_seed(0)
    for path, module in list(model.named_modules()):
        parent, _, leaf = path.rpartition(".")
        if leaf in _NAMES and isinstance(module, torch.nn.Linear):
            layer = BatchedLora(module, adapters, draw)
            if of is not None:
                source = of.get_submodule(path)
                layer.a.data = source.a.data[number : number + 1].clone()
                layer.b.data = source.b.data[number : number + 1].clone()
            setattr(model.get_submodule(parent), leaf, layer)
    return model


def _loss(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """The sum over all tokens, so that adapters' losses add up."""
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    loss: torch.Tensor = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum"
    )
    return loss


def _gradient_gap(together: torch.nn.Module, alone: list[torch.nn.Module]) -> float:
    """The largest difference of a gradient, as a share of the largest gradient of its tensor."""
    gaps = []
    for path, parameter in together.named_parameters():
        if parameter.grad is not None:
            for i, model in enumerate(alone):
                other = model.get_parameter(path).grad
                assert other is not None
                gaps.append(float((parameter.grad[i] - other[0]).abs().max() / other.abs().max()))
    return max(gaps)


def _cpu(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start
