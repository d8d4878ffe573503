"""The plan of a training: steps, budget, learning rates, and prompts of an online arm."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.recipe.sections import Grpo, Training
from gapft_harness.training.groups import Group, group_facts, is_flat, plan_prompts
from gapft_harness.training.ledger import compute_learning_rate
from gapft_harness.training.passes import cut_step
from gapft_harness.training.plan import budget, build_sequences, plan_steps
from tests.training.examples import example, settings

SLOTS = st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=30, unique=True)
SHAPES = st.builds(
    lambda micro, accumulation, repetitions: settings(
        micro_batch=micro, accumulation=accumulation, repetitions=repetitions
    ),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 9),
)
GROUPED = st.builds(
    lambda chosen, groups: chosen.model_copy(update={"update_groups": groups}),
    SHAPES,
    st.integers(1, 70),
)


def has_too_few_exposures(chosen: Training, slots: int) -> bool:
    return slots * chosen.repetitions < (chosen.update_groups or 0)


@given(SLOTS, SHAPES | GROUPED, st.integers(0, 99))
def test_steps_divide_exposures(slots: list[str], chosen: Training, seed: int) -> None:
    """Into full steps, or evenly into update groups, in the same order."""
    if has_too_few_exposures(chosen, len(slots)):
        for refused in (
            lambda: plan_steps(slots, chosen, seed),
            lambda: budget([example(f"p{i}") for i in range(len(slots))], chosen),
        ):
            with pytest.raises(UserError, match=rf"update_groups is {chosen.update_groups}, "):
                refused()
        return
    table = plan_steps(slots, chosen, seed)
    sizes = [len(step) for step in table]
    exposures = [slot for step in table for slot in step]
    assert Counter(exposures) == dict.fromkeys(slots, chosen.repetitions)
    flat = chosen.model_copy(update={"update_groups": None})
    full_steps = plan_steps(slots, flat, seed)
    assert exposures == [slot for step in full_steps for slot in step]
    if chosen.update_groups:
        assert len(sizes) == chosen.update_groups
        assert max(sizes) - min(sizes) <= 1
    else:
        size = chosen.micro_batch * chosen.accumulation
        assert all(own == size for own in sizes[:-1])
        assert 1 <= sizes[-1] <= size


def test_repetitions_are_shuffled_as_one_list() -> None:
    """Of every n consecutive exposures of R·n, some slots appear twice and others never.

    A slot's R places are uniform among all R·n, so n of them hold none with probability near
    (1 - 1/R)^R = 0.34: about 42 ± 4 of 64 slots appear. Passes shuffled one after
    another would show all 64.
    """
    n, repetitions = 64, 8
    slots = [f"p{i}" for i in range(n)]
    for seed in range(20):
        flat = [
            s for step in plan_steps(slots, settings(repetitions=repetitions), seed) for s in step
        ]
        for start in range(0, repetitions * n, n):
            assert 26 <= len(set(flat[start : start + n])) <= 58, (seed, start)


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 9), st.booleans()), min_size=1, max_size=20
    ),
    SHAPES | GROUPED,
    st.booleans(),
    st.integers(6, 20),
)
def test_budget_equals_plan_totals(
    lengths: list[tuple[int, int, bool]], chosen: Training, supervise: bool, most: int
) -> None:
    assume(not has_too_few_exposures(chosen, len(lengths)))
    chosen = chosen.model_copy(
        update={"supervise_eos": supervise, "max_length": max(10, most), "too_long": "truncate"}
    )
    chosen_examples = [
        example(f"p{i}", prompt, response, ended=ended)
        for i, (prompt, response, ended) in enumerate(lengths)
    ]
    sequences = {s.slot: s for s in build_sequences(chosen_examples, chosen)}
    table = plan_steps(sequences, chosen, 13)
    members = [sequences[slot] for step in table for slot in step]
    totals = budget(chosen_examples, chosen)
    assert totals.n == len(lengths)
    assert totals.exposures == len(members)
    assert totals.tokens == sum(m.tokens for m in members)
    assert totals.supervised_tokens == sum(m.supervised for m in members)
    assert totals.steps == len(table)
    assert all(m.tokens <= chosen.max_length for m in members)


@given(st.lists(st.text(alphabet="a~2", min_size=1, max_size=4), min_size=1, max_size=12))
def test_slots_are_distinct_and_order_independent(ids: list[str]) -> None:
    chosen = [example(name, index=i) for i, name in enumerate(ids)]
    slots = [s.slot for s in build_sequences(chosen, settings())]
    assert len(set(slots)) == len(ids)
    assert [s.slot for s in build_sequences(chosen[::-1], settings())] == slots[::-1]


def test_truncation_drops_end_token() -> None:
    chosen = settings(max_length=20, too_long="truncate")
    long, cut, fits = (
        example("long", 10, 30),
        example("cut", 10, 10),
        example("fits", 10, 9),
    )
    sequences = build_sequences([long, cut, fits], chosen)
    assert [(s.tokens, s.eos, s.truncated) for s in sequences] == [
        (20, False, True),
        (20, False, True),
        (20, True, False),
    ]
    assert sequences[0].target_ids == long.response_ids[:10]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=24), st.integers(1, 5), st.booleans())
def test_forward_passes_hold_their_limit(
    lengths: list[int], micro_batch: int, padding_free: bool
) -> None:
    chosen = Training(
        micro_batch=micro_batch, padding_free=padding_free, max_length=100, max_tokens=100
    )
    sequences = build_sequences([example(f"p{i}", 1, n) for i, n in enumerate(lengths)], chosen)
    passes = cut_step(sequences, [1.0] * len(sequences), chosen)
    assert Counter(m.sequence.slot for part in passes for m in part) == Counter(
        sequence.slot for sequence in sequences
    )
    for part in passes:
        tokens = sum(member.sequence.tokens for member in part)
        assert tokens <= 100 if padding_free else len(part) <= micro_batch


# Learning rates


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


# Online arms


def test_flatness_ignores_rounding_of_mean() -> None:
    tenths = [0.1, 0.1, 0.1]
    assert sum(tenths) / 3 != 0.1
    assert is_flat(tenths)
    assert not is_flat([1.0, 1.0, 1.0 - 2**-53])


IDS = st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=12, unique=True)


@given(IDS, st.integers(1, 20), st.integers(1, 5), st.randoms())
def test_prompts_repeat_only_after_full_pass(
    ids: list[str], updates: int, prompts: int, shuffler: Any
) -> None:
    settings = Grpo(prompts_per_update=prompts)
    plan = plan_prompts(ids, updates, settings, 13)
    assert len(plan) == updates * prompts
    for start in range(0, len(plan), len(ids)):
        one_pass = plan[start : start + len(ids)]
        assert len(set(one_pass)) == len(one_pass)
    shuffled = list(ids)
    shuffler.shuffle(shuffled)
    assert plan_prompts(shuffled, updates, settings, 13) == plan


GROUPS = [
    Group(1, "a", "G", (1.0, 1.0), (3, 4), True),
    Group(1, "b", "S", (1.0, 0.0), (3, 4), False),
    Group(2, "c", "U", (0.0, None), (5, 5), True),
    Group(2, "d", "G", (None, None), (5, 5), True),
]


def test_group_facts_sum_groups() -> None:
    assert group_facts(GROUPS) == {
        "draws": 2, "groups": 4, "flat": 3, "masked": 3, "empty_draws": 1, "responses": 8,
        "unjudged": 3, "completion_tokens": 34,
    }  # fmt: skip
