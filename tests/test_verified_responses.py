"""Selectors can use all verified responses of a problem, which are read on demand."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import PluginError
from gapft_harness.core.records import GREEDY, Arm, Evidence, Response, Verdict
from gapft_harness.hooks.registration import Registration, SelectorTraits
from gapft_harness.run_directory.evidence import PoolResponses, read_evidence
from gapft_harness.run_directory.parquet import write_batches
from gapft_harness.run_directory.tables import build_response_row, read_examples, response_schema
from gapft_harness.stages.selection.choosing import group_by_state, run_selector
from gapft_harness.stages.verify.run import verify
from tests.kit.tampering import change_rows
from tests.pools import build_evidence
from tests.test_selection import LettersAndMore, task

__all__ = ["task"]

SELECTORS = """
from gapft_harness.api import hookimpl


def paths(pool, n, rng):
    \"\"\"All verified responses of as many recovered failures as fill the slots.\"\"\"
    drawn = pool.draw(pool.recovered, len(pool.recovered), rng)
    return [each for e in drawn for each in e.each_verified()][:n]


def last(pool, n, rng):
    return [e.each_verified()[-1] for e in pool.draw(pool.recovered, n, rng)]


@hookimpl
def register_selectors(register):
    register("paths", paths, repeats=True, responses="verified")
    register("last", last, responses="verified")
    register("unsaid", last)
"""


def build_response(
    name: str, index: int, tokens: int = 2, context: tuple[int, ...] = ()
) -> Response:
    ids = tuple(range(index + 1, index + 1 + tokens))
    return Response(name, index, f"text {index}", ids, "stop", 0, context_ids=context)


def write_table(path: Path, passed: dict[str, list[bool]], in_group: int, tokens: int = 2) -> None:
    """Write a table of greedy responses and samples, ``in_group`` problems per row group."""
    verdicts = (Verdict("fail"), Verdict("pass"))
    rows = {
        name: [
            build_response_row(build_response(name, i - 1, tokens), verdicts[p])
            for i, p in enumerate(outcomes)
        ]
        for name, outcomes in sorted(passed.items())
    }
    names = list(rows)
    groups = [names[at : at + in_group] for at in range(0, len(names), in_group)]
    write_batches(
        path, response_schema(), [[r for name in group for r in rows[name]] for group in groups]
    )


@given(
    st.dictionaries(
        st.text("ab~é", min_size=1, max_size=3),
        st.lists(st.booleans(), min_size=1, max_size=4),
        max_size=12,
    ),
    st.integers(1, 5),
    st.data(),
)
def test_passing_responses_are_read_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    passed: dict[str, list[bool]],
    in_group: int,
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("table") / "responses.parquet"
    write_table(path, passed, in_group)
    prompts = {name: (7, number) for number, name in enumerate(passed)}
    read = PoolResponses(path, prompts, conversation=True)
    for name in data.draw(st.permutations([*passed])):
        state = "G" if passed[name][0] else "S"
        problem = replace(build_evidence(name, state), read_verified=read.read_verified)
        right = [build_response(name, i - 1) for i, p in enumerate(passed[name]) if p]
        assert list(problem.verified) == right
        assert [e.prompt_ids for e in problem.each_verified()] == [prompts[name]] * len(right)
        assert {e.problem_id for e in problem.each_verified()} <= {name}


def test_keeps_two_row_groups_in_memory(tmp_path: Path) -> None:
    """40 row groups of 20 problems, 5 responses of 400 ids each: 0.16 MB a group."""
    names = [f"p{i:04d}" for i in range(800)]
    write_table(tmp_path / "r.parquet", dict.fromkeys(names, [True] * 5), 20, tokens=400)
    read = PoolResponses(tmp_path / "r.parquet", dict.fromkeys(names, (1,)), True)
    before, most = pa.total_allocated_bytes(), 0
    for name in names:
        assert (
            len(replace(build_evidence(name, "G"), read_verified=read.read_verified).verified) == 5
        )
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 6 * 20 * 5 * 400 * 4


def test_evidence_can_be_pickled(tmp_path: Path) -> None:
    write_table(tmp_path / "r.parquet", {"a": [False, True], "b": [True]}, 1)
    read = PoolResponses(tmp_path / "r.parquet", {"a": (1,), "b": (2,)}, True)
    original = replace(build_evidence("a", "S"), read_verified=read.read_verified)
    assert original.verified
    restored = pickle.loads(pickle.dumps(original))
    assert (restored, restored.verified) == (original, original.verified)


def test_unread_problem_knows_its_kept_response() -> None:
    (only,) = build_evidence("a", "S").verified
    assert only == build_evidence("a", "S").response
    assert build_evidence("b", "U").verified == ()


@pytest.mark.parametrize("conversation", [True, False])
def test_episode_responses_follow_their_own_conversations(
    tmp_path: Path, conversation: bool
) -> None:
    passing = [build_response("a", 0), build_response("a", 1, context=(5, 6))]
    rows = [build_response_row(passing_response, Verdict("pass")) for passing_response in passing]
    write_batches(tmp_path / "r.parquet", response_schema(), [rows])
    read = PoolResponses(tmp_path / "r.parquet", {"a": (1, 2)}, conversation)
    verified = replace(
        build_evidence("a", "S"), prompt_ids=(5, 6), read_verified=read.read_verified
    ).each_verified()
    assert [e.prompt_ids for e in verified] == [(1, 2), (5, 6) if conversation else (1, 2)]


def register_selector(**options: Any) -> Registration:
    return Registration("selector", "mine", "mine.py", lambda: None, SelectorTraits(**options))


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        ({}, {}, "a response to problem a other than its kept one; register it with responses='v"),
        ({"prompt_ids": (9,)}, {"responses": "verified"}, "problem a changed in more than its"),
        (
            {"response": build_response("a", 0)},
            {"responses": "verified"},
            "a response to problem a that is not its verified evidence",
        ),
        (
            {"response": build_response("b", 0)},
            {"responses": "verified"},
            r"problem b .*problem a;.*responses='borrowed'",
        ),
        ({}, {"responses": "verified"}, ""),
        ({}, {"responses": "borrowed"}, ""),
        ({"response": build_response("b", 0)}, {"responses": "borrowed"}, ""),
    ],
)
def test_using_another_response_must_be_declared(
    tmp_path: Path, change: dict[str, Any], options: dict[str, Any], expected: str
) -> None:
    """Samples 1 and 2 of "a" passed and 1 is kept; sample 0 of "b" passed, and greedy is kept."""
    write_table(tmp_path / "r.parquet", {"a": [False, False, True, True], "b": [True, True]}, 1)
    read = PoolResponses(tmp_path / "r.parquet", {"a": (1, 2, 3), "b": (1, 2, 3)}, True)
    kept_responses = {"a": build_response("a", 1), "b": build_response("b", GREEDY)}
    states = {"a": "S", "b": "G"}
    a, b = (
        replace(
            build_evidence(name, states[name]),
            response=kept_responses[name],
            read_verified=read.read_verified,
        )  # type: ignore[arg-type]
        for name in "ab"
    )
    other = replace(a, **{"response": build_response("a", 2), **change})

    def select(pool: Any, n: int, rng: Any) -> list[Evidence]:
        return [other]

    def run_selection() -> list[Evidence]:
        return run_selector(
            select, register_selector(**options), group_by_state([a, b]), 1, Arm("mine", 13)
        )

    if expected:
        with pytest.raises(PluginError, match=expected):
            run_selection()
    else:
        assert run_selection() == [other]


class DistinctLetters(LettersAndMore):
    @property
    def plugins(self) -> list[str]:
        return [*super().plugins, str(self.folder / "distinct.py")]


@pytest.fixture
def distinct_task(task: LettersAndMore) -> DistinctLetters:
    (task.folder / "distinct.py").write_text(SELECTORS)
    return DistinctLetters(task.folder)


def test_several_responses_per_problem_are_sealed_and_verified(
    distinct_task: DistinctLetters,
) -> None:
    """Samples 0, 1 and 3 of each recovered problem are right, and 1 is kept."""
    run = distinct_task.select(conditions=["gapft", "paths", "last"], budget={"n": 9})
    examples = {
        name: read_examples(run.path / f"selections/{name}-seed13.parquet")
        for name in ("paths", "last")
    }
    assert [e.response_index for e in examples["paths"]] == [0, 1, 3] * 3
    assert len({e.problem_id for e in examples["paths"]}) == 3
    assert [e.response_index for e in examples["last"]] == [3] * 9
    assert verify(run.path, distinct_task.plugins).differences == []
    relative = "selections/last-seed13.parquet"
    change_rows(run.path, relative, lambda rows: rows[2].update(response_index=0))
    assert any(
        "slot 2" in line and "does not match the evidence in the states table" in line
        for line in verify(run.path, distinct_task.plugins).differences
    )
    rows = examples["paths"][0]
    change_rows(
        run.path,
        relative,
        lambda table: table[2].update(response_index=0, response_ids=list(rows.response_ids)),
    )
    assert verify(run.path, distinct_task.plugins).differences


def test_undeclared_selector_is_refused(distinct_task: DistinctLetters) -> None:
    with pytest.raises(
        PluginError, match="other than its kept one; register it with responses='verif"
    ):
        distinct_task.select(conditions=["unsaid"], budget={"n": 3})


def test_reads_nothing_until_a_selector_asks(distinct_task: DistinctLetters) -> None:
    run = distinct_task.select(conditions=["gapft"], budget={"n": 3})
    evidence = read_evidence(run.path, "pool")
    (run.path / "pool/responses.parquet").unlink()
    assert [e.response for e in evidence if e.state == "S"]
    with pytest.raises(FileNotFoundError):
        evidence[0].each_verified()
