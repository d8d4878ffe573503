"""The plan and the budget: exact laws."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.recipe.sections import Training
from gapft_harness.training.plan import budget, build_sequences, hash_table, plan_steps
from tests.training.examples import example, examples, settings

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
    lambda micro, accumulation, repetitions, groups: settings(
        micro_batch=micro,
        accumulation=accumulation,
        repetitions=repetitions,
        update_groups=groups,
    ),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 70),
)
PUBLISHED = [(3190, 1595), (913, 457), (275, 138), (63, 32), (887, 444), (252, 126)]


def fitting(chosen: Training, slots: int) -> Training:
    """The settings, with no more update groups than exposures."""
    if chosen.update_groups is None:
        return chosen
    most = min(chosen.update_groups, slots * chosen.repetitions)
    return chosen.model_copy(update={"update_groups": most})


@given(SLOTS, SHAPES, st.integers(0, 99))
def test_steps_are_full_but_the_last_and_every_slot_is_seen_r_times(
    slots: list[str], chosen: Training, seed: int
) -> None:
    table = plan_steps(slots, chosen, seed)
    size = chosen.micro_batch * chosen.accumulation
    assert len(table) == -(-chosen.repetitions * len(slots) // size)
    assert all(len(step) == size for step in table[:-1])
    assert 1 <= len(table[-1]) <= size
    seen = Counter(slot for step in table for slot in step)
    assert seen == dict.fromkeys(slots, chosen.repetitions)


@given(SLOTS, GROUPED, st.integers(0, 99))
def test_update_groups_share_all_exposures_evenly(
    slots: list[str], chosen: Training, seed: int
) -> None:
    groups, exposures = chosen.update_groups or 0, chosen.repetitions * len(slots)
    if exposures < groups:
        for refused in (
            lambda: plan_steps(slots, chosen, seed),
            lambda: budget([example(f"p{i}") for i in range(len(slots))], chosen),
        ):
            with pytest.raises(UserError, match=rf"update_groups is {groups}, .* {exposures} exp"):
                refused()
        return
    table = plan_steps(slots, chosen, seed)
    assert len(table) == groups
    sizes = [len(step) for step in table]
    assert max(sizes) - min(sizes) <= 1
    assert Counter(slot for step in table for slot in step) == dict.fromkeys(
        slots, chosen.repetitions
    )
    flat = chosen.model_copy(update={"update_groups": None})
    assert [s for step in table for s in step] == [
        s for step in plan_steps(slots, flat, seed) for s in step
    ]


@given(SLOTS, st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_micro_batches_have_no_say_in_update_groups(
    slots: list[str], groups: int, micro: int, accumulation: int
) -> None:
    chosen = settings(update_groups=groups, repetitions=9)
    other = chosen.model_copy(update={"micro_batch": micro, "accumulation": accumulation})
    assert plan_steps(slots, other, 13) == plan_steps(slots, chosen, 13)


def test_64_update_groups_of_100_examples() -> None:
    """Table 7: exactly 64 updates; 36 of two examples, 28 of one, neither kind all at one end."""
    chosen = settings(micro_batch=1, update_groups=64)
    sizes = [len(step) for step in plan_steps([str(i) for i in range(100)], chosen, 13)]
    assert Counter(sizes) == {2: 36, 1: 28}
    assert sum(sizes[:32]) == sum(sizes[32:]) == 50
    assert budget([example(str(i)) for i in range(100)], chosen).steps == 64


def test_too_few_exposures_for_update_groups_says_what_to_do() -> None:
    with pytest.raises(
        UserError,
        match=r"update_groups is 64, .*only 40 exposures .*raise budget.n.*or lower training.upd",
    ):
        budget([example(str(i)) for i in range(20)], settings(update_groups=64, repetitions=2))


@given(st.data(), SLOTS, SHAPES | GROUPED, st.integers(0, 99))
def test_order_of_input_changes_nothing(
    data: st.DataObject, slots: list[str], chosen: Training, seed: int
) -> None:
    shuffled = data.draw(st.permutations(slots))
    chosen = fitting(chosen, len(slots))
    assert plan_steps(shuffled, chosen, seed) == plan_steps(slots, chosen, seed)


@given(SLOTS, SHAPES, st.integers(0, 99))
def test_another_slot_keeps_the_order_of_the_rest(
    slots: list[str], chosen: Training, seed: int
) -> None:
    flat = [slot for step in plan_steps(slots, chosen, seed) for slot in step]
    more = [slot for step in plan_steps([*slots, "another one"], chosen, seed) for slot in step]
    assert [slot for slot in more if slot != "another one"] == flat


def test_another_seed_gives_another_order() -> None:
    slots = [f"p{i}" for i in range(40)]
    assert plan_steps(slots, settings(), 13) != plan_steps(slots, settings(), 21)


@pytest.mark.parametrize(("n", "steps"), PUBLISHED)
def test_published_steps(n: int, steps: int) -> None:
    """Table 5, with the paper's settings, which are the defaults."""
    chosen = Training()
    assert len(plan_steps([str(i) for i in range(n)], chosen, 13)) == steps
    found = budget([example(str(i)) for i in range(n)], chosen)
    assert (found.n, found.exposures, found.steps) == (n, 8 * n, steps)


def test_batches_cross_repetitions() -> None:
    """Eight passes batched apart would give 8 · ceil(275/16) = 144 steps and not 138."""
    table = plan_steps([str(i) for i in range(275)], Training(), 13)
    assert any(len(set(step)) < len(step) for step in table)


def test_repetitions_are_shuffled_as_one_list_and_not_pass_by_pass() -> None:
    """In every n consecutive exposures of R·n, some slots come up twice and others not at all.

    A slot's R places are uniform among all R·n, so n of them hold none with probability near
    (1 - 1/R)^R = 0.34: about 42 of 64 slots come up, give or take 4. Passes shuffled one after
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


def test_table_hash_is_the_sha256_of_its_json() -> None:
    table = [["a", "b"], ["c"]]
    assert hash_table(table) == hashlib.sha256(b'[["a","b"],["c"]]').hexdigest()
    assert hash_table([["a"], ["b", "c"]]) != hash_table(table)


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(1, 9), st.booleans()), min_size=1, max_size=20
    ),
    SHAPES | GROUPED,
    st.booleans(),
    st.integers(6, 20),
)
def test_the_budget_is_what_the_plan_sums_to(
    lengths: list[tuple[int, int, bool]], chosen: Training, supervise: bool, most: int
) -> None:
    chosen = fitting(chosen, len(lengths)).model_copy(
        update={"supervise_eos": supervise, "max_length": max(10, most), "too_long": "truncate"}
    )
    chosen_examples = [
        example(f"p{i}", prompt, response, ended=ended)
        for i, (prompt, response, ended) in enumerate(lengths)
    ]
    fitted = {s.slot: s for s in build_sequences(chosen_examples, chosen)}
    table = plan_steps(fitted, chosen, 13)
    members = [fitted[slot] for step in table for slot in step]
    found = budget(chosen_examples, chosen)
    assert found.n == len(lengths)
    assert found.exposures == len(members)
    assert found.tokens == sum(m.tokens for m in members)
    assert found.supervised_tokens == sum(m.supervised for m in members)
    assert found.steps == len(table)
    assert all(m.tokens <= chosen.max_length for m in members)


def test_a_repeated_problem_gets_slots_of_its_own_whatever_ids_look_like() -> None:
    """``a`` twice and a problem called ``a~2``: three slots."""
    chosen = [example("a", index=0), example("a", index=1), example("a~2"), example("a~")]
    slots = [s.slot for s in build_sequences(chosen, settings())]
    assert len(set(slots)) == 4
    assert slots[:2] == ["a", "a~2"]


@given(st.lists(st.text(alphabet="a~2", min_size=1, max_size=4), min_size=1, max_size=12))
def test_slots_are_distinct_and_do_not_depend_on_order(ids: list[str]) -> None:
    chosen = [example(name, index=i) for i, name in enumerate(ids)]
    slots = [s.slot for s in build_sequences(chosen, settings())]
    assert len(set(slots)) == len(ids)
    assert [s.slot for s in build_sequences(chosen[::-1], settings())] == slots[::-1]


def test_too_long_is_refused_with_what_to_do() -> None:
    with pytest.raises(UserError, match=r"problem long: .* have 21 tokens.* is 20; raise.*or set"):
        build_sequences([example("ok"), example("long", 10, 10)], settings(max_length=20))


def test_too_long_loses_its_end_and_its_end_token() -> None:
    chosen = settings(max_length=20, too_long="truncate")
    long, cut, fits = (
        example("long", 10, 30),
        example("cut", 10, 10),
        example("fits", 10, 9),
    )
    found = build_sequences([long, cut, fits], chosen)
    assert [(s.tokens, s.eos, s.truncated) for s in found] == [
        (20, False, True),
        (20, False, True),
        (20, True, False),
    ]
    assert found[0].target_ids == long.response_ids[:10]


def test_a_prompt_that_leaves_no_room_is_refused_even_when_truncating() -> None:
    chosen = settings(max_length=10, too_long="truncate")
    with pytest.raises(UserError, match=r"problem p: .*raise training.max_length$"):
        build_sequences([example("p", 10, 1)], chosen)


@pytest.mark.parametrize("field", ["prompt", "response"])
def test_nothing_to_learn_from_or_to_learn_names_the_problem(field: str) -> None:
    empty = dataclasses.replace(example("nought"), **{f"{field}_ids": ()})  # type: ignore[arg-type]
    with pytest.raises(UserError, match=rf"problem nought: the {field} is empty"):
        budget([example("p"), empty], settings())


def test_only_an_ended_response_has_an_end_token_and_only_if_supervised() -> None:
    chosen = examples(10)
    assert budget(chosen, settings()).supervised_tokens - budget(
        chosen, settings(supervise_eos=False)
    ).supervised_tokens == sum(e.ended for e in chosen)
