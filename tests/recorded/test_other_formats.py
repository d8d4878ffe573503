"""Sample logs of lm_eval, with greedy responses and samples in separate files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.run_directory.recorded import read_searches
from gapft_harness.run_directory.tables import read_judged
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.recorded.made import Line, get_states, search_logs, write_lines

#: Greedy, sample 0, sample 1, sample 2: G, S by the second sample, U.
VERDICTS = [[1, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
STATES = {"pool0": "G", "pool1": "S", "pool2": "U"}


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=3, audit=3)


def read_documents(task: LettersTask) -> list[Line]:
    return [json.loads(line) for line in (task.folder / "tasks/pool.jsonl").open()]


def build_log_row(document: Line, texts: list[str], **keys: Any) -> Line:
    """Build a row as lm_eval logs it; its doc_id is not used."""
    return {
        "doc_id": 7, "doc": document, "resps": [texts], "filtered_resps": texts, "filter": "none",
        "metrics": [key for key in keys if key != "verdicts"], **keys,
    }  # fmt: skip


def build_text(column: int, row: int) -> str:
    return f"{column} of {row}"


def build_greedy_log(task: LettersTask) -> list[Line]:
    strict_rows = [
        build_log_row(doc, [build_text(0, row)], exact_match=float(VERDICTS[row][0]))
        for row, doc in enumerate(read_documents(task))
    ]
    flexible_rows = [{**row, "filter": "flexible", "exact_match": 1.0} for row in strict_rows]
    return [row for pair in zip(reversed(strict_rows), flexible_rows, strict=True) for row in pair]


def build_samples_log(task: LettersTask) -> list[Line]:
    return [
        build_log_row(
            doc,
            [build_text(column, row) for column in (1, 2, 3)],
            verdicts=[{"status": "pass" if v else "fail", "reason": ""} for v in VERDICTS[row][1:]],
            **{"pass@1": sum(VERDICTS[row][1:]) / 3},
        )
        for row, doc in enumerate(read_documents(task))
    ]


def build_log_per_sample(task: LettersTask) -> list[list[Line]]:
    return [
        [
            build_log_row(doc, [build_text(column, row)], exact_match=VERDICTS[row][column])
            for row, doc in enumerate(read_documents(task))
        ]
        for column in (1, 2, 3)
    ]


@pytest.mark.parametrize("repeats", [True, False])
def test_imports_greedy_and_sample_logs(task: LettersTask, model: Path, repeats: bool) -> None:
    """Rows have K responses with verdicts, or each sample has its own log, in command order."""
    greedy = write_lines(task.folder / "greedy.jsonl", build_greedy_log(task))
    logs = [build_samples_log(task)] if repeats else build_log_per_sample(task)
    files = [write_lines(task.folder / f"{i}.jsonl", log) for i, log in enumerate(logs)]
    run = search_logs(task, model, "run", files, greedy=greedy, k=3)
    assert get_states(run) == STATES
    for problem_id, judged in read_judged(run.path / "pool/responses.parquet"):
        row = int(problem_id.removeprefix("pool").partition("-")[0])
        assert [entry.response.text for entry in judged] == [build_text(c, row) for c in range(4)]
    facts = read_searches(run)["pool"]["imported"]
    assert {file_facts["format"] for file_facts in facts["files"]} == {"lm-eval"}
    assert [file_facts["holds"] for file_facts in facts["files"]] == [
        "greedy",
        *["samples"] * len(files),
    ]


def test_rejects_unusable_logs(task: LettersTask, model: Path) -> None:
    """Repeated logs, several responses as a greedy one, and mixed formats."""
    greedy = write_lines(task.folder / "greedy.jsonl", build_greedy_log(task))
    file = write_lines(task.folder / "samples.jsonl", build_samples_log(task))
    copy = write_lines(task.folder / "copy.jsonl", build_samples_log(task))
    for files, choice, message in (
        (
            [file, copy],
            {"greedy": greedy},
            f"{copy}: is given twice, or has the same bytes as {file}",
        ),
        ([greedy], {"greedy": file}, f"{file}, line 1: found 3 responses to one document"),
        (
            [write_lines(task.folder / "p.jsonl", [{"id": "x", "text": "x"}]), file],
            {"greedy": greedy},
            "plain JSON lines together with another format",
        ),
    ):
        with pytest.raises(UserError) as refused:
            search_logs(task, model, "run", files, k=3, **choice)  # type: ignore[arg-type]
        assert message in str(refused.value)


def test_requires_same_filter_and_metric(task: LettersTask, model: Path) -> None:
    """With different filters or metrics a greedy response could fail while equal samples pass."""
    rows, logs = build_greedy_log(task), build_log_per_sample(task)
    swapped = write_lines(task.folder / "g.jsonl", [rows[i ^ 1] for i in range(len(rows))])
    files = [write_lines(task.folder / f"{i}.jsonl", log) for i, log in enumerate(logs)]
    with pytest.raises(UserError) as refused:
        search_logs(task, model, "run", files, greedy=swapped, k=3)
    assert str(refused.value).startswith(
        f"{files[0]}, line 1: its verdict comes from filter 'none', but that of {swapped}, line 1 "
        "from 'flexible'"
    )
    run = search_logs(task, model, "run", files, greedy=swapped, k=3, filter="none")
    assert get_states(run) == STATES
    rows_with_acc = [{**row, "acc": 1.0, "metrics": ["acc", "exact_match"]} for row in rows]
    greedy = write_lines(task.folder / "g.jsonl", rows_with_acc)
    with pytest.raises(
        UserError, match=r"from metric 'exact_match', .* from 'acc'.*responses\.metric"
    ):
        search_logs(task, model, "metrics", files, greedy=greedy, k=3)
    search_logs(task, model, "metrics", files, greedy=greedy, k=3, metric="exact_match")
