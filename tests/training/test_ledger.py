"""The ledger: learning rates against transformers' schedulers, weights, hashes."""

from __future__ import annotations

import pytest
import torch

from gapft_harness.training.ledger import (
    compute_learning_rate,
)
from tests.training.examples import settings


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
