"""Faulty logs: the error names file and line, and nothing is compared."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.core.errors import UserError
from gapft_harness.verdicts.log_files import find_runs
from tests.compare.logs import row, write_log


def read_error(before: object, *after: object, **choice: Any) -> str:
    with pytest.raises(UserError) as caught:
        compare(str(before), [str(log) for log in after], CompareChoice(**choice))
    return str(caught.value)


@pytest.fixture
def before(tmp_path: Path) -> Path:
    return write_log(tmp_path / "before", [0, 1, 0, 1])


def change_line(lines: list[dict[str, Any]], index: int, **changes: Any) -> list[dict[str, Any]]:
    return [line | changes if i == index else line for i, line in enumerate(lines)]


ROWS = [row(i, 1) for i in range(4)]

#: By fault: the rows after, and what the message contains besides the file.
ROW_FAULTS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no number": (change_line(ROWS, 2, exact_match="1"), "line 3: metric 'exact_match' is \"1\""),
    "a list": (change_line(ROWS, 1, exact_match=[1, 2]), "line 2: metric 'exact_match' is [1, 2]"),
    "401 digits": (
        change_line(ROWS, 1, exact_match=10**400),
        "line 2: metric 'exact_match' is 1000",
    ),
    "no finite sum": (
        change_line(ROWS, 1, exact_match=1e300),
        "line 2: metric 'exact_match' is 1e+300",
    ),
    "NaN": (change_line(ROWS, 1, exact_match=float("nan")), "line 2: metric 'exact_match' is NaN"),
    "no document": ([*ROWS[:3], {"filter": "none", "metrics": ["x"]}], "line 4: has no doc"),
    "a document of text": (change_line(ROWS, 0, doc="q0"), "line 1: doc: found str"),
    "a document twice": ([*ROWS, ROWS[1]], "line 5: duplicate document (doc_id 1)"),
    "a document missing": (ROWS[:3], "lacks 1 of 4 documents (the first: "),
    "a document more": ([*ROWS, row(9, 1)], "line 5, doc_id 9"),
    "other documents": ([row(i, 1) for i in range(20, 24)], "no common document"),
    "another filter": ([r | {"filter": "strict"} for r in ROWS], "no row under filter 'none'"),
    "no row": ([], "no row under filter"),
}


@pytest.mark.parametrize("fault", ROW_FAULTS)
def test_rejects_faulty_rows(before: Path, tmp_path: Path, fault: str) -> None:
    rows, message = ROW_FAULTS[fault]
    after = write_log(tmp_path / "after", rows=rows)
    error = read_error(before, after)
    assert message in error
    assert str(after) in error


def test_rejects_unknown_metrics_and_fields(before: Path, tmp_path: Path) -> None:
    after = write_log(tmp_path / "after", [1] * 4)
    unnamed = write_log(tmp_path / "unnamed", rows=change_line(ROWS, 0, metrics=[]))
    assert "line 1: names no metrics" in read_error(unnamed, after)
    assert "unknown metric 'acc'; " in read_error(before, after, metric="acc")
    assert "no row under filter 'exact'" in read_error(before, after, filter="exact")
    error = read_error(before, after, cluster="pasage")
    assert "line 1: doc has no field 'pasage'" in error
    assert "did you mean 'passage'?" in error
    assert "no field 'topic'" in read_error(before, after, by="topic")
    assert "no field 'id'" in read_error(before, after, on=["id"])


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
def test_rejects_damaged_files(
    before: Path, tmp_path: Path, damage: Callable[[bytes], bytes], message: str
) -> None:
    after = write_log(tmp_path / "after", [1] * 4)
    after.write_bytes(damage(after.read_bytes()))
    error = read_error(after, before)
    assert message in error
    assert str(after) in error


def test_rejects_different_tasks_and_versions(before: Path, tmp_path: Path) -> None:
    error = read_error(before, write_log(tmp_path / "b", [1] * 4, task="other"))
    assert "has the tasks toy, " in error
    assert "has other; expected the same tasks" in error
    error = read_error(before, write_log(tmp_path / "c", [1] * 4, version=2))
    assert "has version 1" in error
    renamed = write_log(tmp_path / "d", [1] * 4, version=2).rename(tmp_path / "renamed.jsonl")
    notes = compare(str(before), [str(renamed)], CompareChoice()).notes
    assert any("versions of the task are not compared" in note.text for note in notes)


def test_rejects_missing_and_ambiguous_logs(before: Path, tmp_path: Path) -> None:
    assert "nowhere: no such file" in read_error(before, tmp_path / "nowhere")
    assert "matches no file" in read_error(before, tmp_path / "nowhere*")
    (tmp_path / "empty").mkdir()
    assert "contains no samples_*.jsonl" in read_error(before, tmp_path / "empty")
    second = write_log(tmp_path / "before", [1] * 4, date="2026-02-02T00-00-00.1")
    error = read_error(tmp_path / "before", second)
    assert "two logs of task toy in one run" in error
    assert "--seeds" in error
    assert "expected one run, found 2" in read_error(f"{tmp_path}/before/samples_*.jsonl", second)
    assert "named twice" in read_error(before, second, second, seeds=True)
    assert "two models have the name" in read_error(before, second, second)
    assert "no log of task 'tot'; did you mean 'toy'?" in read_error(before, second, tasks=["tot"])
    groups = write_log(tmp_path / "many", rows=[row(i, 0) for i in range(1200)])
    assert "1,200 groups" in read_error(groups, groups, by="question")


def test_rejects_unusable_source_samples(before: Path, tmp_path: Path) -> None:
    after = write_log(tmp_path / "after", [1] * 4)

    def read_samples_error(rows: list[dict[str, Any]]) -> str:
        path = write_log(tmp_path / "samples", rows=rows)
        return read_error(before, after, source_samples=[str(path)])

    def build_row(number: int, *statuses: str) -> dict[str, Any]:
        return row(number, 0, verdicts=[{"status": status} for status in statuses])

    assert "no samples of 1 of 4" in read_samples_error(
        [build_row(i, "pass", "fail") for i in range(3)]
    )
    uneven = [build_row(i, "pass", *["fail"] * (i < 3)) for i in range(4)]
    assert "line 4: found 1 samples of this document and 2 of another" in read_samples_error(uneven)
    assert "line 5: duplicate document" in read_samples_error([*uneven, uneven[0]])
    passk = [row(i, 0, resps=[["a", "b", "c"]], **{"pass@1": 0.4}) for i in range(4)]
    assert "line 1: pass@1 is 0.4 over 3 responses" in read_samples_error(passk)
    assert "exact_match is 0.5, expected 0 or 1; samples need verdicts" in read_samples_error(
        [row(i, 0.5) for i in range(4)]
    )
    numbers = write_log(tmp_path / "numbers", [0.5] * 4)
    assert "expected one of 0 or 1" in read_error(numbers, after, source_samples=[str(before)])


def test_sample_formats_give_equal_states(before: Path, tmp_path: Path) -> None:
    """Compare verdicts of our tasks, pass@1 of a stock task, and one log per sample."""
    passing = [2, 0, 1, 0]
    after = write_log(tmp_path / "after", [1] * 4)
    samples = {
        "verdicts": [
            row(i, 0, verdicts=[{"status": s} for s in ["pass"] * c + ["timeout"] * (2 - c)])
            for i, c in enumerate(passing)
        ],
        "pass": [row(i, 0, resps=[["x", "y"]], **{"pass@1": c / 2}) for i, c in enumerate(passing)],
    }
    samples_choices = [
        [str(write_log(tmp_path / name, rows=rows))] for name, rows in samples.items()
    ]
    separate_logs = [write_log(tmp_path / f"k{k}", [int(c > k) for c in passing]) for k in (0, 1)]
    results = []
    for samples_choice in [
        *samples_choices,
        [f"{tmp_path}/k*"],
        [str(path) for path in separate_logs],
    ]:
        comparison = compare(
            str(before), [str(after)], CompareChoice(source_samples=samples_choice)
        )
        assert comparison.samples is not None
        assert comparison.findings.states is not None
        results.append(
            (comparison.samples.passing.tolist(), comparison.samples.k,
             comparison.findings.states.tolist())
        )  # fmt: skip
    assert all(result == results[0] for result in results)
    states = dict(zip((item[1] for item in comparison.items), results[0][2], strict=True))
    by_question = {
        json.loads(line)["doc"]["question"]: comparison.before.contents[number]
        for number, line in enumerate(before.read_text().splitlines())
    }
    assert [states[by_question[f"q{i}"]] for i in range(4)] == ["S", "G", "S", "G"]


def test_rejects_ambiguous_join_fields(tmp_path: Path) -> None:
    rows = [row(i, 1, doc_id=0) for i in range(4)]
    path = write_log(tmp_path / "a", rows=rows)
    assert "choose fields for --on" in read_error(path, path, on=["passage"])


@pytest.mark.parametrize("name", ["lr=1e-4", "out[1]", "a=b[2]", "what?", "x=y"])
def test_accepts_special_characters_in_paths(
    before: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Test the path alone, after a model name, and in a pattern."""
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        write_log(tmp_path / f"{name}_seed{seed}", [1] * 4)
        write_log(tmp_path / name / f"seed{seed}", [1] * 4)
    for argument, model, seeds in (
        (f"{name}_seed1", f"{name}_seed1", 1),
        (f"tuned={name}_seed1", "tuned", 1),
        (f"{name.replace('[', '[[]')}_seed*", None, 2),
        (f"{name}/seed*", None, 2),
        (f"tuned={name}/seed*", "tuned", 2),
    ):
        comparison = compare(str(before), [argument], CompareChoice())
        (paired,) = comparison.findings.models.values()
        assert (paired.before, paired.after, paired.seeds) == (0.5, 1.0, seeds), argument
        assert model in (None, *comparison.findings.models), argument


def test_reads_model_name_before_path(before: Path, tmp_path: Path) -> None:
    after = write_log(tmp_path / "after", [1] * 4).parent
    (model,) = compare(str(before), [f"tuned={after}"], CompareChoice()).findings.models
    assert model == "tuned"
    assert "matches no file" in read_error(before, f"tuned={tmp_path}/nothing*")


def test_log_search_ignores_vanished_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As below /proc. An unreadable folder is an error, since it may contain logs."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "b/samples_t.jsonl").touch()
    really, failing = os.scandir, FileNotFoundError(errno.ENOENT, "gone", str(tmp_path / "a"))

    def scandir(path: str) -> object:
        if str(path) == str(tmp_path / "a"):
            raise failing
        return really(path)

    monkeypatch.setattr(os, "scandir", scandir)
    [run] = find_runs(str(tmp_path))
    assert [log.path for log in run.logs] == [tmp_path / "b/samples_t.jsonl"]
    failing = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "a"))
    with pytest.raises(UserError, match=str(tmp_path / "a")):
        find_runs(str(tmp_path))
