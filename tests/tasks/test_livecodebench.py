"""LiveCodeBench: the split by contest date, excluded problems, prompts, golds, bad records."""

import json
from pathlib import Path

import pytest
import yaml

from gapft_harness import load_verifier
from gapft_harness.lm_eval_bridge.benchmarks import livecodebench
from gapft_harness.lm_eval_bridge.benchmarks.livecodebench import ERRATA, find_flag
from gapft_harness.lm_eval_bridge.discovery import load_task
from gapft_harness.lm_eval_bridge.task_file.code_files import tasks_path
from gapft_harness.verification.programs import read_suite
from tests.tasks.benchmark_files import (
    build_livecodebench_record,
    build_test,
    pack_tests,
    write_lines,
)


def list_question_ids(documents) -> list[str]:
    return [document["question_id"] for document in documents]


def replace_audit_problem(data: Path, **change: object) -> Path:
    """Write an audit problem with a changed field as line 2 of its file."""
    path = data / "livecodebench" / "test.jsonl"
    records = [
        build_livecodebench_record(3, "2024-09-30"),
        build_livecodebench_record(4, "2024-10-01"),
    ]
    write_lines(path, [records[0], {**records[1], **change}])
    return path


def test_splits_pool_and_audit_by_contest_date(data):
    task = load_task("gapft_livecodebench")
    audit, pool = task.read_audit(), task.read_pool()
    assert [p.document["question_id"] for p in audit] == ["abc004_a", "5"]
    assert [p.document["question_id"] for p in pool] == ["3", "abc002_a"]
    assert task.dropped == [
        "LiveCodeBench audit: 1 problems dropped (ERRATA: bad_tests)",
        "LiveCodeBench pool: 1 problems dropped (ERRATA: several_answers)",
        "LiveCodeBench pool: 1 problems dropped (also in audit)",
    ]
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
    assert "LiveCodeBench pool: 1 problems dropped (exclude_ids)" in splits.read("pool").dropped


def test_finds_errata_by_id_or_title():
    assert find_flag("abc337_e", "Bad Juice") == "interactive"
    assert find_flag("3224", "find-the-peaks") == find_flag("3224", "Find the Peaks")
    assert find_flag("3224", "find-the-peaks") == "several_answers"
    assert find_flag("abc337_d", "Cheating Gomoku Narabe") is None
    names = [name for names in ERRATA.values() for name in names]
    assert len(names) == len(set(names)) == 17


def test_prompt_of_stdin_problem(data):
    (problem, _) = load_task("gapft_livecodebench").read_audit()
    assert problem.prompt == (
        "Solve the programming problem below in Python 3. Write a whole program that reads from "
        "standard input and writes to standard output. It is run on many inputs, so leave out "
        "sample data and messages. Reply with exactly one fenced Python code block that holds the "
        "complete code.\n\nProblem:\n\nMultiply the given number by 4.\n\nAnswer:"
    )
    assert problem.gold["kind"] == "stdin"
    assert problem.gold["function"] is None
    suite = read_suite(problem.gold)
    assert [(t.input, t.expected) for t in suite.tests] == [
        ("1\n", "4\n"),
        ("2\n", "8\n"),
        ("30\n", "120\n"),
    ]
    assert [t.input for t in suite.public_tests] == ["1\n"]


def test_prompt_of_function_problem_has_starter_code(data):
    (_, problem) = load_task("gapft_livecodebench").read_audit()
    assert "standard input" not in problem.prompt
    assert problem.prompt.endswith(
        "Problem:\n\nMultiply the given number by 5.\n\nCode to complete:\n\n```python\n"
        "class Solution:\n    def scale(self, n: int) -> int:\n```\n\nAnswer:"
    )
    assert (problem.gold["kind"], problem.gold["function"]) == ("function", "scale")
    assert [t.input for t in read_suite(problem.gold).tests] == ["1", "2", "30"]


def test_only_gold_contains_hidden_tests(data):
    for problem in load_task("gapft_livecodebench").read_audit():
        assert problem.gold["public"] == len(problem.gold["tests"]) == 1
        assert "hidden" not in problem.document
        text = json.dumps(problem.document)
        assert problem.gold["hidden"] not in text
        assert "private_test_cases" not in text


def test_passk_task_requests_16_samples(data):
    text = (tasks_path() / "livecodebench" / "gapft_livecodebench_passk.yaml").read_text()
    options = yaml.safe_load(text)
    assert options["repeats"] == options["filter_list"][0]["filter"][0]["k"] == 16


def test_reads_plain_json_and_empty_hidden_tests(data):
    tests = [build_test("1\n", "4\n"), build_test("2\n", "8\n")]
    replace_audit_problem(data, private_test_cases=json.dumps(tests))
    (problem,) = [p for p in load_task("gapft_livecodebench").read_audit() if "004" in p.id]
    assert len(read_suite(problem.gold).tests) == 3
    replace_audit_problem(data, private_test_cases=pack_tests([]))
    (problem,) = [p for p in load_task("gapft_livecodebench").read_audit() if "004" in p.id]
    assert len(read_suite(problem.gold).tests) == 1


def check_audit() -> None:
    """Read the audit and check its golds, as before anything is generated."""
    task = load_task("gapft_livecodebench")
    with load_verifier(task.verifier, **task.verifier_params) as judge:
        task.check_golds(judge, "audit")


@pytest.mark.parametrize(
    "change",
    [
        {"private_test_cases": "eJ!"},
        {"public_test_cases": "[{}]"},
        {"public_test_cases": "[]", "private_test_cases": pack_tests([])},
        {"private_test_cases": pack_tests([build_test("1", "4", "functional")])},
    ],
)
def test_reports_bad_tests_by_file_and_line(change, data, read_error):
    path = replace_audit_problem(data, **change)
    assert f"{path}, line 2" in read_error(check_audit)


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": "{}"},
        {"metadata": '{"func_name": "a b"}'},
        {"metadata": "[" * 100_000},
        {"public_test_cases": json.dumps([build_test("1", "five", "functional")])},
    ],
)
def test_reports_uncallable_function(change, data, read_error):
    path = data / "livecodebench" / "test.jsonl"
    write_lines(path, [{**build_livecodebench_record(5, "2025-03-01"), **change}])
    assert f"{path}, line 1" in read_error(check_audit)


def test_reports_bad_contest_date(data, read_error):
    path = replace_audit_problem(data, contest_date="soon")
    assert f"{path}, line 2: contest_date" in read_error(load_task, "gapft_livecodebench")


def test_rejects_empty_folder_and_empty_split(data, read_error):
    splits = livecodebench.load("local", audit_from="2030-01-01")
    assert "audit_from" in read_error(lambda: splits["audit"])
    for path in (data / "livecodebench").iterdir():
        path.unlink()
    assert ".jsonl" in read_error(load_task, "gapft_livecodebench")


# Judged by lm_eval


class ProgramWriter:
    """Answer with right programs; the audit's function problem is right only every other time."""

    def __init__(self):
        self.asked = 0

    def __call__(self, requests, **_):
        return [self.answer(request.args[0]) for request in requests]

    def answer(self, prompt: str) -> str:
        self.asked += 1
        number = prompt.partition("number by ")[2].partition(".")[0]
        if "standard input" in prompt:
            program = f"print(int(input()) * {number})"
        else:
            factor = number if self.asked % 2 else 0
            program = f"class Solution:\n    def scale(self, n):\n        return n * {factor}"
        return f"```python\n{program}\n```"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gapft_livecodebench", {"pass@1": 0.5}),
        ("gapft_livecodebench_passk", {"pass@1": 0.75, "pass@2": 0.5 + 0.5 * (1 - 28 / 120)}),
        ("gapft_livecodebench_pool", {"pass@1": 1.0}),
    ],
)
def test_lm_eval_scores_programs_in_sandbox(name, expected, data):
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    class Model(LM):
        generate_until = staticmethod(ProgramWriter())
        loglikelihood = loglikelihood_rolling = None

    manager = TaskManager(include_defaults=False, include_path=[str(tasks_path())])
    results = simple_evaluate(
        model=Model(), tasks=[name], task_manager=manager, bootstrap_iters=0, log_samples=True
    )
    metrics = next(iter(results["results"].values()))
    for metric, value in expected.items():
        (score,) = [v for k, v in metrics.items() if k.split(",")[0] == metric]
        assert score == pytest.approx(value)
    (errors,) = [v for k, v in metrics.items() if k.split(",")[0] == "verifier_errors"]
    assert errors == 0
