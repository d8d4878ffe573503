"""LiveCodeBench: the split by contest date, excluded problems, prompts, golds, bad records."""

import itertools
import json
from collections.abc import Callable

import pytest

from gapft_harness.lm_eval_bridge.benchmarks import livecodebench
from gapft_harness.lm_eval_bridge.benchmarks.livecodebench import ERRATA, find_flag
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.lm_eval_bridge.task_file.code_files import tasks_path
from gapft_harness.verification.programs import read_suite
from tests.canned_model import CannedModel, evaluate


def list_question_ids(documents) -> list[str]:
    return [document["question_id"] for document in documents]


def test_splits_pool_and_audit_by_contest_date(data):
    task = load_task("gapft_livecodebench")
    audit, pool = task.read("audit"), task.read("pool")
    assert [p.document["question_id"] for p in audit] == ["abc004_a", "5"]
    assert [p.document["question_id"] for p in pool] == ["3", "abc002_a"]
    assert audit[0].id.startswith("abc004_a-")
    params = {"prelude": "lcb"}
    assert (task.verifier, task.verifier_params, task.keep) == ("program_tests", params, "shortest")
    assert task.build_decoding().max_gen_toks == 1536


def test_yaml_matches_loader_defaults():
    text = (tasks_path() / "livecodebench" / "_base_yaml").read_text(encoding="utf-8")
    assert f'audit_from: "{livecodebench.AUDIT_FROM}"' in text
    assert f"exclude: [{', '.join(ERRATA)}]" in text


def test_split_dates_are_configurable(data):
    splits = livecodebench.load("local", audit_from="2023-06-01", exclude=[])
    assert list_question_ids(splits["pool"]) == ["abc002_a"]
    assert list_question_ids(splits["audit"]) == ["abc004_a", "3", "5", "2555", "abc326_d", "7"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"audit_from": "October"}, "audit_from"),
        ({"exclude": ["interactiv"]}, "'interactive'"),
    ],
)
def test_rejects_invalid_options(options, expected, read_error):
    assert expected in read_error(lambda: livecodebench.load("local", **options))


def test_excludes_or_keeps_flagged_problems(data):
    splits = livecodebench.load("local", exclude="bad_tests", exclude_ids=["3"])
    flags = {d["question_id"]: d["erratum"] for d in (*splits["pool"], *splits["audit"])}
    assert flags == {"abc002_a": None, "abc326_d": "several_answers", "abc004_a": None, "5": None}
    assert "LiveCodeBench pool: 1 problems dropped (exclude_ids)" in splits["pool"].dropped


def test_finds_errata_by_id_or_title():
    assert find_flag("abc337_e", "Bad Juice") == "interactive"
    assert find_flag("3224", "find-the-peaks") == find_flag("3224", "Find the Peaks")
    assert find_flag("3224", "find-the-peaks") == "several_answers"
    assert find_flag("abc337_d", "Cheating Gomoku Narabe") is None
    names = [name for names in ERRATA.values() for name in names]
    assert len(names) == len(set(names)) == 17


def test_prompts_and_golds(data):
    stdin, function = load_task("gapft_livecodebench").read("audit")
    assert stdin.prompt == (
        "Solve the programming problem below in Python 3. Write a whole program that reads from "
        "standard input and writes to standard output. It is run on many inputs, so leave out "
        "sample data and messages. Reply with exactly one fenced Python code block that holds the "
        "complete code.\n\nProblem:\n\nMultiply the given number by 4.\n\nAnswer:"
    )
    assert "standard input" not in function.prompt
    assert function.prompt.endswith(
        "Problem:\n\nMultiply the given number by 5.\n\nCode to complete:\n\n```python\n"
        "class Solution:\n    def scale(self, n: int) -> int:\n```\n\nAnswer:"
    )
    assert (stdin.gold["kind"], stdin.gold["function"]) == ("stdin", None)
    assert (function.gold["kind"], function.gold["function"]) == ("function", "scale")
    suite = read_suite(stdin.gold)
    assert [(t.input, t.expected) for t in suite.tests] == [
        ("1\n", "4\n"),
        ("2\n", "8\n"),
        ("30\n", "120\n"),
    ]
    assert [t.input for t in suite.public_tests] == ["1\n"]
    assert [t.input for t in read_suite(function.gold).tests] == ["1", "2", "30"]
    for problem in (stdin, function):  # only golds have hidden tests
        assert problem.gold["public"] == len(problem.gold["tests"]) == 1
        assert "hidden" not in problem.document
        text = json.dumps(problem.document)
        assert problem.gold["hidden"] not in text
        assert "private_test_cases" not in text


# Judged by lm_eval


def write_programs() -> Callable[[str], str]:
    """Return a model: the audit's function problem is answered rightly only every other time."""
    turns = itertools.count(1)

    def answer(prompt: str) -> str:
        turn = next(turns)
        number = prompt.partition("number by ")[2].partition(".")[0]
        if "standard input" in prompt:
            return f"```python\nprint(int(input()) * {number})\n```"
        factor = number if turn % 2 else 0
        return f"```python\nclass Solution:\n    def scale(self, n): return n * {factor}\n```"

    return answer


@pytest.mark.parametrize(
    ("name", "samples", "expected"),
    [
        ("gapft_livecodebench", 1, {"pass@1": 0.5}),
        ("gapft_livecodebench_passk", 16, {"pass@1": 0.75, "pass@2": 0.5 + 0.5 * (1 - 28 / 120)}),
    ],
)
def test_lm_eval_scores_programs_in_sandbox(name, samples, expected, data):
    results = evaluate(CannedModel(write_programs()), [name], tasks_path())
    metrics = {key.split(",")[0]: v for key, v in results["results"][name].items()}
    assert {metric: metrics[metric] for metric in expected} == pytest.approx(expected)
    assert metrics["verifier_errors"] == 0
    assert {len(row["verdicts"]) for row in results["samples"][name]} == {samples}
