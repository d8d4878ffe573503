"""GapTask: tasks in YAML, errors, metrics, and judging."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from gapft_harness import load_verifier
from gapft_harness.analysis.pass_at_k import pass_at_k
from gapft_harness.core.errors import UserError
from gapft_harness.core.records import Verdict
from gapft_harness.lm_eval_bridge.discovery import NoSuchTaskError, load_task
from gapft_harness.lm_eval_bridge.judge import CachingJudge

YAML = """
task: mine
class: !function gapft_harness.lm_eval_bridge.task.GapTask
dataset_path: json
dataset_kwargs: {data_files: {train: data/pool.jsonl, test: data/audit.json}}
training_split: train
test_split: test
description: "Add. "
doc_to_text: "{{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
generation_kwargs: {do_sample: false, max_gen_toks: 9, until: ["\\n\\n"]}
metadata:
  version: 3
  gapft: {verifier: boxed_math, keep: first, id: "n{{number}}"}
"""
PASSK = """
include: mine.yaml
task: mine_passk
repeats: 4
filter_list: [{name: samples, filter: [{function: take_first_k, k: 4}]}]
"""


def build_record(number: int) -> dict:
    return {"number": number, "question": f"{number} + 1?", "answer": str(number + 1)}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    pool = [json.dumps(build_record(n)) for n in range(5)]
    (tmp_path / "data" / "pool.jsonl").write_text("\n".join(pool), encoding="utf-8")
    audit = json.dumps([build_record(n) for n in (7, 8, 8)])
    (tmp_path / "data" / "audit.json").write_text(audit, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(YAML, encoding="utf-8")
    (tmp_path / "mine_passk.yaml").write_text(PASSK, encoding="utf-8")
    return tmp_path


def edit_task(folder, old, new):
    assert old in YAML
    (folder / "mine.yaml").write_text(YAML.replace(old, new), encoding="utf-8")


def read_error(folder, name="mine") -> str:
    with pytest.raises(UserError) as caught:
        load_task(name, [folder])
    return str(caught.value)


def test_loads_task_from_yaml(folder, monkeypatch):
    monkeypatch.chdir("/")  # Data files are next to the YAML, not in the working directory.
    task = load_task("mine", [folder])
    pool, audit = task.read_pool(), task.read_audit()
    assert (task.name, task.version, task.keep) == ("mine", "3", "first")
    assert [p.gold for p in pool] == ["1", "2", "3", "4", "5"]
    assert audit[0].prompt == "Add. 7 + 1?\nAnswer:"
    assert audit[0].id.startswith("n7-")
    assert audit[2].id == f"{audit[1].id}#2"
    assert audit[0].document == build_record(7)
    assert task.dropped == [
        "mine audit: 1 of 3 problems repeat the content of another; they are kept, with #2, #3, "
        "... in their ids"
    ]
    decoding = task.build_decoding()
    assert (decoding.do_sample, decoding.max_gen_toks, decoding.until) == (False, 9, ("\n\n",))
    assert load_task(str(folder / "mine.yaml")).read_audit() == audit


@pytest.mark.parametrize(
    "line", ["", "generation_kwargs: {max_gen_toks: 9}\n", "generation_kwargs: {until: null}\n"]
)
def test_has_no_default_stop_strings(folder, line):
    """lm-eval's default, a blank line, would cut a chat model after its first paragraph."""
    (old_line,) = (old_line for old_line in YAML.splitlines(keepends=True) if "until" in old_line)
    edit_task(folder, old_line, line)
    task = load_task("mine", [folder])
    assert task.build_decoding().until == ()
    assert task.resolve_config()["generation_kwargs"]["until"] == [], "also for lm_eval"


def test_gold_only_field_is_not_recorded(folder):
    edit_task(folder, "keep: first", "keep: first, gold: answer, gold_only: [answer]")
    (problem, *_) = load_task("mine", [folder]).read_audit()
    assert problem.gold == "8"
    assert problem.document == {"number": 7, "question": "7 + 1?"}
    edit_task(folder, "keep: first", "keep: first, gold_only: answer")
    assert "key 'metadata.gapft.gold_only': expected a list" in read_error(folder)


def test_prompts_match_lm_eval(folder):
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_defaults=False, include_path=[str(folder)])
    task = manager.load(["mine"])["tasks"]["mine"]
    task.build_all_requests()
    assert [i.args[0] for i in task.instances] == [
        p.prompt for p in load_task("mine", [folder]).read_audit()
    ]


def test_fingerprint_depends_on_configuration(folder, tmp_path_factory):
    fingerprint = load_task("mine", [folder]).compute_fingerprint()
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "copy"
    folder.rename(elsewhere)
    assert load_task("mine", [elsewhere]).compute_fingerprint() == fingerprint
    edit_task(elsewhere, "Answer:", "A:")
    assert load_task("mine", [elsewhere]).compute_fingerprint() != fingerprint


def test_unused_split_keeps_fingerprint(folder):
    bare = load_task("mine", [folder]).compute_fingerprint()
    path = folder / "mine.yaml"
    plain = path.read_text()
    for split in ("calibration", "another"):
        path.write_text(f"{plain}validation_split: {split}\n")
        assert load_task("mine", [folder]).compute_fingerprint() == bare
    edit_task(folder, "Answer:", "A:")
    assert load_task("mine", [folder]).compute_fingerprint() != bare


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("verifier: boxed_math, ", "", "missing key 'metadata.gapft.verifier'"),
        ("keep: first", "kep: first", "did you mean 'metadata.gapft.keep'?"),
        ("keep: first", "keep: [first]", "key 'metadata.gapft.keep': input should be a valid str"),
        ("keep: first", "episode: {tries: 3}", "unknown key 'metadata.gapft.episode.tries'"),
        ("keep: first", "episode: {attempts: 0}", "key 'metadata.gapft.episode.attempts': input"),
        ("keep: first", "episode: {executions: 2}", "must be odd"),
        ("keep: first", "episode: 3", "key 'metadata.gapft.episode': expected a section"),
        ("doc_to_text:", "doc_to_txt:", "the key 'doc_to_text' is missing"),
        ("{{question}}", "{{qestion}}", "'qestion' is undefined"),
        ("{{question}}", "{{question}", "doc_to_text: unexpected '}'"),
        ("test_split: test", "test_split: tset", "unknown split 'tset'; did you mean 'test'?"),
        ("data/audit.json", "data/none.json", "none.json: cannot be read"),
        ("doc_to_text", "output_type: multiple_choice\ndoc_to_text", "expected generate_until"),
    ],
)
def test_rejects_faulty_yaml(old, new, expected, folder):
    edit_task(folder, old, new)
    assert expected in read_error(folder)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("verifier: boxed_math", "verifier: boxd_math", "did you mean 'boxed_math'"),
        ("keep: first", "params: {speed: 1}", "speed"),
    ],
)
def test_checks_verifier_before_generation(old, new, expected, folder):
    edit_task(folder, old, new)
    with pytest.raises(UserError, match=expected):
        open_task(folder, "mine")


def test_unknown_name_lists_suggestions_and_broken_files(folder):
    (folder / "broken.yaml").write_text("task: broken\n  doc: [", encoding="utf-8")
    with pytest.raises(NoSuchTaskError) as caught:
        load_task("mien", [folder])
    message = str(caught.value)
    assert "unknown task 'mien'; did you mean 'mine'?" in message
    assert str(folder / "broken.yaml") in message
    assert "line 2, column 6" in message


def test_rejects_groups_and_missing_folders(folder):
    assert "gapft_demo, gapft_demo_code, gapft_gsm8k" in read_error(folder, "gapft")
    with pytest.raises(UserError, match="folder not found"):
        load_task("mine", [folder / "nowhere"])
    with pytest.raises(UserError, match="folder not found"):
        load_task("mine", [folder / "mine.yaml"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty file"),
        ('{"number": 1}\n{"number": 2', "line 2: malformed JSON"),
        ("[1]", "record 1: found int, expected a JSON object"),
        ("[]", "no records"),
        ('[{"number": 1},\n {"number"]', "line 2: malformed JSON"),
    ],
)
def test_rejects_faulty_data_files(text, expected, folder):
    (folder / "data" / "audit.json").write_text(text, encoding="utf-8")
    message = read_error(folder)
    assert expected in message
    assert "audit.json" in message


def test_names_record_without_field(folder):
    rows = [build_record(0), {"number": 1}]
    text = "\n".join(json.dumps(row) for row in rows)
    (folder / "data" / "pool.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"pool\.jsonl, line 2: .*'question' is undefined"):
        load_task("mine", [folder]).read_pool()


def open_task(folder, name):
    """Load a task with lm-eval and build its requests."""
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_defaults=False, include_path=[str(folder)])
    task = manager.load([name])["tasks"][name]
    task.build_all_requests()
    return task


def process_responses(task, texts):
    """Set the responses of every request; return the results of all documents."""
    for instance, responses in zip(task.instances, texts, strict=True):
        instance.resps = list(responses)
    task.apply_filters()
    (name,) = task.instances[0].filtered_resps
    return [task.process_results(i.doc, [i.filtered_resps[name]]) for i in task.instances]


def test_computes_pass_at_1(folder):
    task = open_task(folder, "mine")
    results = process_responses(task, [["\\boxed{8}"], ["8"], ["\\boxed{9}"]])
    assert [r["pass@1"] for r in results] == [1.0, 0.0, 1.0]
    assert set(task.aggregation()) == {"pass@1", "verifier_timeouts", "verifier_errors"}
    assert task.aggregation()["pass@1"]([1.0, 0.0]) == 0.5


def test_computes_unbiased_pass_at_k(folder):
    task = open_task(folder, "mine_passk")
    right = "\\boxed{8}"
    results = process_responses(task, [[right, "no", right, "no"], ["no"] * 4, ["\\boxed{9}"] * 4])
    for passing, result in zip([2, 0, 4], results, strict=True):
        for k in (1, 2, 4):
            assert result[f"pass@{k}"] == pass_at_k(np.array([passing]), 4, k)[0]
    assert "pass@8" not in results[0]


def test_rejects_missing_responses(folder):
    text = PASSK.replace("filter_list", "# filter_list")
    (folder / "mine_passk.yaml").write_text(text, encoding="utf-8")
    task = open_task(folder, "mine_passk")
    with pytest.raises(UserError, match=r"problem n7-\w+: found 1 responses, .* 4"):
        process_responses(task, [["a"] * 4] * 3)


class CountingVerifier:
    """Pass responses that equal their gold, and record the calls."""

    def __init__(self):
        self.calls = []

    def verify(self, responses, golds):
        self.calls.append(len(responses))
        pairs = zip(responses, golds, strict=True)
        return [Verdict("pass" if text == gold else "fail") for text, gold in pairs]


def test_judges_distinct_responses_in_one_call(folder):
    task = open_task(folder, "mine_passk")
    counting = CountingVerifier()
    task.judge = CachingJudge(counting)
    results = process_responses(task, [["8", "8", "x", "8"], ["9"] * 4, ["9"] * 4])
    assert counting.calls == [3]
    assert [r["pass@1"] for r in results] == [pytest.approx(0.75), 1.0, 1.0]


def test_counts_verifier_errors(folder, caplog):
    def fail(responses, golds):
        raise RuntimeError("worker gone")

    task = open_task(folder, "mine")
    task.judge = CachingJudge(SimpleNamespace(verify=fail))
    results = process_responses(task, [["8"], ["9"], ["9"]])
    assert [r["verifier_errors"] for r in results] == [1, 1, 1]
    assert [r["pass@1"] for r in results] == [0.0, 0.0, 0.0]
    assert "worker gone" in caplog.text


def test_predict_only_skips_verdicts(folder):
    task = open_task(folder, "mine")
    task.override_metric("bypass")
    assert process_responses(task, [["8"], ["9"], ["9"]])[0] == {"bypass": 999}
    assert list(task.aggregation()) == ["bypass"]


def test_draws_few_shot_examples_from_pool(folder):
    task = open_task(folder, "mine")
    task.set_config("num_fewshot", 2)
    task.set_fewshot_seed(1)
    prompt = task.fewshot_context(build_record(7), num_fewshot=2)
    assert prompt.count("Answer:") == 3
    assert prompt.endswith("7 + 1?\nAnswer:")


STOCK = """
task: stock_mine
dataset_path: json
dataset_kwargs: {data_files: {train: POOL, test: AUDIT}}
training_split: train
test_split: test
fewshot_split: train
num_fewshot: 2
doc_to_text: "{{question}}"
doc_to_target: "{{answer}} pears"
generation_kwargs: {until: ["\\n"], max_gen_toks: 5, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture
def stock(folder, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", folder / "cache")
    data = folder / "data"
    text = STOCK.replace("POOL", str(data / "pool.jsonl"))
    text = text.replace("AUDIT", str(data / "audit.json"))
    (folder / "stock_mine.yaml").write_text(text, encoding="utf-8")
    return load_task("stock_mine", [folder])


def test_stock_task_uses_own_metric(stock, folder):
    assert stock.verifier == "task_metric"
    assert stock.verifier_params == {"task": "stock_mine", "include_path": str(folder)}
    assert stock.keep == "shortest"
    problem = stock.read_audit()[0]
    assert problem.gold == problem.document == build_record(7)
    assert stock.build_decoding().max_gen_toks == 5
    verifier = load_verifier(stock.verifier, **stock.verifier_params)
    verdicts = verifier.verify(["8 pears", "9 pears"], [problem.gold] * 2)
    assert [verdict.passed for verdict in verdicts] == [True, False]


def test_stock_examples_exclude_problem(stock):
    pool = stock.read_pool()
    for problem in pool:
        assert problem.prompt.endswith(problem.document["question"])
        assert problem.prompt.count(problem.document["question"]) == 1
        assert problem.prompt.count("?") == 3
    assert stock.read_pool() == pool


def test_stock_task_lists_examples(stock, folder):
    assert {question for _, question in stock.list_examples()} == {
        problem.document["question"] for problem in stock.read_pool()
    }
    text = (folder / "stock_mine.yaml").read_text(encoding="utf-8")

    def list_questions(line):
        written = text.replace("fewshot_split: train\n", line)
        (folder / "stock_mine.yaml").write_text(written, encoding="utf-8")
        return [question for _, question in load_task("stock_mine", [folder]).list_examples()]

    audit = {problem.document["question"] for problem in stock.read_audit()}
    assert set(list_questions("")) == {
        problem.document["question"] for problem in stock.read_pool()
    }
    assert set(list_questions("fewshot_split: test\n")) == audit
    assert list_questions("fewshot_config: {samples: [{question: 'q?', answer: '1'}]}\n") == ["q?"]


def test_reads_option_letter_golds(folder):
    row = {"q": "Which?", "options": ["x", "y"], "label": 1}
    (folder / "data" / "pool.jsonl").write_text(json.dumps(row), encoding="utf-8")
    (folder / "data" / "audit.json").write_text(
        json.dumps([row, {**row, "label": 2}]), encoding="utf-8"
    )
    letters = "{{'ABCD'[label]}}"
    edit_task(
        folder,
        'gapft: {verifier: boxed_math, keep: first, id: "n{{number}}"}',
        f'gapft: {{verifier: option_letter, gold: {{answer: "{letters}", options: options}}}}',
    )
    text = (folder / "mine.yaml").read_text(encoding="utf-8")
    text = text.replace("{{question}}", "{{q}}").replace('"{{answer}}"', "label")
    (folder / "mine.yaml").write_text(text, encoding="utf-8")
    task = load_task("mine", [folder])
    gold = task.read_pool()[0].gold
    assert gold == {"answer": "B", "options": ["x", "y"]}
    verdicts = load_verifier("option_letter").verify(["B", "A"], [gold, gold])
    assert [v.passed for v in verdicts] == [True, False]
    with pytest.raises(UserError, match=r"audit\.json, record 2: .*'C' is not an option"):
        task.read_audit()
