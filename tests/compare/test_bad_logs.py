"""What is wrong with a log is told by file and line, and nothing is compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.core.errors import UserError
from tests.compare.logs import row, write


def refused(before: object, *after: object, **choice: Any) -> str:
    with pytest.raises(UserError) as caught:
        compare(str(before), [str(one) for one in after], CompareChoice(**choice))
    return str(caught.value)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return write(tmp_path / "before", [0, 1, 0, 1])


def changed(lines: list[dict[str, Any]], at: int, **changes: Any) -> list[dict[str, Any]]:
    return [line | changes if i == at else line for i, line in enumerate(lines)]


ROWS = [row(i, 1) for i in range(4)]

#: What is wrong with the rows after, and what the message says besides the file.
ROW_FAULTS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no number": (changed(ROWS, 2, exact_match="1"), "line 3: metric 'exact_match' is \"1\""),
    "a list": (changed(ROWS, 1, exact_match=[1, 2]), "line 2: metric 'exact_match' is [1, 2]"),
    "401 digits": (changed(ROWS, 1, exact_match=10**400), "line 2: metric 'exact_match' is 1000"),
    "no finite sum": (
        changed(ROWS, 1, exact_match=1e300),
        "line 2: metric 'exact_match' is 1e+300",
    ),
    "NaN": (changed(ROWS, 1, exact_match=float("nan")), "line 2: metric 'exact_match' is NaN"),
    "no document": ([*ROWS[:3], {"filter": "none", "metrics": ["x"]}], "line 4: has no doc"),
    "a document of text": (changed(ROWS, 0, doc="q0"), "line 1: doc: found str"),
    "a document twice": ([*ROWS, ROWS[1]], "line 5: duplicate document (doc_id 1)"),
    "a document missing": (ROWS[:3], "lacks 1 of 4 documents (the first: "),
    "a document more": ([*ROWS, row(9, 1)], "line 5, doc_id 9"),
    "other documents": ([row(i, 1) for i in range(20, 24)], "no common document"),
    "another filter": ([r | {"filter": "strict"} for r in ROWS], "no row under filter 'none'"),
    "no row": ([], "no row under filter"),
}


@pytest.mark.parametrize("fault", ROW_FAULTS)
def test_faults_of_rows(before: Path, tmp_path: Path, fault: str) -> None:
    rows, message = ROW_FAULTS[fault]
    after = write(tmp_path / "after", rows=rows)
    told = refused(before, after)
    assert message in told
    assert str(after) in told


def test_a_metric_or_field_that_is_not_there(before: Path, tmp_path: Path) -> None:
    after = write(tmp_path / "after", [1] * 4)
    unnamed = write(tmp_path / "unnamed", rows=changed(ROWS, 0, metrics=[]))
    assert "line 1: names no metrics" in refused(unnamed, after)
    assert "unknown metric 'acc'; " in refused(before, after, metric="acc")
    assert "no row under filter 'exact'" in refused(before, after, filter="exact")
    told = refused(before, after, cluster="pasage")
    assert "line 1: doc has no field 'pasage'" in told
    assert "did you mean 'passage'?" in told
    assert "no field 'topic'" in refused(before, after, by="topic")
    assert "no field 'id'" in refused(before, after, on=["id"])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:-30], "line 4: malformed JSON"),
        (lambda text: text.replace(b'"doc_id": 2', b'"doc_id": \xff'), "line 3: expected UTF-8"),
        (lambda text: b"[1]\n" + text, "line 1: found list, expected a JSON object"),
        (lambda text: b"", "is empty"),
    ],
    ids=["truncated", "no UTF-8", "no object", "empty"],
)
def test_damaged_files(
    before: Path, tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    after = write(tmp_path / "after", [1] * 4)
    after.write_bytes(damage(after.read_bytes()))
    told = refused(after, before)
    assert message in told
    assert str(after) in told


def test_other_tasks_and_versions(before: Path, tmp_path: Path) -> None:
    told = refused(before, write(tmp_path / "b", [1] * 4, task="other"))
    assert "has the tasks toy, " in told
    assert "has other; expected the same tasks" in told
    told = refused(before, write(tmp_path / "c", [1] * 4, version=2))
    assert "has version 1" in told
    renamed = write(tmp_path / "d", [1] * 4, version=2).rename(tmp_path / "renamed.jsonl")
    notes = compare(str(before), [str(renamed)], CompareChoice()).notes
    assert any("versions of the task are not compared" in note.text for note in notes)


def test_places_that_name_no_run_or_too_many(before: Path, tmp_path: Path) -> None:
    assert "nowhere: no such file" in refused(before, tmp_path / "nowhere")
    assert "matches no file" in refused(before, tmp_path / "nowhere*")
    (tmp_path / "empty").mkdir()
    assert "contains no samples_*.jsonl" in refused(before, tmp_path / "empty")
    again = write(tmp_path / "before", [1] * 4, date="2026-02-02T00-00-00.1")
    told = refused(tmp_path / "before", again)
    assert "two logs of task toy in one run" in told
    assert "--seeds" in told
    assert "expected one run, found 2" in refused(f"{tmp_path}/before/samples_*.jsonl", again)
    assert "named twice" in refused(before, again, again, seeds=True)
    assert "two models have the name" in refused(before, again, again)
    assert "no log of task 'tot'; did you mean 'toy'?" in refused(before, again, tasks=["tot"])
    groups = write(tmp_path / "many", rows=[row(i, 0) for i in range(1200)])
    assert "1,200 groups" in refused(groups, groups, by="question")


def test_source_samples_that_do_not_tell(before: Path, tmp_path: Path) -> None:
    after = write(tmp_path / "after", [1] * 4)

    def told(rows: list[dict[str, Any]]) -> str:
        path = write(tmp_path / "samples", rows=rows)
        return refused(before, after, source_samples=[str(path)])

    def verdicts(number: int, *statuses: str) -> dict[str, Any]:
        return row(number, 0, verdicts=[{"status": status} for status in statuses])

    assert "no samples of 1 of 4" in told([verdicts(i, "pass", "fail") for i in range(3)])
    uneven = [verdicts(i, "pass", *["fail"] * (i < 3)) for i in range(4)]
    assert "line 4: found 1 samples of this document and 2 of another" in told(uneven)
    assert "line 5: duplicate document" in told([*uneven, uneven[0]])
    passk = [row(i, 0, resps=[["a", "b", "c"]], **{"pass@1": 0.4}) for i in range(4)]
    assert "line 1: pass@1 is 0.4 over 3 responses" in told(passk)
    assert "exact_match is 0.5, expected 0 or 1; samples need verdicts" in told(
        [row(i, 0.5) for i in range(4)]
    )
    numbers = write(tmp_path / "numbers", [0.5] * 4)
    assert "expected one of 0 or 1" in refused(numbers, after, source_samples=[str(before)])


def test_each_way_to_count_samples_gives_the_same_states(before: Path, tmp_path: Path) -> None:
    """Verdicts of our tasks, an unbiased pass@1 of a stock one, and one log for each sample."""
    passing = [2, 0, 1, 0]
    after = write(tmp_path / "after", [1] * 4)
    samples = {
        "verdicts": [
            row(i, 0, verdicts=[{"status": s} for s in ["pass"] * c + ["timeout"] * (2 - c)])
            for i, c in enumerate(passing)
        ],
        "pass": [row(i, 0, resps=[["x", "y"]], **{"pass@1": c / 2}) for i, c in enumerate(passing)],
    }
    places = [[str(write(tmp_path / name, rows=rows))] for name, rows in samples.items()]
    apart = [write(tmp_path / f"k{k}", [int(c > k) for c in passing]) for k in (0, 1)]
    found = []
    for place in [*places, [f"{tmp_path}/k*"], [str(path) for path in apart]]:
        comparison = compare(str(before), [str(after)], CompareChoice(source_samples=place))
        assert comparison.samples is not None
        assert comparison.findings.states is not None
        found.append(
            (comparison.samples.passing.tolist(), comparison.samples.k,
             comparison.findings.states.tolist())
        )  # fmt: skip
    assert all(one == found[0] for one in found)
    states = dict(zip((item[1] for item in comparison.items), found[0][2], strict=True))
    by_question = {
        json.loads(line)["doc"]["question"]: comparison.before.contents[number]
        for number, line in enumerate(before.read_text().splitlines())
    }
    assert [states[by_question[f"q{i}"]] for i in range(4)] == ["S", "G", "S", "G"]


def test_fields_that_do_not_tell_documents_apart(tmp_path: Path) -> None:
    rows = [row(i, 1, doc_id=0) for i in range(4)]
    path = write(tmp_path / "a", rows=rows)
    assert "choose fields for --on" in refused(path, path, on=["passage"])


@pytest.mark.parametrize("name", ["lr=1e-4", "out[1]", "a=b[2]", "what?", "x=y"])
def test_a_path_stands_for_itself_whatever_signs_it_holds(
    before: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is, with a name before it, and in a pattern."""
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        write(tmp_path / f"{name}_seed{seed}", [1] * 4)
        write(tmp_path / name / f"seed{seed}", [1] * 4)
    for argument, model, seeds in (
        (f"{name}_seed1", f"{name}_seed1", 1),
        (f"tuned={name}_seed1", "tuned", 1),
        (f"{name.replace('[', '[[]')}_seed*", None, 2),
        (f"{name}/seed*", None, 2),
        (f"tuned={name}/seed*", "tuned", 2),
    ):
        found = compare(str(before), [argument], CompareChoice())
        (paired,) = found.findings.models.values()
        assert (paired.before, paired.after, paired.seeds) == (0.5, 1.0, seeds), argument
        assert model in (None, *found.findings.models), argument


def test_a_name_counts_where_nothing_has_the_whole_of_it(before: Path, tmp_path: Path) -> None:
    after = write(tmp_path / "after", [1] * 4).parent
    (model,) = compare(str(before), [f"tuned={after}"], CompareChoice()).findings.models
    assert model == "tuned"
    assert "matches no file" in refused(before, f"tuned={tmp_path}/nothing*")
