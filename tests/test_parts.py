"""Response files are read as stored or refused; lines of several files are merged."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.records import GREEDY, Attempt, Verdict
from gapft_harness.hooks.protocols import Generated, Generation
from gapft_harness.stages.generation.stored_files import (
    DraftResponses,
    FileHead,
    ProblemResponses,
    Record,
    StoredResponses,
    build_file,
    build_response_records,
    build_verdict_record,
    build_verdict_records,
    read_head,
    read_part,
    select_responses,
)
from tests.asking import make_request

RUN = "/runs/pasta"


def build_answer(*texts: str) -> Generated:
    return Generated((1, 2, 3), tuple(Generation(text, (4, 5), "stop") for text in texts))


def build_records(problems: Sequence[str], indices: Sequence[int], *texts: str) -> list[Record]:
    """Build the records of one call in which each problem gets the same responses."""
    requests = [make_request(name, "?", indices) for name in problems]
    return list(build_response_records(requests, [build_answer(*texts)] * len(problems)))


SAMPLES = [
    *build_records("ab", (0, 1), "p", "ü\n"),
    *build_verdict_records({"a": {GREEDY: Verdict("fail", "why"), 1: Verdict("pass")}}),
    build_verdict_record(
        "b", [(0, Verdict("timeout", "busy"), "p"), (1, Verdict("pass"), None)], ["x"]
    ),
]
PART = build_file(SAMPLES, RUN)


@contextmanager
def write_parts(*contents: bytes) -> Iterator[list[Path]]:
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.jsonl" for number in range(len(contents))]
        for path, content in zip(paths, contents, strict=True):
            path.write_bytes(content)
        yield paths


def read_entries(paths: Sequence[Path]) -> list[ProblemResponses]:
    responses = StoredResponses()
    for path in paths:
        responses.add(path)
    return list(responses.read(["a", "b"]))


def test_merges_files_in_index_order() -> None:
    greedy = build_file(build_records("ab", (GREEDY,), "x"))
    late = build_file(build_records("b", (2,), "q"))
    with write_parts(late, PART, greedy) as paths:
        a, b = read_entries(paths)
    assert [(r.index, r.text) for r in a.responses] == [(GREEDY, "x"), (0, "p"), (1, "ü\n")]
    assert [(r.index, r.text) for r in b.responses] == [
        (GREEDY, "x"), (0, "p"), (1, "ü\n"), (2, "q"),
    ]  # fmt: skip
    assert [r.seed for r in a.responses] == list(make_request("a", "?", (GREEDY, 0, 1)).seeds)
    assert a.prompt_ids == (1, 2, 3)
    assert a.verdicts == {GREEDY: Verdict("fail", "why"), 1: Verdict("pass")}
    assert (a.answers, a.differing) == ({}, None)
    assert b.verdicts == {0: Verdict("timeout", "busy"), 1: Verdict("pass")}
    assert (b.answers, b.differing) == ({0: "p", 1: None}, ("x",))


def test_keeps_executions_with_verdicts_of_another_run() -> None:
    rows = [(GREEDY, Verdict("error", "?"), "p"), (0, Verdict("fail", "no"), "q")]
    content = build_file([build_verdict_record("a", rows, ["verdicts_differ"])], RUN)
    with write_parts(build_file(SAMPLES[:2]), content) as (samples, verdicts):
        for run, answers, differing in (
            (RUN, {GREEDY: "p", 0: "q"}, ("verdicts_differ",)),
            ("/runs/other", {0: "q"}, None),
        ):
            responses = StoredResponses()
            responses.add(samples)
            responses.add_verdicts(verdicts, run)
            [entry] = responses.read(["a"])
            assert (entry.answers, entry.differing) == (answers, differing)
            assert entry.verdicts.keys() == answers.keys()


def test_joins_attempts_of_an_episode() -> None:
    first = build_records("a", (0, 1), "bad", "good")
    so_far = [Attempt("bad", (4, 5), "stop", "no")]
    again = build_response_records([make_request("a", "?", (0,), so_far)], [build_answer("better")])
    draft = DraftResponses()
    draft.add([*first, *again])
    [entry] = draft.read(["a"])
    assert [(r.text, [*r.attempts]) for r in entry.responses] == [("better", so_far), ("good", [])]
    with write_parts(build_file([*first, *again])) as paths:
        assert read_entries(paths)[0] == entry
        assert read_head(paths[0]).responses == 3, "attempts are counted one by one"


def test_file_records_its_run_and_size() -> None:
    with write_parts(PART, build_file([])) as (path, empty):
        head = StoredResponses().add(path)
        assert head == read_head(path)
        assert (head.run, head.responses) == (RUN, 4)
        assert [problem_id for problem_id, _ in head.places] == ["a", "b", "a", "b"]
        assert read_part(path) == [_as_json(record) for record in SAMPLES]
        nothing = StoredResponses().add(empty)
        assert nothing == FileHead("", 0, nothing.sha256, ())
        assert read_part(empty) == []


def _as_json(record: Record) -> dict[str, object]:
    """Convert tuples to lists."""
    content: dict[str, object] = json.loads(json.dumps(record))
    return content


@given(place=st.integers(0, len(PART) - 1), mask=st.integers(1, 255))
def test_detects_changed_bytes(place: int, mask: int) -> None:
    changed = bytearray(PART)
    changed[place] ^= mask
    check_refused_or_unchanged(bytes(changed))


@given(cut=st.integers(0, len(PART) - 1))
def test_rejects_truncated_files(cut: int) -> None:
    with write_parts(PART[:cut]) as (path,), pytest.raises(UserError, match=r"0\.jsonl"):
        StoredResponses().add(path)


@given(st.data())
def test_detects_lost_and_doubled_bytes(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(PART) - 1))
    end = data.draw(st.integers(start + 1, len(PART)))
    check_refused_or_unchanged(PART[:start] + PART[end:])
    check_refused_or_unchanged(PART[:end] + PART[start:])


def check_refused_or_unchanged(content: bytes) -> None:
    """Read a file in every supported way and check the result."""
    for read in (StoredResponses().add, read_part, lambda path: read_entries([path])):
        with write_parts(content, PART) as (path, whole):
            restored, message = None, ""
            try:
                restored = read(path)
            except UserError as error:
                message = str(error)
            assert restored == read(whole) or "0.jsonl" in message


@pytest.mark.parametrize(
    "head",
    [
        b"", b"null", b"[]", b'"text"', b"{}", b'{"sha256":"0"}', b"\xff",
        b'{"run":"","responses":1e999,"problems":[],"sha256":"0"}',
        b'{"run":"","responses":0,"problems":[["a",1e999]],"sha256":"0"}',
        b'{"run":"\\ud800","responses":0,"problems":[],"sha256":"0"}',
    ],
)  # fmt: skip
def test_rejects_files_of_another_kind(head: bytes) -> None:
    with write_parts(head + b"\n") as (path,):
        for read in (StoredResponses().add, read_part):
            with pytest.raises(UserError, match=r"0\.jsonl"):
                read(path)
        if b'"run"' not in head or b"1e999" in head:
            with pytest.raises(UserError, match=r"0\.jsonl"):
                read_head(path)


def test_names_missing_files(tmp_path: Path) -> None:
    for read in (StoredResponses().add, read_part, read_head):
        with pytest.raises(UserError, match=r"lost\.jsonl"):
            read(tmp_path / "lost.jsonl")


@pytest.mark.parametrize("given_texts", [[], ["one"], ["one", "two", "three"]])
def test_rejects_wrong_number_of_responses(given_texts: list[str]) -> None:
    with pytest.raises(GapftError, match="problem a, expected 2"):
        build_response_records([make_request("a", "?", (0, 1))], [build_answer(*given_texts)])


calls = st.lists(
    st.tuples(st.sampled_from("abc"), st.sets(st.integers(GREEDY, 6), min_size=1).map(sorted)),
    max_size=6,
)


@given(calls, st.lists(st.sampled_from([0, 1, 2]), min_size=8, max_size=8))
def test_splits_lines_by_index_without_loss(
    calls: list[tuple[str, list[int]]], phase_of: list[int]
) -> None:
    """Each response is in the part for its index, and the parts together hold all responses."""
    records = [
        record
        for name, indices in calls
        for record in build_records([name], indices, *(f"{name}{index}" for index in indices))
    ]
    parts = [
        select_responses(records, [i for i in range(GREEDY, 7) if phase_of[i + 1] == part])
        for part in range(3)
    ]
    for number, part in enumerate(parts):
        assert all(record["responses"] for record in part)
        assert {phase_of[r[0] + 1] for record in part for r in record["responses"]} <= {number}

    def flatten(records: Sequence[Record]) -> list[tuple[str, list[object], tuple[int, ...]]]:
        return sorted(
            (record["problem_id"], response, record["prompt_ids"])
            for record in records
            for response in record["responses"]
        )

    assert flatten([record for part in parts for record in part]) == flatten(records)
    assert select_responses(records, range(GREEDY, 7)) == records
