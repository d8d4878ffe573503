"""Searches with plain JSON lines; errors name the file and line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.core.weights import weights_hash
from gapft_harness.run_directory.recorded import (
    list_warnings,
    read_judges,
    read_searches,
    read_source,
)
from gapft_harness.run_directory.tables import IMPORTED_PREFIX, read_judged
from gapft_harness.stages.pipeline import run_stages
from gapft_harness.stages.verify.run import verify
from tests.kit.recording_run import LettersTask, write_letters_task
from tests.kit.runs import make_base_run
from tests.kit.tampering import read_rows
from tests.recorded.made import (
    VERDICTS,
    Line,
    build_lines,
    gather_responses,
    get_states,
    search_logs,
    write_lines,
)


@pytest.fixture
def task(tmp_path: Path) -> LettersTask:
    return write_letters_task(tmp_path, pool=3, audit=3)


def test_records_responses_of_logs(task: LettersTask, model: Path) -> None:
    """Texts, ids and verdicts come from the file, whose lines may have any order.

    Verification judges again and counts differences.
    """
    lines = build_lines(VERDICTS)
    lines[0]["finish_reason"] = "length"
    random.Random(0).shuffle(lines)
    file = write_lines(task.folder / "r.jsonl", lines)
    run = search_logs(task, model, "run", [file])
    assert read_searches(run)["pool"]["finish_reasons"] == {"length": 1, "unknown": 8}
    for problem_id, judged in read_judged(run.path / "pool/responses.parquet"):
        row = int(problem_id.removeprefix("pool").partition("-")[0])
        assert [int(j.verdict.passed) for j in judged] == VERDICTS[row]
        for column, response in enumerate(judged):
            assert response.verdict.reason == IMPORTED_PREFIX
            assert response.response.text == f"pool {row}, {column}{'!' * (column % 3)}"
            assert response.response.tokens_from == "retokenized"
            assert len(response.response.token_ids) == len(response.response.text.encode())
    facts = read_searches(run)["pool"]["imported"]
    assert (facts["verdicts"], facts["verdict_field"], facts["responses"]) == ("file", "passed", 9)
    assert facts["files"][0]["holds"] == "both"
    assert "pool" not in read_judges(run)
    assert sum("verdicts are those of" in warning for warning in list_warnings(run)) == 1
    report = verify(run.path, task.plugins)
    assert report.differences == []
    # the task's verifier looks for the gold letter: a, e or i; "pool" has none of them
    (line,) = [line for line in report.checked if "responses are those of" in line]
    assert f"{file} (sha256 {facts['files'][0]['sha256'][:12]})" in line
    assert "judged again, 3 of them differ, the first: pool/responses.parquet: problem" in line


def test_judge_option_uses_task_verifier(task: LettersTask, model: Path) -> None:
    lines = [{**line, "text": "an a"} for line in build_lines(VERDICTS)]
    for line in lines[1:]:
        del line["passed"]
    run = search_logs(task, model, "run", [write_lines(task.folder / "r.jsonl", lines)], judge=True)
    assert get_states(run) == {"pool0": "G", "pool1": "U", "pool2": "U"}, "gold: a, e, i"
    assert read_searches(run)["pool"]["imported"]["verdicts"] == "judged"
    assert "pool" in read_judges(run)
    report = verify(run.path, task.plugins)
    assert report.differences == []
    assert "9 verdicts of contains were judged again" in report.checked


@pytest.mark.thorough
def test_search_with_logs_gives_the_same_states_and_selections(base_root: Path) -> None:
    """The letters run's own responses; only ids that are not those of their text differ."""
    letters, imported = (
        make_base_run(base_root, base) / "selected/run" for base in ("letters", "imported")
    )
    for split in ("pool", "audit"):
        table = f"states/{split}.parquet"
        assert read_rows(imported / table) == read_rows(letters / table)
    selections = (read_rows(run / "selections/gapft-seed13.parquet") for run in (letters, imported))
    for own, other in zip(*selections, strict=True):
        assert {**own, "response_ids": 0} == {**other, "response_ids": 0}


def drop_greedy(lines: list[Line]) -> list[Line]:
    return [line for line in lines if line["index"] != "greedy"]


Change = Callable[[list[Line]], list[Any]]


def drop_key(key: str) -> Change:
    return lambda lines: [*lines[:4], {k: v for k, v in lines[4].items() if k != key}, *lines[5:]]


def change_keys(**keys: Any) -> Change:
    return lambda lines: [*lines[:4], {**lines[4], **keys}, *lines[5:]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [*lines, lines[4]], "first in {file}, line 5"),
        (lambda lines: lines[:6], "no greedy response for 1 of 3 problems, first: pool2-"),
        (lambda lines: lines[:-1], "no sample 1 for 1 of 3 problems, first: pool2-"),
        (
            lambda lines: [*lines[:4], *lines[5:]],
            "no sample 0 for 1 of 3 problems, first: pool1-",
        ),
        (lambda lines: [*lines[:3], *lines[4:]], "no greedy response for 1 of 3 problems"),
        (drop_greedy, "found no greedy response"),
        (lambda lines: [*lines[:4], json.dumps(lines[4])[:30]], "line 5: malformed JSON"),
        (change_keys(passed=0.5), "line 5: pass@1 is 0.5; expected a verdict"),
        (change_keys(passed=None), "line 5: the response has no verdict"),
        (change_keys(id="pool1"), "line 5: identifies its problem by id and prompt"),
        (drop_key("index"), "line 5: found the greedy response of problem pool1-"),
        (change_keys(index=-1), "line 5: index is -1"),
        (change_keys(text=7), "line 5: key 'text': found 7; expected a string"),
        (change_keys(finish_reason="why"), "line 5: finish_reason is 'why'"),
        (change_keys(prompt="another"), "line 5: the task's pool has no problem with this prompt"),
        (lambda lines: [], "is empty"),
        (lambda lines: [{"a": 1}], "line 1: unknown kind of log (its keys: a)"),
    ],
)
def test_reports_file_and_line_of_damage(tmp_path: Path, change: Change, message: str) -> None:
    file = write_lines(tmp_path / "r.jsonl", change(build_lines(VERDICTS)))
    with pytest.raises(UserError) as refused:
        gather_responses(file)
    assert str(refused.value).startswith(file)
    assert message.replace("{file}", file) in str(refused.value)


def test_k_is_at_most_samples_per_problem(task: LettersTask, model: Path) -> None:
    file = write_lines(task.folder / "r.jsonl", build_lines(VERDICTS))
    with pytest.raises(UserError, match=r"2 samples of each problem, but search\.k is 3"):
        search_logs(task, model, "more", [file], k=3)
    assert not list((task.folder / "more").rglob("pool/*")), "a mistake leaves nothing"
    run = search_logs(task, model, "fewer", [file], k=1)
    assert get_states(run) == {"pool0": "G", "pool1": "U", "pool2": "U"}, "the first sample alone"
    assert "the first 1 of 2 samples of each problem are used" in " ".join(list_warnings(run))


def test_ignores_unknown_problems_on_request(task: LettersTask, model: Path) -> None:
    lines = [*build_lines(VERDICTS), {"id": "another", "index": 0, "text": "x", "passed": 1}]
    file = write_lines(task.folder / "r.jsonl", lines)
    run = search_logs(task, model, "run", [file], ignore_unknown=True)
    assert read_searches(run)["pool"]["imported"]["left_out"] == 1
    assert "1 responses left out" in " ".join(list_warnings(run))


def test_joins_problems_by_document_or_field(task: LettersTask, model: Path) -> None:
    records = [json.loads(line) for line in (task.folder / "tasks/pool.jsonl").open()]
    lines = build_lines(VERDICTS)
    for row, line in enumerate(lines):
        del line["prompt"]
        line["doc"] = records[row // 3]
    run = search_logs(task, model, "whole", [write_lines(task.folder / "r.jsonl", lines)])
    expected = get_states(run)
    assert sorted(expected.values()) == ["G", "S", "U"]
    for line in lines:
        line["doc"] = {"asked": line["doc"]["question"], "answer": "another spelling"}
    file = write_lines(task.folder / "r.jsonl", lines)
    with pytest.raises(
        UserError, match=r"line 1: .* doc \(compared: id, question, answer; search.responses.on"
    ):
        search_logs(task, model, "other", [file])
    run = search_logs(task, model, "field", [file], on=["asked=question"])
    assert get_states(run) == expected


def test_combines_pool_of_logs_with_generated_audit(task: LettersTask, model: Path) -> None:
    """The sampler's description of the model is the run's source, in any order of splits."""
    (task.folder / "weights").write_text(weights_hash(model))
    file = write_lines(task.folder / "r.jsonl", build_lines(VERDICTS))
    run = search_logs(task, model, "run", [file])
    run_stages(task.context(run), ["search", "states", "select"], lambda stage: None)
    assert read_source(run)["weights_sha256"] == weights_hash(model)
    log = [json.loads(line) for line in (task.folder / "log").open()]
    assert {call["id"].partition("-")[0] for call in log if "id" in call} == {
        f"audit{row}" for row in range(3)
    }, "nothing was generated for the pool"
    report = verify(run.path, task.plugins)
    assert report.differences == []


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"filter": "none"}, r"remove search\.responses\.filter"),
        ({"on": ("a=b",)}, "line 1: identifies its problem by prompt, but .* joins by"),
    ],
)
def test_rejects_unused_options(tmp_path: Path, choice: dict[str, Any], message: str) -> None:
    file = write_lines(tmp_path / "r.jsonl", build_lines(VERDICTS))
    with pytest.raises(UserError, match=message):
        gather_responses(file, **choice)
