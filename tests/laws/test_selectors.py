"""The laws of selectors, over every selector that the plugin manager knows.

A new selector needs a row in ``tests/kit/selector_rows.py``; without it, a test fails.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.api import GREEDY, Evidence, Pool, UserError
from gapft_harness.core.errors import PluginError
from gapft_harness.core.golds import gold_answer
from gapft_harness.core.records import State
from tests.kit.searched_pool import (
    K,
    SearchedPool,
    build_searched_pool,
    choose,
    compute_budget,
    list_selectors,
    plain_outcome,
    searched_pools,
)
from tests.kit.selector_rows import PASSED, ROWS, Row

SLOTS, REPLAY = 4, 2
SEEDS = st.sampled_from([13, 21, 73])
TRAITS = list_selectors()
BY_ROW = pytest.mark.parametrize("name", ROWS)
PLAIN = build_searched_pool([plain_outcome(s) for s in ("G", "S", "U") for _ in range(8)])


def count_slots(row: Row, pool: Pool, replay: int = 0) -> int:
    return len(pool.verified) - replay if row.takes_all_verified else SLOTS


def fill(row: Row, pool: Pool, seed: int = 13, replay: int = 0) -> list[Evidence]:
    """Fill the slots of a row; empty if the selector may refuse this pool, and does."""
    slots = count_slots(row, pool, replay)
    try:
        return choose(pool, row.selector, slots, seed, replay, row.params)
    except PluginError:  # it broke its contract
        raise
    except UserError:
        if not row.may_refuse:
            raise
        return []


def each_set(pool: Pool, seed: int, replay: int = 0) -> Iterator[tuple[str, Row, list[Evidence]]]:
    """Yield every row with its training set, without the selectors that refuse this pool."""
    for name, row in ROWS.items():
        if chosen := fill(row, pool, seed, replay):
            yield name, row, chosen


def list_ids(chosen: Sequence[Evidence]) -> list[str]:
    return [example.problem_id for example in chosen]


def with_state(chosen: Sequence[Evidence], state: State) -> list[Evidence]:
    return [example for example in chosen if example.state == state]


def test_every_registered_selector_has_a_row() -> None:
    assert {row.selector for row in ROWS.values()} == set(TRAITS)


@given(
    searched_pools(SLOTS, REPLAY),
    SEEDS,
    st.integers(0, REPLAY),
    st.integers(1, 3),
    st.sampled_from([None, 1, SLOTS]),
)
def test_matched_selectors_have_equal_budgets_and_replay(
    searched: SearchedPool, seed: int, replay: int, repetitions: int, groups: int | None
) -> None:
    """Equation 7: n, N and J are equal, and tokens where the selector matches them."""
    pool = searched.pool
    shared = choose(pool, "replay", replay, seed) if replay else []
    training: dict[str, Any] = {"repetitions": repetitions, "update_groups": groups}
    training |= {"micro_batch": 1, "accumulation": 3}
    own_tokens = {}
    for name, row, chosen in each_set(pool, seed, replay):
        total = compute_budget(chosen, **training)
        if TRAITS[row.selector].budget == "own":
            assert sorted(list_ids(chosen)) == list_ids(pool.verified), name
            continue
        slots = count_slots(row, pool, replay)
        own = chosen[:slots]
        assert chosen[slots:] == shared, f"{name}: the replay that all conditions share"
        assert not set(list_ids(own)) & set(list_ids(shared)), name
        assert TRAITS[row.selector].repeats or len(set(list_ids(own))) == slots, name
        exposures = repetitions * (slots + replay)
        assert (total.n, total.exposures) == (slots + replay, exposures), name
        assert total.steps == (groups or -(-exposures // 3)), name
        budget = compute_budget(own)
        if name == "replay":
            longer = choose(pool, "replay", SLOTS + replay, seed)
            assert own + shared == longer[replay:] + longer[:replay], "one draw of solved problems"
        own_tokens[name] = (budget.supervised_tokens, budget.tokens)
        for mine, gapft in zip(own_tokens[name], own_tokens["gapft"], strict=True):
            if row.tokens is not None:
                assert abs(mine - gapft) <= row.tokens * max(mine, gapft), name


@given(searched_pools(SLOTS, REPLAY), SEEDS)
def test_trains_on_verified_responses_of_its_states(searched: SearchedPool, seed: int) -> None:
    """Only ``unverified`` and ``wrong`` say otherwise."""
    by_id = {problem.problem_id: problem for problem in searched.evidence}
    for name, row, chosen in each_set(searched.pool, seed, REPLAY):
        traits = TRAITS[row.selector]
        own = chosen if traits.budget == "own" else chosen[:-REPLAY]
        assert {example.state for example in own} <= set(row.states), name
        assert (row.statuses == PASSED) != (traits.responses == "unverified"), name
        for example in own:
            response, problem = example.response, by_id[example.problem_id]
            assert response is not None, name
            judged, status = searched.judged[response.problem_id, response.index]
            assert (response, status in row.statuses) == (judged, True), name
            assert response.token_ids, name
            assert replace(example, response=problem.response) == problem, name
            if response.problem_id != problem.problem_id:
                assert traits.responses == "borrowed", name
                assert by_id[response.problem_id].gold == problem.gold, name
            elif traits.responses == "kept":
                assert response == problem.response, name


@given(searched_pools(SLOTS, REPLAY), SEEDS, st.data())
def test_pool_order_and_other_randomness_do_not_matter(
    searched: SearchedPool, seed: int, data: st.DataObject
) -> None:
    shuffled = searched.in_order(data.draw(st.permutations(range(len(searched.evidence)))))
    for name, row in ROWS.items():
        random.seed(1)
        first = fill(row, searched.pool, seed)
        random.seed(2)
        assert fill(row, shuffled, seed) == first, name


@BY_ROW
def test_seeds_draw_differently_and_favour_no_problem(name: str) -> None:
    """Problems of a state that differ only by their ids are trained on equally often.

    With 8 problems a state and 400 seeds, a count has a standard deviation of at most 10 for each
    exposure; 5 of these are allowed.
    """
    row, counts, sets = ROWS[name], Counter[str](), set()
    for seed in range(400):
        chosen = fill(row, PLAIN.pool, seed)
        counts.update({*list_ids(chosen)})
        sets.add(tuple(list_ids(chosen)))
    assert len(sets) > 1
    for state in ("G", "S", "U"):
        drawn = [counts[e.problem_id] for e in PLAIN.evidence if e.state == state]
        assert max(drawn) - min(drawn) <= 100, drawn


@given(searched_pools(SLOTS + 1), SEEDS)
def test_smaller_sets_are_prefixes_of_larger_ones(searched: SearchedPool, seed: int) -> None:
    for name, row in ROWS.items():
        if row.is_prefix and (smaller := fill(row, searched.pool, seed)):
            try:
                larger = choose(searched.pool, row.selector, SLOTS + 1, seed, 0, row.params)
            except UserError:
                assert row.may_refuse, name
                continue
            assert larger[:SLOTS] == smaller, name


@given(searched_pools(SLOTS + 1), SEEDS, st.data())
def test_another_problem_only_takes_its_own_place(
    searched: SearchedPool, seed: int, data: st.DataObject
) -> None:
    """A problem's rank in a draw does not depend on the other problems."""
    for name in ("gapft", "uniform", "replay", "unverified"):
        row = ROWS[name]
        candidates = [e for e in searched.evidence if e.state in row.states]
        removed = data.draw(st.sampled_from(candidates)).problem_id
        rest = replace(
            searched, evidence=tuple(e for e in searched.evidence if e.problem_id != removed)
        )
        before, after = (fill(row, one.pool, seed) for one in (searched, rest))
        kept = [example for example in before if example.problem_id != removed]
        assert after[: len(kept)] == kept, name


#: Selectors with parameters at which they equal a simpler one.
ENDS: list[tuple[str, dict[str, Any], str]] = [
    ("search_depth", {"k": 0}, "replay"),
    ("search_depth", {"k": K}, "gapft"),
    ("randomized_inclusion", {"share": 1}, "gapft"),
    ("randomized_inclusion", {"share": 1, "within": 2}, "gapft"),
    ("repeated", {"times": 1}, "gapft"),
]


@given(searched_pools(SLOTS, REPLAY), SEEDS, st.integers(0, REPLAY))
def test_equal_choices_are_equal_example_by_example(
    searched: SearchedPool, seed: int, replay: int
) -> None:
    for name, params, simpler in ENDS:
        mine = choose(searched.pool, name, SLOTS, seed, replay, params)
        assert mine == choose(searched.pool, simpler, SLOTS, seed, replay, {}), (name, params)


@given(searched_pools(SLOTS), SEEDS)
def test_deeper_searches_nest(searched: SearchedPool, seed: int) -> None:
    """The recovered problems of K are those of GapFT that K samples recover, so depths nest."""
    pool = searched.pool
    gapft, replay = (choose(pool, name, SLOTS, seed) for name in ("gapft", "replay"))
    core, slots = list(pool.solved), count_slots(ROWS["core_depth"], pool)
    beside = choose(pool, "gapft", slots - len(core), seed)
    repeats = choose(pool, "core_depth", slots, seed, 0, {"k": 0})[len(core) :]
    assert max(Counter(list_ids(repeats)).values()) <= -(-len(repeats) // len(core))
    check_nearest_repeats(core, beside, repeats)
    for k in range(K + 1):
        chosen = choose(pool, "search_depth", SLOTS, seed, 0, {"k": k})
        found = [example for example in gapft if (example.first_success or 0) < k]
        assert chosen == found + replay[: SLOTS - len(found)]
        with_core = choose(pool, "core_depth", slots, seed, 0, {"k": k})
        assert with_core == core + [
            failure if (failure.first_success or 0) < k else repeat
            for failure, repeat in zip(beside, repeats, strict=True)
        ]


def check_nearest_repeats(
    core: list[Evidence], failures: list[Evidence], repeats: list[Evidence]
) -> None:
    """Check that each repeat is as near as possible to its failure in processed tokens.

    The balance of the earlier repeats is added, and no problem repeats before all have.
    """
    unused, balance = list[Evidence](), 0
    for failure, repeat in zip(failures, repeats, strict=True):
        unused = unused or list(core)
        balance += failure.tokens + failure.ended
        distances = {e.problem_id: abs(balance - e.tokens - e.ended) for e in unused}
        assert distances[repeat.problem_id] == min(distances.values())
        unused.remove(repeat)
        balance -= repeat.tokens + repeat.ended


@given(searched_pools(SLOTS), SEEDS, st.lists(st.integers(0, 20), min_size=2, max_size=2))
def test_larger_shares_nest(searched: SearchedPool, seed: int, twentieths: list[int]) -> None:
    pool = searched.pool
    gapft = choose(pool, "gapft", SLOTS, seed)
    late = [example for example in gapft if (example.first_success or 0) >= 1]
    previous: set[str] = set()
    for number in sorted(twentieths):
        included, mixed = (
            choose(pool, name, SLOTS, seed, 0, {"share": number / 20, **params})
            for name, params in (("randomized_inclusion", {"within": 1}), ("gapft_with_replay", {}))
        )
        recovered = with_state(included, "S")
        assert len(recovered) == len(gapft) - len(late) + (2 * number * len(late) + 20) // 40
        assert [example for example in gapft if example in recovered] == recovered
        assert previous <= set(list_ids(recovered))
        if not number:
            assert included == choose(pool, "search_depth", SLOTS, seed, 0, {"k": 1})
        previous = set(list_ids(recovered))
        assert len(with_state(mixed, "G")) == round(number / 20 * SLOTS)


@given(searched_pools(SLOTS), SEEDS)
def test_repetition_covers_fewer_of_the_same_problems(searched: SearchedPool, seed: int) -> None:
    """Equation 10 and Table 3: equal exposures, on half of the problems twice as often."""
    pool = searched.pool
    diffuse, concentrated = (
        choose(pool, name, SLOTS, seed) for name in ("diffuse", "concentrated")
    )
    assert set(Counter(list_ids(concentrated)).values()) == {2}
    assert set(list_ids(concentrated)) < set(list_ids(diffuse))
    tokens = sorted(compute_budget([e], repetitions=1).supervised_tokens for e in diffuse)
    gap = max(longer - shorter for shorter, longer in zip(tokens[::2], tokens[1::2], strict=True))
    totals = [compute_budget(s, repetitions=1).supervised_tokens for s in (diffuse, concentrated)]
    assert abs(totals[0] - totals[1]) <= gap, "halves differ by the largest gap within a pair"
    repeated = choose(pool, "repeated", SLOTS, seed, 0, {"times": 2})
    first = choose(pool, "gapft", SLOTS // 2, seed)
    assert Counter(list_ids(repeated)) == dict.fromkeys(list_ids(first), 2)


def test_halves_balance_small_gaps_against_a_large_one() -> None:
    """Gaps of 4, 6 and 10 tokens; in this order they would leave a difference of 8."""
    lengths = [1, 5, 10, 16, 19, 29]
    pool = build_searched_pool(
        [replace(plain_outcome("S"), lengths=(length,) * (K + 1)) for length in lengths]
    ).pool
    for seed in range(30):
        once, twice = (choose(pool, name, 6, seed) for name in ("diffuse", "concentrated"))
        tokens = [compute_budget(chosen).supervised_tokens for chosen in (once, twice)]
        assert tokens[0] == tokens[1]


@given(searched_pools(SLOTS), SEEDS)
def test_gold_labels_keep_the_targets_of_gapft(searched: SearchedPool, seed: int) -> None:
    """Section 5: target strings, supervised tokens and classes are equal; the problems differ."""
    pool = searched.pool
    gapft = choose(pool, "gapft", SLOTS, seed)
    core = list(pool.solved)
    slots = count_slots(ROWS["core_gold"], pool)
    for answer_only in (True, False):
        params = {"answer_only": answer_only}
        try:
            gold = choose(pool, "gold_labels", SLOTS, seed, 0, params)
        except UserError:
            assert answer_only
            assert not any(len(e.response.text) == 1 for e in gapft if e.response)
            continue
        assert [e.response for e in gold] == [e.response for e in gapft]
        assert [e.gold for e in gold] == [e.gold for e in gapft], "slot by slot, the class"
        for own, target in zip(gold, gapft, strict=True):
            assert target.response is not None
            is_longer = len(target.response.text) > 1
            assert own == target or not (answer_only and is_longer), "it refers to its problem"
        beside = choose(pool, "gold_labels", len(pool.recovered), seed, 0, params)
        assert choose(pool, "core_gold", slots, seed, 0, params) == core + beside


@pytest.mark.parametrize("gold", [[1, 2], {"right": "A"}, "", " \n"])
def test_gold_labels_need_comparable_answers(gold: Any) -> None:
    changed = replace(PLAIN, evidence=tuple(replace(e, gold=gold) for e in PLAIN.evidence))
    with pytest.raises(UserError, match="gold answer of problem S"):
        choose(changed.pool, "gold_labels", SLOTS)
    assert TRAITS["gold_labels"].check_gold is not None
    assert TRAITS["gold_labels"].check_gold(gold)


def test_gold_labels_ignore_spaces_around_answers() -> None:
    spaced = tuple(
        replace(e, gold=f" {gold_answer(e.gold)}\n") if e.state == "U" else e
        for e in PLAIN.evidence
    )
    params = {"answer_only": False}
    chosen, expected = (
        choose(outcome.pool, "gold_labels", SLOTS, 0, 0, params)
        for outcome in (replace(PLAIN, evidence=spaced), PLAIN)
    )
    assert [e.problem_id for e in chosen] == [e.problem_id for e in expected]
    assert {e.state for e in chosen} == {"S", "U"}


@given(searched_pools(SLOTS), SEEDS)
def test_strata_match_those_of_gapft(searched: SearchedPool, seed: int) -> None:
    """Table 6: the count of each stratum differs by at most one."""
    gapft = choose(searched.pool, "gapft", SLOTS, seed)
    expected = Counter(example.document["subject"] for example in gapft)
    for name, row, chosen in each_set(searched.pool, seed):
        if "by" in row.params:
            counts = Counter(example.document["subject"] for example in chosen)
            assert all(abs(counts[x] - expected[x]) <= 1 for x in "xy"), name
    kept = {"states": "S", "by": ["subject"], "tokens": None}
    assert choose(searched.pool, "matched_strata", SLOTS, seed, 0, kept) == gapft


@given(searched_pools(SLOTS), SEEDS, st.data())
def test_unverified_samples_do_not_depend_on_verdicts(
    searched: SearchedPool, seed: int, data: st.DataObject
) -> None:
    """Other states and verdicts give the same samples."""
    states = data.draw(st.permutations([e.state for e in searched.evidence]))

    def read_responses(name: str) -> Any:
        return [(searched.judged[name, index][0], (), "error") for index in range(-1, K)]

    changed = [
        replace(problem, state=state, read_responses=read_responses)
        for problem, state in zip(searched.evidence, states, strict=True)
    ]
    other = replace(searched, evidence=tuple(changed))
    drawn, again = (fill(ROWS["unverified"], one.pool, seed) for one in (searched, other))
    assert [e.response for e in drawn] == [e.response for e in again]
    assert GREEDY not in {e.response.index for e in drawn if e.response}


def test_unverified_samples_are_drawn_uniformly() -> None:
    """1,600 draws of 4 samples: 400 each, within 5 standard deviations of 17."""
    counts = Counter(
        example.response.index
        for seed in range(400)
        for example in fill(ROWS["unverified"], PLAIN.pool, seed)
        if example.response
    )
    assert all(abs(counts[index] - 400) < 87 for index in range(K)), counts


def test_tokens_are_matched_by_exchanges_or_refused() -> None:
    """Solved problems of 10 and of 29 tokens against failures of 20, and only those of 10."""

    def build(solved: list[int], get_lengths: Callable[[int], dict[str, Any]]) -> Pool:
        rows = [("G", n) for n in solved] + [("S", 20)] * 10
        outcomes = [replace(plain_outcome(state), **get_lengths(n)) for state, n in rows]
        return build_searched_pool(outcomes).pool

    params = {"states": "G", "tokens": 0.1}
    for get_lengths in (lambda n: {"lengths": (n,) * (K + 1)}, lambda n: {"prompt": n}):
        for seed in range(20):
            pool = build([10] * 20 + [29] * 20, get_lengths)
            both = compute_budget(choose(pool, "matched_strata", 10, seed, 0, params))
            gapft = compute_budget(choose(pool, "gapft", 10, seed))
            for name in ("supervised_tokens", "tokens"):
                expected = getattr(gapft, name)
                assert abs(getattr(both, name) - expected) <= 0.05 * expected, name
        with pytest.raises(UserError, match="matched_strata"):
            choose(build([10] * 20, get_lengths), "matched_strata", 10, 13, 0, params)


@given(searched_pools(SLOTS), SEEDS)
def test_too_few_candidates_are_refused(searched: SearchedPool, seed: int) -> None:
    """A draw is refused exactly if it needs more problems than there are candidates."""
    pool = searched.pool
    failed = [
        problem
        for problem in (*pool.recovered, *pool.missed)
        if any(
            sample.response and sample.response.token_ids and status in ("fail", "timeout")
            for sample, status in problem.each_sample()
        )
    ]
    candidates = {
        "gapft": len(pool.recovered),
        "uniform": len(pool.verified),
        "replay": len(pool.solved),
        "diffuse": len(pool.recovered) // 2 * 2,
        "concentrated": len(pool.recovered) // 2 * 2,
        "wrong": len(failed),
    }
    for name, count in candidates.items():
        if count:
            assert len(choose(pool, name, count, seed)) == count, name
        with pytest.raises(UserError, match=r"'chosen'"):
            choose(pool, name, count + 2, seed)
    with pytest.raises(UserError, match=r"budget\.replay"):
        choose(pool, "gapft", SLOTS, seed, len(pool.solved) + 1)
    with pytest.raises(UserError):
        choose(pool, "core_depth", len(pool.solved), seed, 0, {"k": 1})


#: Invalid values: the selector, its parameters and the key that the error names.
INVALID: list[tuple[str, dict[str, Any], str]] = [
    ("search_depth", {"k": K + 1}, "k"),
    ("search_depth", {"k": -1}, "k"),
    ("search_depth", {"k": 1.5}, "k"),
    ("core_depth", {"k": K + 1}, "k"),
    ("randomized_inclusion", {"share": 50}, "share"),
    ("randomized_inclusion", {"share": 0.5, "within": -1}, "within"),
    ("gapft_with_replay", {"share": -0.1}, "share"),
    ("repeated", {"times": 0}, "times"),
    ("repeated", {"times": 3}, "budget.n"),
    ("matched_strata", {"by": "subject"}, "by"),
    ("matched_strata", {"by": ["topic"]}, "topic"),
    ("matched_strata", {"tokens": 2}, "tokens"),
    ("matched_strata", {"states": "U"}, "states"),
    ("matched_strata", {"responses": "any"}, "responses"),
]


@pytest.mark.parametrize(("selector", "params", "key"), INVALID)
def test_invalid_parameter_is_named(selector: str, params: dict[str, Any], key: str) -> None:
    with pytest.raises(UserError, match=rf"\b{key}\b") as caught:
        choose(
            PLAIN.pool,
            selector,
            count_slots(ROWS[selector], PLAIN.pool) if selector in ROWS else SLOTS,
            13,
            0,
            params,
        )
    assert not isinstance(caught.value, PluginError)


@pytest.mark.parametrize("selector", ["diffuse", "concentrated"])
def test_odd_slots_of_two_halves_are_refused(selector: str) -> None:
    with pytest.raises(UserError, match=r"budget\.n"):
        choose(PLAIN.pool, selector, 5)


@pytest.mark.parametrize("states", ["GS", "GU"])
def test_depth_is_within_the_drawn_samples(states: str) -> None:
    outcomes = [plain_outcome(state) for state in states for _ in range(8)]
    pool = build_searched_pool(outcomes).pool
    with pytest.raises(UserError, match=f"k is {K + 1}, expected at most {K}"):
        choose(pool, "search_depth", SLOTS, params={"k": K + 1})
