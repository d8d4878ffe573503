"""The ledger: learning rates against transformers' schedulers, weights, hashes."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from gapft_harness.training.ledger import (
    build_ledger,
    compute_learning_rate,
    compute_ledger_facts,
    hash_sequences,
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


def test_each_hash_covers_its_field() -> None:
    chosen = settings()
    sequences = {s.slot: s for s in build_sequences(examples(5), chosen)}
    slots = list(sequences)
    first, second = build_ledger([slots[:3], slots[3:]], sequences, chosen)
    facts = compute_ledger_facts([first, second])
    changed = {
        "plan_sha256": dataclasses.replace(first, slots=first.slots[::-1]),
        "supervised_sha256": dataclasses.replace(first, supervised_tokens=1),
        "weights_sha256": dataclasses.replace(first, weights=first.weights[::-1][:2]),
    }
    for key, step in changed.items():
        changed_facts = compute_ledger_facts([step, second])
        assert {k for k in changed if changed_facts[k] != facts[k]} == {key}


def test_sequence_hash_covers_content_not_order() -> None:
    sequences = build_sequences(examples(3), settings())
    first, *rest = sequences
    assert hash_sequences(sequences) == hash_sequences(sequences[::-1])
    moved = (*first.prompt_ids, *first.target_ids)
    others = [
        dataclasses.replace(first, slot="another"),
        dataclasses.replace(first, eos=not first.eos),
        dataclasses.replace(first, target_ids=(*first.target_ids[::-1], 7)),
        # the same ids, one more supervised
        dataclasses.replace(
            first,
            prompt_ids=moved[: len(first.prompt_ids) - 1],
            target_ids=moved[len(first.prompt_ids) - 1 :],
        ),
    ]
    hashes = {hash_sequences([other, *rest]) for other in [first, *others]}
    assert len(hashes) == 1 + len(others)
