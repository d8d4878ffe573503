"""Training examples that use another problem's verified response (the gold-label control)."""

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
from tests.kit.tampering import change_rows
from tests.pools import build_evidence, build_pool, group_by_state
from tests.test_selection import LettersAndMore, task

__all__ = ["task"]

LENDING = """
from dataclasses import replace

from gapft_harness.api import hookimpl


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


def register_selector(select: Any, **options: Any) -> Registration:
    return Registration("selector", "mine", "mine.py", select, SelectorTraits(**options))


def select_evidence(select: Any, source: Pool, n: int, **options: Any) -> list[Evidence]:
    return run_selector(select, register_selector(select, **options), source, n, Arm("mine", 13))


@given(st.integers(1, 8), st.integers(0, 8), st.integers(1, 8), st.data())
def test_borrowed_response_keeps_problem_and_prompt(
    solved: int, recovered: int, missed: int, data: st.DataObject
) -> None:
    source = build_pool(solved, recovered, missed)
    everyone = [*source.verified, *source.missed]
    borrowers = data.draw(st.lists(st.sampled_from(everyone), min_size=1, unique_by=id))
    lenders = [data.draw(st.sampled_from(source.verified)) for _ in borrowers]

    def lend(p: Pool, n: int, rng: Stream) -> list[Evidence]:
        pairs = zip(borrowers, lenders, strict=True)
        return [replace(borrower, response=lender.response) for borrower, lender in pairs]

    selected = select_evidence(lend, source, len(borrowers), responses="borrowed")
    for example, borrower, lender in zip(
        map(build_example, selected), borrowers, lenders, strict=True
    ):
        assert lender.response is not None
        assert (example.problem_id, example.state) == (borrower.problem_id, borrower.state)
        assert (example.origin, example.response_ids) == (
            lender.problem_id,
            lender.response.token_ids,
        )
        assert example.prompt_ids == borrower.prompt_ids


def borrow_response(e: Evidence, other: Evidence, **more: Any) -> Evidence:
    return replace(e, response=other.response, **more)


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (
            lambda p, n, r: [borrow_response(p.missed[0], p.solved[0])],
            r"G000 .*U000.*responses='borrowed'",
        ),
        (
            lambda p, n, r: [replace(p.solved[0], response=Response("x", 0, "", (1,), "stop", 0))],
            "problem G000 that is not its verified evidence",
        ),
    ],
)
def test_undeclared_borrowing_is_an_error(select: Any, expected: str) -> None:
    with pytest.raises(PluginError, match=expected):
        select_evidence(select, build_pool(3, 3), 1)


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        (
            lambda p, n, r: [borrow_response(p.missed[0], p.solved[0], prompt_ids=(7,))],
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
def test_borrowed_response_must_be_verified_and_unchanged(select: Any, expected: str) -> None:
    with pytest.raises(PluginError, match=expected):
        select_evidence(select, build_pool(3, 3), 1, responses="borrowed")


def test_old_table_defaults_to_own_origin(task: LettersAndMore) -> None:
    run = task.select(conditions=["gapft"], budget={"n": 6})
    path = run.path / "selections/gapft-seed13.parquet"
    examples = read_examples(path)
    assert {e.origin == e.problem_id for e in examples} == {True}
    pq.write_table(pq.read_table(path).drop_columns(["origin"]), path)
    assert read_examples(path) == examples


class LendingLetters(LettersAndMore):
    @property
    def plugins(self) -> list[str]:
        return [*super().plugins, str(self.folder / "lending.py")]


@pytest.fixture
def lending_task(task: LettersAndMore) -> LendingLetters:
    (task.folder / "lending.py").write_text(LENDING)
    return LendingLetters(task.folder)


def test_origins_are_sealed_and_verified(lending_task: LendingLetters) -> None:
    run = lending_task.select(conditions=["lent"], budget={"n": 14})
    examples = read_examples(run.path / "selections/lent-seed13.parquet")
    assert any(e.origin != e.problem_id for e in examples)
    assert verify(run.path, lending_task.plugins).differences == []
    relative = "selections/lent-seed13.parquet"
    slot = next(i for i, e in enumerate(examples) if e.origin != e.problem_id)

    def forge(origin: str) -> list[str]:
        true_origin = examples[slot].origin
        change_rows(run.path, relative, lambda rows: rows[slot].update(origin=origin))
        differences = verify(run.path, lending_task.plugins).differences
        change_rows(run.path, relative, lambda rows: rows[slot].update(origin=true_origin))
        return differences

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


def test_undeclared_borrowing_and_forged_origins_are_found(
    lending_task: LendingLetters,
) -> None:
    with pytest.raises(PluginError, match="register it with responses='borrowed'"):
        lending_task.select(conditions=["unsaid"], budget={"n": 6})
    run = lending_task.select(conditions=["gapft"], budget={"n": 6})
    relative = "selections/gapft-seed13.parquet"
    other = read_examples(run.path / relative)[1].problem_id
    change_rows(run.path, relative, lambda rows: rows[0].update(origin=other))
    (difference,) = verify(run.path, lending_task.plugins).differences
    assert difference.endswith(
        f"has the response of problem {other}, and its selector is not registered with "
        "responses='borrowed'"
    )


def test_borrowed_response_keeps_its_end() -> None:
    source = group_by_state([build_evidence("a", "G"), build_evidence("b", "U")])
    assert source.solved[0].response is not None
    cut = replace(source.solved[0].response, finish_reason="length")
    assert build_example(replace(source.missed[0], response=cut)).ended is False
