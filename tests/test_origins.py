"""Examples with another problem's verified response, as the paper's gold-label control has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import PluginError
from gapft_harness.core.records import Arm, Evidence, Pool, Response
from gapft_harness.core.streams import Stream
from gapft_harness.hooks.registration import Registration, SelectorTraits
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.selection.choosing import build_example, run_selector
from gapft_harness.stages.verify.run import verify
from tests.pools import evidence, group_by_state, pool
from tests.test_selection import LettersAndMore, task
from tests.verify.tampering import change_rows

__all__ = ["task"]

LENDING = """
from dataclasses import replace

from gapft_harness import hookimpl


def lent(pool, n, rng):
    \"\"\"Every recovered failure gets the response of the next one of the same answer.\"\"\"
    drawn = pool.draw(pool.recovered, n, rng)
    classes = [[e for e in drawn if e.gold == letter] for letter in "aeiou"]
    pairs = [pair for of in classes for pair in zip(of, of[1:] + of[:1])]
    return [replace(e, response=other.response) for e, other in pairs]


@hookimpl
def register_selectors(register):
    register("lent", lent, responses="borrowed")
    register("unsaid", lent)
"""


def mine(select: Any, **options: Any) -> Registration:
    return Registration("selector", "mine", "mine.py", select, SelectorTraits(**options))


def chosen(select: Any, source: Pool, n: int, **options: Any) -> list[Evidence]:
    return run_selector(select, mine(select, **options), source, n, Arm("mine", 13))


@given(st.integers(1, 8), st.integers(0, 8), st.integers(1, 8), st.data())
def test_a_lent_response_keeps_problem_prompt_and_says_its_origin(
    solved: int, recovered: int, missed: int, data: st.DataObject
) -> None:
    source = pool(solved, recovered, missed)
    everyone = [*source.verified, *source.missed]
    taken = data.draw(st.lists(st.sampled_from(everyone), min_size=1, unique_by=id))
    lenders = [data.draw(st.sampled_from(source.verified)) for _ in taken]

    def lending(p: Pool, n: int, rng: Stream) -> list[Evidence]:
        pairs = zip(taken, lenders, strict=True)
        return [replace(one, response=other.response) for one, other in pairs]

    found = chosen(lending, source, len(taken), responses="borrowed")
    for example, one, other in zip(map(build_example, found), taken, lenders, strict=True):
        assert other.response is not None
        assert (example.problem_id, example.state) == (one.problem_id, one.state)
        assert (example.origin, example.response_ids) == (
            other.problem_id,
            other.response.token_ids,
        )
        assert example.prompt_ids == one.prompt_ids


def to_another(e: Evidence, other: Evidence, **more: Any) -> Evidence:
    return replace(e, response=other.response, **more)


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (
            lambda p, n, r: [to_another(p.missed[0], p.solved[0])],
            "the response of problem G000 to problem U000; register it with responses='borrowed'",
        ),
        (
            lambda p, n, r: [replace(p.solved[0], response=Response("x", 0, "", (1,), "stop", 0))],
            "problem G000 that is not its verified evidence",
        ),
    ],
)
def test_a_loan_must_be_declared(select: Any, expected: str) -> None:
    with pytest.raises(PluginError, match=expected):
        chosen(select, pool(3, 3), 1)


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (
            lambda p, n, r: [to_another(p.missed[0], p.solved[0], prompt_ids=(7,))],
            "problem U000 changed in more than its response",
        ),
        (
            lambda p, n, r: [replace(p.missed[0], response=Response("x", 0, "", (1,), "stop", 0))],
            "problem U000 with a response that no other problem's evidence has",
        ),
        (
            lambda p, n, r: [
                replace(p.missed[0], response=replace(p.solved[0].response, problem_id="S000"))
            ],
            "problem U000 with a response that no other problem's evidence has",
        ),
        (
            lambda p, n, r: [replace(p.missed[0], response=replace(p.solved[0].response, seed=9))],
            "problem U000 with a response that no other problem's evidence has",
        ),
        (lambda p, n, r: [p.missed[0]], "without a response to train on"),
    ],
)
def test_what_is_lent_is_a_verified_response_as_it_is(select: Any, expected: str) -> None:
    with pytest.raises(PluginError, match=expected):
        chosen(select, pool(3, 3), 1, responses="borrowed")


def test_an_old_table_reads_as_each_problems_own(task: LettersAndMore) -> None:
    run = task.select(conditions=["gapft"], budget={"n": 6})
    path = run.path / "selections/gapft-seed13.parquet"
    before = read_examples(path)
    assert {e.origin == e.problem_id for e in before} == {True}
    pq.write_table(pq.read_table(path).drop_columns(["origin"]), path)
    assert read_examples(path) == before


class Lending(LettersAndMore):
    @property
    def plugins(self) -> list[str]:
        return [*super().plugins, str(self.folder / "lending.py")]


@pytest.fixture
def lending(task: LettersAndMore) -> Lending:
    (task.folder / "lending.py").write_text(LENDING)
    return Lending(task.folder)


def test_origins_are_sealed_and_verified(lending: Lending) -> None:
    run = lending.select(conditions=["lent"], budget={"n": 14})
    examples = read_examples(run.path / "selections/lent-seed13.parquet")
    assert any(e.origin != e.problem_id for e in examples)
    assert verify(run.path, lending.plugins).differences == []
    relative = "selections/lent-seed13.parquet"
    slot = next(i for i, e in enumerate(examples) if e.origin != e.problem_id)

    def forge(origin: str) -> list[str]:
        was = examples[slot].origin
        change_rows(run.path, relative, lambda rows: rows[slot].update(origin=origin))
        found = verify(run.path, lending.plugins).differences
        change_rows(run.path, relative, lambda rows: rows[slot].update(origin=was))
        return found

    where = f"{relative}: slot {slot}, problem {examples[slot].problem_id}: "
    assert (
        forge("nobody")[0]
        == f"{where}has the response of problem nobody, which has no passing response"
    )
    others = [e for e in examples if e.response_ids != examples[slot].response_ids]
    assert forge(others[0].problem_id)[0].startswith(
        f"{where}does not match the evidence in the states table; differing: response_ids"
    )
    alike = [e.problem_id for e in examples if e.response_ids == examples[slot].response_ids]
    other = next(i for i in alike if i not in (examples[slot].origin, examples[slot].problem_id))
    assert forge(other)[0] == (
        f"{where}is not the example that its selector chooses; differing: origin"
    )


def test_a_selector_that_does_not_say_so_is_refused_and_a_forged_origin_told(
    lending: Lending,
) -> None:
    with pytest.raises(PluginError, match="register it with responses='borrowed'"):
        lending.select(conditions=["unsaid"], budget={"n": 6})
    run = lending.select(conditions=["gapft"], budget={"n": 6})
    relative = "selections/gapft-seed13.parquet"
    other = read_examples(run.path / relative)[1].problem_id
    change_rows(run.path, relative, lambda rows: rows[0].update(origin=other))
    (found,) = verify(run.path, lending.plugins).differences
    assert found.endswith(
        f"has the response of problem {other}, and its selector is not registered with "
        "responses='borrowed'"
    )


def test_a_lent_response_ends_as_it_ended() -> None:
    source = group_by_state([evidence("a", "G"), evidence("b", "U")])
    assert source.solved[0].response is not None
    cut = replace(source.solved[0].response, finish_reason="length")
    assert build_example(replace(source.missed[0], response=cut)).ended is False
