"""The shared core: examples common to all conditions, and those that differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Arm, Evidence, Pool
from gapft_harness.core.streams import Stream
from gapft_harness.experiments.controls.search import find_differences
from gapft_harness.plugins.selectors.shared_core import core_depth, match_repeats
from gapft_harness.stages.selection.budgets import require_matched
from gapft_harness.stages.selection.choosing import build_example, group_by_state
from gapft_harness.training.plan import budget
from tests.plugins.test_gold_labels import LETTERS, build_failure, gold_letter
from tests.plugins.test_replacing_replay import select_examples
from tests.pools import build_evidence
from tests.training.examples import settings

K = 8
SEEDS = st.sampled_from([13, 21, 42])
LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=20)


def build_pool(recovered: str | list[str], missed: str | list[str], solved: list[int]) -> Pool:
    """Build failures that first pass at samples 0 to 7 in turn, and solved problems."""
    problems = [
        replace(
            build_failure(i, "S", letter),
            first_success=i % K,
            samples=K,
            prompt_ids=(9,) * (8 + i % 5),
        )
        for i, letter in enumerate(recovered)
    ]
    problems += [
        replace(build_failure(i, "U", letter), samples=K) for i, letter in enumerate(missed)
    ]
    problems += [
        replace(build_evidence(f"G{i:02}", "G"), prompt_ids=(7,) * length)
        for i, length in enumerate(solved)
    ]
    return group_by_state(problems)


def select_at_depth(pool: Pool, n: int, seed: int, k: int) -> list[Evidence]:
    return [*core_depth(pool, n, Stream(seed, "select/core_depth"), k)]


def count_tokens(selection: list[Evidence]) -> int:
    return budget([build_example(e) for e in selection], settings(max_length=64)).tokens


@given(LETTERS, LETTERS, LENGTHS, SEEDS, st.data())
def test_selectors_share_core_and_differ_beside_it(
    recovered: list[str], missed: list[str], solved: list[int], seed: int, data: st.DataObject
) -> None:
    pool = build_pool(recovered, missed, solved)
    beside = data.draw(st.integers(1, len(recovered)))
    n, core = len(solved) + beside, [*pool.solved]
    gapft, gold = (select_examples(pool, name, beside, seed) for name in ("gapft", "gold_labels"))
    depths = [select_at_depth(pool, n, seed, k) for k in range(K + 1)]
    with_gold = select_examples(pool, "core_gold", n, seed)
    for selection in (*depths, with_gold, select_at_depth(pool, n, seed + 1, 1)):
        assert selection[: len(core)] == core, "example for example, under every seed"
    assert depths[K] == [*core, *gapft] == select_examples(pool, "core_depth", n, seed, k=K)
    assert with_gold == [*core, *gold]
    for k, selection in enumerate(depths):
        for slot, (example, deepest, shallowest) in enumerate(
            zip(selection, depths[K], depths[0], strict=True)
        ):
            within = slot < len(core) or (deepest.first_success or 0) < k
            assert example == (deepest if within else shallowest), (
                "a slot holds its failure or its repeat"
            )
    assert {e.state for e in depths[0]} == {"G"}
    counts = Counter(e.problem_id for e in depths[0])
    assert max(counts.values()) - min(counts.values()) <= 1, "repeats cycle through the core"


@given(LETTERS, LETTERS, LENGTHS, SEEDS, st.integers(1, 3))
def test_budgets_match_and_gold_labels_keep_targets(
    recovered: list[str], missed: list[str], solved: list[int], seed: int, repetitions: int
) -> None:
    pool = build_pool(recovered, missed, solved)
    n, training = len(pool.verified), settings(repetitions=repetitions, max_length=64)
    selections = [select_at_depth(pool, n, seed, k) for k in (0, 1, K)]
    selections.append(select_examples(pool, "core_gold", n, seed))
    examples = [[build_example(e) for e in selection] for selection in selections]
    budgets = [budget(training_set, training) for training_set in examples]
    require_matched({Arm(str(i), seed): total for i, total in enumerate(budgets)})
    golds = {e.problem_id: e.gold for e in (*pool.solved, *pool.recovered, *pool.missed)}
    assert list(find_differences(examples[2], examples[3], golds, training)) == []
    assert Counter(map(gold_letter, selections[3][len(solved) :])) == Counter(recovered)


@given(LETTERS, st.integers(0, 5), SEEDS, st.data())
def test_repeats_match_token_counts_where_possible(
    recovered: list[str], more: int, seed: int, data: st.DataObject
) -> None:
    """With a solved problem of each failure's length, all depths process equal tokens."""
    plain = build_pool(recovered, "", [1])
    own = example_size(build_evidence("G", "G")) - len(build_evidence("G", "G").prompt_ids)
    other = data.draw(st.lists(st.integers(1, 9), min_size=more, max_size=more))
    pool = build_pool(recovered, "", [*(example_size(e) - own for e in plain.recovered), *other])
    n = len(pool.verified)
    sizes = {count_tokens(select_at_depth(pool, n, seed, k)) for k in range(K + 1)}
    assert len(sizes) == 1


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), LENGTHS, SEEDS)
def test_repeat_is_nearest_in_size_to_failure(
    sizes: list[int], solved: list[int], seed: int
) -> None:
    pool = build_pool("A", "", solved)
    slots = [
        replace(build_evidence(f"S{i}", "S"), prompt_ids=(1,) * w) for i, w in enumerate(sizes)
    ]
    left: list[Evidence] = []
    owed = 0
    for failure_, repeat in zip(slots, match_repeats(pool, slots, seed), strict=True):
        left = left or [*pool.solved]
        owed += example_size(failure_)
        assert abs(owed - example_size(repeat)) == min(abs(owed - example_size(e)) for e in left)
        left.remove(repeat)
        owed -= example_size(repeat)


def example_size(example: Evidence) -> int:
    assert example.response is not None
    return len(example.prompt_ids) + len(example.response.token_ids) + example.ended


def test_repeats_depend_on_seed() -> None:
    pool = build_pool("A" * 6, "", [5] * 30)
    first, again, other = (
        {e.problem_id for e in select_at_depth(pool, 36, seed, 0)[30:]} for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize("selector", ["core_depth", "core_gold"])
def test_rejects_budget_outside_core_and_pool(selector: str) -> None:
    params = {"k": 1} if selector == "core_depth" else {}
    message = "the core holds all 4 solved problems of the pool, so n = 4"
    with pytest.raises(UserError, match=message):
        select_examples(build_pool("AB", "A", [3] * 4), selector, 4, 13, **params)
    with pytest.raises(UserError, match=r"cannot draw 3 examples.* 1 too few"):
        select_examples(build_pool("AB", "A", [3] * 4), selector, 7, 13, **params)


def test_rejects_invalid_depth_and_empty_core() -> None:
    with pytest.raises(UserError, match="'core_depth': k is 9, expected an integer from 0 to 8"):
        select_examples(build_pool("AB", "A", [3]), "core_depth", 2, 13, k=9)
    assert len(select_examples(build_pool("AB", "", []), "core_depth", 2, 13, k=8)) == 2
    with pytest.raises(UserError, match="cannot fill the budget of 2 examples"):
        select_examples(build_pool("AB", "", []), "core_depth", 2, 13, k=0)
