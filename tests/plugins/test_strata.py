"""Selections matched in strata and supervised tokens, and repetition within strata."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import GREEDY, Arm, Evidence, Pool, Response
from gapft_harness.core.streams import Stream
from gapft_harness.plugins.selectors.exchange import count_supervised_tokens
from gapft_harness.plugins.selectors.strata import divide_counts, match_counts
from gapft_harness.recipe.sections import Training
from gapft_harness.stages.selection.budgets import require_similar_tokens
from gapft_harness.stages.selection.choosing import build_example, group_by_state
from gapft_harness.training.plan import budget
from tests.plugins.test_replacing_replay import chosen
from tests.pools import evidence

SEEDS = st.sampled_from([13, 21, 42])
BY = ["subject", "level"]
STREAM = Stream(13, "test")
COUNTS = st.dictionaries(st.sampled_from([("a",), ("b",), ("c",), ("d",)]), st.integers(0, 4))
#: Of each problem: its subject, its level, its response's tokens.
PROBLEMS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([1, 2]), st.integers(1, 60)),
    min_size=1,
    max_size=40,
)


def pool(solved: list[Any], recovered: list[Any]) -> Pool:
    def made(state: Any, problems: list[Any]) -> list[Evidence]:
        return [
            replace(evidence(f"{state}{i:02}", state, t), document={"subject": s, "level": of})
            for i, (s, of, t) in enumerate(problems)
        ]

    return group_by_state([*made("G", solved), *made("S", recovered), evidence("U0", "U")])


def strata(examples: list[Evidence]) -> Counter[Any]:
    return Counter((e.document["subject"], e.document["level"]) for e in examples)


def most_apart(one: Counter[Any], other: Counter[Any]) -> int:
    return max((abs(one[of] - other[of]) for of in one | other), default=0)


@given(COUNTS, COUNTS)
@settings(max_examples=200)
def test_strata_are_matched_exactly_where_they_can_be(wanted: Any, available: Any) -> None:
    size = sum(wanted.values())
    ranges = [
        [c for c in range(available.get(x, 0) + 1) if abs(c - wanted.get(x, 0)) <= 1]
        for x in {*wanted, *available}
    ]
    if not any(sum(counts) == size for counts in product(*ranges)):
        with pytest.raises(UserError, match="have too few"):
            match_counts(wanted, available, STREAM, "s")
        return
    found = match_counts(wanted, available, STREAM, "s")
    assert sum(found.values()) == size
    assert all(0 <= count <= available.get(label, 0) for label, count in found.items())
    assert most_apart(Counter(wanted), Counter(found)) <= 1
    if all(available.get(label, 0) >= count for label, count in wanted.items()):
        assert found == wanted
    turned = [dict(reversed(of.items())) for of in (wanted, available)]
    assert match_counts(*turned, STREAM, "s") == found


@given(COUNTS, st.integers(1, 4))
def test_shares_are_a_times_th_of_each_stratum_to_less_than_one(counts: Any, times: int) -> None:
    counts = {**counts, ("e",): -sum(counts.values()) % times}
    found = divide_counts(counts, times, STREAM)
    assert times * sum(found.values()) == sum(counts.values())
    assert all(abs(times * found[of] - count) < times for of, count in counts.items())


@given(PROBLEMS, PROBLEMS, SEEDS, st.sampled_from([0.02, 0.2, 0.5]), st.data())
@settings(max_examples=200)
def test_whatever_is_matched_is_within_one_problem_a_stratum_and_the_tokens_tolerance(
    solved: list[Any], recovered: list[Any], seed: int, tokens: float, data: Any
) -> None:
    of = pool(solved, recovered)
    times = data.draw(st.sampled_from([1, 2, 3]).filter(lambda t: t <= len(recovered)))
    n = times * data.draw(st.integers(1, len(recovered) // times))
    by = data.draw(st.sampled_from([[], BY[:1], BY]))
    gapft = chosen(of, "gapft", n, seed)
    sets, refused = {"gapft": gapft}, []
    for name, selector, params in (
        ("solved", "matched_strata", {"states": "G"}),
        ("uniform", "matched_strata", {"states": "SG"}),
        ("recovered", "matched_strata", {"states": "S"}),
        ("repeated", "repeated", {"times": times}),
    ):
        try:
            sets[name] = chosen(of, selector, n, seed, by=by, tokens=tokens, **params)
        except UserError as error:
            refused.append(str(error))
            continue
        again = group_by_state([*of.missed, *reversed(of.verified)])
        assert chosen(again, selector, n, seed, by=by, tokens=tokens, **params) == sets[name]
    assert all("have too few problems" in of or "cannot match" in of for of in refused)
    assert sets["recovered"] == gapft, "nothing to exchange where the states are the same"
    settings_ = Training(repetitions=4, micro_batch=1, accumulation=1)
    budgets = {
        Arm(name, seed): budget([build_example(e) for e in found], settings_)
        for name, found in sets.items()
    }
    require_similar_tokens(budgets, tokens)
    assert {(b.n, b.exposures, b.steps) for b in budgets.values()} == {(n, 4 * n, 4 * n)}
    for name, found in sets.items():
        if name != "repeated" and by == BY:
            assert most_apart(strata(found), strata(gapft)) <= 1, name
    fewer = [*{e.problem_id: e for e in sets.get("repeated", gapft)}.values()]
    assert {e.problem_id for e in fewer} <= {e.problem_id for e in gapft}
    if "repeated" in sets and by == BY:
        whole, part = strata(gapft), strata(fewer)
        assert len(fewer) == n // times
        assert all(abs(times * part[of] - count) < times for of, count in whole.items())


@given(PROBLEMS, PROBLEMS, SEEDS)
def test_without_tokens_the_first_of_each_stratum_are_taken_and_with_them_no_more_is_exchanged(
    solved: list[Any], recovered: list[Any], seed: int
) -> None:
    solved += [(s, of, 3) for s in "ab" for of in (1, 2) for _ in recovered]  # enough of each
    of, n = pool(solved, recovered), len(recovered)
    gapft = chosen(of, "gapft", n, seed)
    first = chosen(of, "matched_strata", n, seed, states="G", by=BY, tokens=None)
    assert strata(first) == strata(gapft)
    drawn = chosen(of, "replay", len(solved), seed)
    for stratum, count in strata(gapft).items():
        there = [e for e in drawn if strata([e]) == {stratum: 1}]
        assert [e for e in first if strata([e]) == {stratum: 1}] == there[:count]
    sums = [sum(count_supervised_tokens(e) for e in found) for found in (first, gapft)]
    if abs(sums[0] - sums[1]) <= 0.1 * sums[1]:
        assert chosen(of, "matched_strata", n, seed, states="G", by=BY, tokens=0.2) == first


def test_tokens_are_matched_by_exchange_and_refused_with_the_figures_where_they_cannot_be() -> None:
    long = [("a", 1, 50)] * 10
    of = pool([("a", 1, 10)] * 20 + [("a", 1, 90)] * 20, long)
    found = chosen(of, "matched_strata", 10, 13, states="G", by=BY)
    assert abs(sum(count_supervised_tokens(e) for e in found) - 510) <= 5.1
    few = pool([("a", 1, 10)] * 20, long)
    with pytest.raises(
        UserError, match=r"states: G.*slots have 510, .* 110 \(possible: 110 to 110"
    ):
        chosen(few, "matched_strata", 10, 13, states="G", by=BY)
    even = pool([("a", 1, 40), ("a", 1, 61)], long[:1])  # 41 and 62 against 51
    with pytest.raises(
        UserError, match=r"41 to 62.*nearest selection found (41|62); expected within 1"
    ):
        chosen(even, "matched_strata", 1, 13, states="G")


def test_which_tokens_count_are_those_that_training_supervises() -> None:
    ended, cut = evidence("S0", "S", 4), evidence("S1", "S", 4)
    assert cut.response is not None
    cut = replace(cut, response=replace(cut.response, finish_reason="length"))
    of = [ended, cut, evidence("U0", "U")]
    plan = Training(repetitions=1)
    assert [count_supervised_tokens(e) for e in of] == [5, 4, 0]
    assert budget([build_example(ended), build_example(cut)], plan).supervised_tokens == 9


def searched(name: str, greedy: list[int], passing: dict[int, list[int]]) -> Evidence:
    """A recovered failure with its greedy response's ids and those of its passing samples."""
    responses = [Response(name, i, "t", tuple(ids), "stop", 0) for i, ids in passing.items()]
    kept = replace(evidence(name, "S"), response=responses[0])
    failed = Response(name, GREEDY, "t", tuple(greedy), "stop", 0)
    each = tuple(replace(kept, response=response) for response in responses)
    return replace(kept, read_verified=lambda _: each, read_greedy=lambda _: failed)


def test_the_nearest_response_departs_latest_from_the_failed_one() -> None:
    made = searched("S0", [1, 2, 3, 4], {2: [9], 4: [1, 2, 9], 5: [1, 2, 8], 7: [2, 2, 3, 4]})
    of = group_by_state([made])
    (found,) = chosen(of, "matched_strata", 1, 13, states="S", responses="nearest", tokens=None)
    assert found.response is not None
    assert found.response.index == 4  # of two that share as much the first
    unknown = group_by_state([evidence("S0", "S")])
    with pytest.raises(UserError, match="greedy response to problem S0 is unknown"):
        chosen(unknown, "matched_strata", 1, 13, states="S", responses="nearest")


def test_a_drawn_response_is_any_that_passed_and_the_problems_are_gapfts() -> None:
    of = group_by_state([searched(f"S{i}", [1], {0: [1], 3: [2], 6: [3]}) for i in range(30)])
    found = chosen(of, "matched_strata", 20, 13, states="S", responses="drawn")
    assert {e.response.index for e in found if e.response} == {0, 3, 6}, "each of one token"
    gapft = chosen(of, "gapft", 20, 13)
    assert [e.problem_id for e in found] == [e.problem_id for e in gapft]
    assert found != chosen(of, "matched_strata", 20, 13, states="S")


@given(
    st.lists(st.lists(st.integers(1, 60), min_size=2, max_size=4), min_size=12, max_size=30),
    SEEDS,
    st.sampled_from(["drawn", "nearest"]),
    st.booleans(),
)
def test_tokens_are_matched_by_other_responses_before_other_problems(
    lengths: list[list[int]], seed: int, responses: str, spare: bool
) -> None:
    of = group_by_state(
        [
            searched(f"S{i}", [1] * 60, {index: [1] * (tokens - 1) + [index + 2]
                                         for index, tokens in enumerate(each)})
            for i, each in enumerate(lengths)
        ]
    )  # fmt: skip
    n = len(lengths) - 2 * spare
    asked: dict[str, Any] = {"states": "S", "responses": responses}
    gapft, drawn = (
        chosen(of, name, n, seed, **params)
        for name, params in (("gapft", {}), ("matched_strata", {**asked, "tokens": None}))
    )
    target, first = (sum(count_supervised_tokens(e) for e in found) for found in (gapft, drawn))
    wide = max(abs(first - target) / target, 0.01)
    same = chosen(of, "matched_strata", n, seed, **asked, tokens=min(2.01 * wide, 0.99))
    assert wide > 0.49 or same == drawn, "none is exchanged without need"
    found = chosen(of, "matched_strata", n, seed, **asked, tokens=0.5)
    assert abs(sum(count_supervised_tokens(e) for e in found) - target) <= 0.25 * target
    assert [e.problem_id for e in found] == [e.problem_id for e in gapft]


def test_solved_problems_with_drawn_responses_are_exchanged_where_responses_do_not_suffice() -> (
    None
):
    def solved(name: str, tokens: int) -> Evidence:
        ways = {0: [1] * tokens, 1: [2] * (tokens + 1)}
        return replace(searched(name, [1], ways), state="G")

    of = group_by_state(
        [
            *(solved(f"G{i:02}", 10 if i % 4 else 90) for i in range(40)),
            *(evidence(f"S{i}", "S", 50) for i in range(10)),
        ]
    )
    found = chosen(of, "matched_strata", 10, 13, states="G", responses="drawn")
    assert abs(sum(count_supervised_tokens(e) for e in found) - 510) <= 5.1


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"by": "subject"}, "by is 'subject', expected a list"),
        ({"by": [1]}, r"by is \[1\], expected a list"),
        (
            {"by": ["topic"]},
            "by names 'topic', which is not a text .* S0[0-2]; its fields: subject, level",
        ),
        ({"tokens": 2}, "tokens is 2, expected a share between 0 and 1"),
        ({"tokens": True}, "tokens is True"),
        ({"states": "U"}, "states is 'U', expected 'G', 'S' or 'GS'"),
        ({"responses": "any"}, "responses is 'any', expected one of 'kept', 'drawn', 'nearest'"),
    ],
)
def test_parameters_that_are_none_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        chosen(pool([("a", 1, 4)] * 3, [("a", 1, 4)] * 3), "matched_strata", 2, 13, **params)


def test_a_stratum_that_is_too_small_is_named_with_its_counts() -> None:
    of = pool([("a", 1, 4)] * 9 + [("b", 2, 4)], [("b", 2, 4)] * 3)
    with pytest.raises(UserError, match=r"1 of 1 strata .*\(b, 2: 1 of 3\).*more than one is"):
        chosen(of, "matched_strata", 3, 13, states="G", by=BY)
    of = pool([("b", 2, 4)] * 2, [("b", 2, 4)] * 3)
    with pytest.raises(UserError, match="only 0 others"):
        chosen(of, "matched_strata", 3, 13, states="G", by=BY)
