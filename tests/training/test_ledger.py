"""The ledger: learning rates against transformers' schedulers, weights, hashes."""

from __future__ import annotations

import math

import pytest
import torch

from gapft_harness.training.ledger import (
    build_ledger,
    compute_learning_rate,
    compute_ledger_facts,
)
from gapft_harness.training.plan import build_sequences
from tests.training.examples import examples, settings


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize(("warmup", "steps"), [(0, 1), (0, 7), (3, 10), (5, 5), (9, 4)])
def test_learning_rates_match_transformers(schedule: str, warmup: int, steps: int) -> None:
    from transformers import get_scheduler

    name = "constant_with_warmup" if schedule == "constant" else schedule
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.3)
    scheduler = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    chosen = settings(learning_rate=0.3, schedule=schedule, warmup_steps=warmup)
    for number in range(1, steps + 1):
        expected = scheduler.get_last_lr()[0]
        assert compute_learning_rate(chosen, number, steps) == pytest.approx(expected, abs=1e-15)
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("normalization", ["token_mean", "sequence_mean", "token_sum"])
def test_ledger_adds_up(normalization: str) -> None:
    chosen = settings(normalization=normalization)
    sequences = {s.slot: s for s in build_sequences(examples(5), chosen)}
    slots = list(sequences)
    steps = build_ledger([slots[:3], slots[3:]], sequences, chosen)
    for step in steps:
        tokens = [sequences[slot].supervised for slot in step.slots]
        assert step.supervised_tokens == sum(tokens)
        assert step.weight == math.fsum(w * n for w, n in zip(step.weights, tokens, strict=True))
        expected = sum(tokens) if normalization == "token_sum" else 1
        assert step.weight == pytest.approx(expected)
    assert compute_ledger_facts(steps)["weight_sum"] == steps[0].weight + steps[1].weight
