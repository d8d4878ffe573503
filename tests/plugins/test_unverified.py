"""Training without the verifier: samples drawn without their verdicts, and failed samples."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import PoolTooSmallError, UserError
from gapft_harness.core.records import (
    STATUSES,
    Arm,
    Evidence,
    Pool,
    Response,
    Status,
    classify_state,
)  # fmt: skip
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.tables import read_examples, read_judged
from gapft_harness.stages.selection.choosing import group_by_state
from tests.kit.tampering import seal_again
from tests.plugins.test_replacing_replay import select_examples
from tests.pools import build_evidence
from tests.test_changed_recipe import ChangingLetters, write_task

K = 4
SEEDS = st.sampled_from([13, 21, 73])
#: The statuses of K samples, for each of several problems.
SAMPLES = st.lists(
    st.lists(st.sampled_from(STATUSES), min_size=K, max_size=K), min_size=1, max_size=8
)


def build_problem(
    name: str, statuses: list[Status], solved: bool, empty: frozenset[int] = frozenset()
) -> Evidence:
    """Build a problem with K samples; those with a number in ``empty`` have no tokens."""
    state = classify_state(solved, [status == "pass" for status in statuses])
    problem = replace(build_evidence(name, state), samples=K)
    samples = tuple(
        (
            replace(
                problem,
                response=Response(name, i, "", () if i in empty else (1, 2 + i), "stop", 0),
            ),
            status,
        )
        for i, status in enumerate(statuses)
    )
    return replace(problem, read_samples=lambda _: samples)


def build_pool(statuses: list[list[Status]], solved: int = 0) -> Pool:
    """Build a pool of problems; the first ``solved`` are solved."""
    return group_by_state(
        [build_problem(f"p{i}", each, i < solved) for i, each in enumerate(statuses)]
    )


@given(SAMPLES, st.integers(0, 8), SEEDS, st.data())
def test_unverified_draw_does_not_depend_on_verdicts(
    statuses: list[list[Status]], solved: int, seed: int, data: st.DataObject
) -> None:
    n = data.draw(st.integers(1, len(statuses)))
    others = data.draw(
        st.lists(
            st.lists(st.sampled_from(STATUSES), min_size=K, max_size=K),
            min_size=len(statuses), max_size=len(statuses),
        )
    )  # fmt: skip
    drawn, drawn_again = (
        [(e.problem_id, e.response) for e in select_examples(pool, "unverified", n, seed)]
        for pool in (build_pool(statuses, solved), build_pool(others, 8 - solved))
    )
    assert drawn == drawn_again


@given(SAMPLES, SEEDS)
def test_smaller_draw_is_prefix_of_larger_one(statuses: list[list[Status]], seed: int) -> None:
    pool = build_pool(statuses, solved=1)
    whole = select_examples(pool, "unverified", len(statuses), seed)
    for n in range(1, len(statuses)):
        assert select_examples(pool, "unverified", n, seed) == whole[:n]


def test_unverified_draws_problems_and_samples_uniformly() -> None:
    pool = build_pool([["fail"] * K, ["pass"] * K, ["fail", "pass"] * 2], solved=1)
    counts = Counter[tuple[str, int]]()
    for seed in range(3000):
        (drawn,) = select_examples(pool, "unverified", 1, seed)
        assert drawn.response
        counts[drawn.problem_id, drawn.response.index] += 1
    assert len(counts) == 3 * K
    assert all(abs(count - 250) < 80 for count in counts.values())  # 5 standard deviations


@given(SAMPLES, st.integers(0, 4), SEEDS, st.data())
def test_wrong_draws_failed_samples_of_unsolved_problems(
    statuses: list[list[Status]], solved: int, seed: int, data: st.DataObject
) -> None:
    failed = {f"p{i}": each for i, each in enumerate(statuses) if i >= solved}
    candidates = {name for name, each in failed.items() if {"fail", "timeout"} & {*each}}
    pool, n = build_pool(statuses, solved), data.draw(st.integers(1, len(statuses)))
    if n > len(candidates):
        with pytest.raises(UserError, match=rf"only {len(candidates)} of {len(failed)} problems"):
            select_examples(pool, "wrong", n, seed)
        return
    drawn = select_examples(pool, "wrong", n, seed)
    assert len({e.problem_id for e in drawn} & candidates) == n
    for example in drawn:
        assert example.response
        assert failed[example.problem_id][example.response.index] in ("fail", "timeout")


def test_empty_samples_are_not_drawn() -> None:
    pool = group_by_state(
        [
            build_problem("a", ["fail"] * K, False, frozenset({0, 1, 3})),
            build_problem("b", ["fail"] * K, False, frozenset(range(K))),
        ]
    )
    for name in ("unverified", "wrong"):
        (drawn,) = select_examples(pool, name, 1, 13)
        assert drawn.response
        assert (drawn.problem_id, drawn.response.index) == ("a", 2)
        with pytest.raises(UserError, match="only 1 of 2 problems"):
            select_examples(pool, name, 2, 13)


def test_shortage_is_its_own_error() -> None:
    from gapft_harness.core.streams import Stream
    from gapft_harness.plugins.selectors.unverified import wrong

    with pytest.raises(PoolTooSmallError):
        wrong(build_pool([["pass"] * K]), 1, Stream(13, "select/wrong"))


CONDITIONS = {"gapft": {}, "unverified": {}, "wrong": {}}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> ChangingLetters:
    letters_run = write_task(tmp_path_factory.mktemp("unverified"))
    letters_run.change(conditions=CONDITIONS, budget={"n": 8}, search={"k": 3, "chunk": 20})
    return letters_run


def read_drawn_statuses(letters_run: ChangingLetters, arm: Arm) -> list[str]:
    """Return the stored verdicts of the responses that an arm trains on, slot by slot."""
    run = letters_run.folder / "r"
    statuses = {
        (judged.response.problem_id, judged.response.index): judged.verdict.status
        for _, rows in read_judged(run / layout.responses_path("pool"))
        for judged in rows
    }
    examples = read_examples(run / layout.selection_path(arm))
    return [statuses[e.problem_id, e.response_index] for e in examples]


def test_run_trains_on_unverified_samples_at_equal_budget(finished_run: ChangingLetters) -> None:
    assert finished_run.find_differences() == []
    results = finished_run.results()["conditions"]
    for seed in (13, 21):
        seeds = {name: results[name]["seeds"][str(seed)] for name in CONDITIONS}
        assert (
            len({(s["budget"]["n"], s["budget"]["N"], s["budget"]["J"]) for s in seeds.values()})
            == 1
        )
        assert "unverified" not in seeds["gapft"]
        for name in ("unverified", "wrong"):
            statuses = read_drawn_statuses(finished_run, Arm(name, seed))
            assert len(statuses) == 8
            assert seeds[name].get("unverified", 0) == 8 - statuses.count("pass")
        assert seeds["wrong"]["unverified"] == 8
    report = (finished_run.folder / "r/report/report.md").read_text("utf-8")
    assert "train on responses that did not pass: unverified in " in report


@pytest.mark.parametrize("name", ["unverified", "wrong"])
def test_verify_detects_exchanged_sample(
    finished_run: ChangingLetters, tmp_path: Path, name: str
) -> None:
    """Another sample of the same problem, with the same tokens, is not the one that was drawn."""
    forged = ChangingLetters(Path(shutil.copytree(finished_run.folder, tmp_path / "copy")))
    run, relative = forged.folder / "r", layout.selection_path(Arm(name, 13))
    table = pq.read_table(run / relative)
    rows = table.to_pylist()
    responses = {
        judged.response.index: judged.response
        for _, judged_rows in read_judged(run / layout.responses_path("pool"))
        for judged in judged_rows
        if judged.response.problem_id == rows[0]["problem_id"]
    }
    other = next(
        response for index, response in responses.items()
        if index >= 0 and index != rows[0]["response_index"]
    )  # fmt: skip
    rows[0] |= {"response_ids": list(other.token_ids), "response_index": other.index}
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), run / relative)
    seal_again(run, relative)
    differences = forged.find_differences()
    assert any("slot 0" in line and rows[0]["problem_id"] in line for line in differences)
