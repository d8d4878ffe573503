"""The shared core: what all conditions hold, what differs beside it, and the paper's numbers."""

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
from tests.plugins.test_gold_labels import LETTERS, failure, letter
from tests.plugins.test_replacing_replay import chosen
from tests.pools import evidence
from tests.training.examples import settings

K = 8
SEEDS = st.sampled_from([13, 21, 42])
LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=20)


def pool(recovered: str | list[str], missed: str | list[str], solved: list[int]) -> Pool:
    """Recovered failures first pass at samples 0 to 7 by turns; solved prompts of some lengths."""
    found = [
        replace(failure(i, "S", of), first_success=i % K, samples=K, prompt_ids=(9,) * (8 + i % 5))
        for i, of in enumerate(recovered)
    ]
    found += [replace(failure(i, "U", of), samples=K) for i, of in enumerate(missed)]
    found += [
        replace(evidence(f"G{i:02}", "G"), prompt_ids=(7,) * length)
        for i, length in enumerate(solved)
    ]
    return group_by_state(found)


def at_depth(of: Pool, n: int, seed: int, k: int) -> list[Evidence]:
    return [*core_depth(of, n, Stream(seed, "select/core_depth"), k)]


def tokens(of: list[Evidence]) -> int:
    return budget([build_example(e) for e in of], settings(max_length=64)).tokens


@given(LETTERS, LETTERS, LENGTHS, SEEDS, st.data())
def test_the_core_is_the_same_and_only_what_stands_beside_it_differs(
    recovered: list[str], missed: list[str], solved: list[int], seed: int, data: st.DataObject
) -> None:
    of = pool(recovered, missed, solved)
    beside = data.draw(st.integers(1, len(recovered)))
    n, core = len(solved) + beside, [*of.solved]
    gapft, gold = (chosen(of, name, beside, seed) for name in ("gapft", "gold_labels"))
    depths = [at_depth(of, n, seed, k) for k in range(K + 1)]
    with_gold = chosen(of, "core_gold", n, seed)
    for found in (*depths, with_gold, at_depth(of, n, seed + 1, 1)):
        assert found[: len(core)] == core, "example for example, under every seed"
    assert depths[K] == [*core, *gapft] == chosen(of, "core_depth", n, seed, k=K)
    assert with_gold == [*core, *gold]
    for k, found in enumerate(depths):
        for slot, (here, most, none) in enumerate(zip(found, depths[K], depths[0], strict=True)):
            within = slot < len(core) or (most.first_success or 0) < k
            assert here == (most if within else none), "a slot is its failure's, or its repeat's"
    assert {e.state for e in depths[0]} == {"G"}
    counts = Counter(e.problem_id for e in depths[0])
    assert max(counts.values()) - min(counts.values()) <= 1, "all come again before one does twice"


@given(LETTERS, LETTERS, LENGTHS, SEEDS, st.integers(1, 3))
def test_all_have_the_same_budget_and_gold_labels_gapfts_targets(
    recovered: list[str], missed: list[str], solved: list[int], seed: int, repetitions: int
) -> None:
    of = pool(recovered, missed, solved)
    n, told = len(of.verified), settings(repetitions=repetitions, max_length=64)
    sets = [at_depth(of, n, seed, k) for k in (0, 1, K)]
    sets.append(chosen(of, "core_gold", n, seed))
    examples = [[build_example(e) for e in one] for one in sets]
    budgets = [budget(one, told) for one in examples]
    require_matched({Arm(str(i), seed): one for i, one in enumerate(budgets)})
    golds = {e.problem_id: e.gold for e in (*of.solved, *of.recovered, *of.missed)}
    assert list(find_differences(examples[2], examples[3], golds, told)) == []
    assert Counter(map(letter, sets[3][len(solved) :])) == Counter(recovered)


@given(LETTERS, st.integers(0, 5), SEEDS, st.data())
def test_repeats_process_as_many_tokens_where_lengths_allow_it(
    recovered: list[str], more: int, seed: int, data: st.DataObject
) -> None:
    """A solved problem of each failure's length: then every depth processes the same."""
    plain = pool(recovered, "", [1])
    own = size(evidence("G", "G")) - len(evidence("G", "G").prompt_ids)
    other = data.draw(st.lists(st.integers(1, 9), min_size=more, max_size=more))
    of = pool(recovered, "", [*(size(e) - own for e in plain.recovered), *other])
    n = len(of.verified)
    sizes = {tokens(at_depth(of, n, seed, k)) for k in range(K + 1)}
    assert len(sizes) == 1


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), LENGTHS, SEEDS)
def test_a_repeat_is_the_nearest_to_its_failure_and_what_earlier_ones_lack(
    wanted: list[int], solved: list[int], seed: int
) -> None:
    of = pool("A", "", solved)
    slots = [replace(evidence(f"S{i}", "S"), prompt_ids=(1,) * w) for i, w in enumerate(wanted)]
    left: list[Evidence] = []
    owed = 0
    for failure_, repeat in zip(slots, match_repeats(of, slots, seed), strict=True):
        left = left or [*of.solved]
        owed += size(failure_)
        assert abs(owed - size(repeat)) == min(abs(owed - size(e)) for e in left)
        left.remove(repeat)
        owed -= size(repeat)


def size(of: Evidence) -> int:
    assert of.response is not None
    return len(of.prompt_ids) + len(of.response.token_ids) + of.ended


def test_a_seed_repeats_others() -> None:
    of = pool("A" * 6, "", [5] * 30)
    first, again, other = (
        {e.problem_id for e in at_depth(of, 36, seed, 0)[30:]} for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize("selector", ["core_depth", "core_gold"])
def test_a_budget_that_the_core_fills_alone_is_refused(selector: str) -> None:
    params = {"k": 1} if selector == "core_depth" else {}
    message = "the core holds all 4 solved problems of the pool, so n = 4"
    with pytest.raises(UserError, match=message):
        chosen(pool("AB", "A", [3] * 4), selector, 4, 13, **params)
    with pytest.raises(UserError, match=r"cannot draw 3 examples.* 1 too few"):
        chosen(pool("AB", "A", [3] * 4), selector, 7, 13, **params)


def test_a_depth_that_is_none_and_a_pool_without_solved_problems() -> None:
    with pytest.raises(UserError, match="'core_depth': k is 9, expected an integer from 0 to 8"):
        chosen(pool("AB", "A", [3]), "core_depth", 2, 13, k=9)
    assert len(chosen(pool("AB", "", []), "core_depth", 2, 13, k=8)) == 2
    with pytest.raises(UserError, match="cannot fill the budget of 2 examples"):
        chosen(pool("AB", "", []), "core_depth", 2, 13, k=0)
