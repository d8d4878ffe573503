"""Every bundled task: prompt, gold, splits, decoding, passk and pool tasks."""

import json
from functools import partial

import pytest
import yaml
from lm_eval.tasks import TaskManager

from gapft_harness import load_verifier
from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.discovery import list_tasks, load_task
from gapft_harness.lm_eval_bridge.task_file.code_files import tasks_path
from tests.canned_model import CannedModel, evaluate
from tests.tasks.benchmark_files import (
    LOGIC,
    build_math_record,
    build_test,
    needs_reasoning_gym,
    pack_tests,
    write_lines,
)

#: The folders of tasks/.
BENCHMARKS = sorted(file.parent.name for file in tasks_path().glob("*/_base_yaml"))
#: Tasks that need an extra are in no group.
GENERATED = [name for name in BENCHMARKS if name.startswith("rg_")]
GROUPED = [name for name in BENCHMARKS if name not in GENERATED]
each_benchmark = pytest.mark.parametrize(
    "benchmark", [*GROUPED, *(pytest.param(b, marks=needs_reasoning_gym) for b in GENERATED)]
)


def test_benchmarks_have_four_tasks_in_two_groups():
    tasks = {task.name: task for task in list_tasks()}
    expected = {f"gapft_{b}{s}" for b in BENCHMARKS for s in ("", "_passk", "_pool", "_pool_passk")}
    assert {"demo", "demo_code", "livecodebench", "logiqa", "math", "reclor", "gsm8k"} <= set(
        BENCHMARKS
    )
    assert len(GENERATED) == 3
    assert set(tasks) == expected | {
        "gapft", "gapft_passk", "gapft_logiqa_whole", "gapft_logiqa_whole_pool",
        "gapft_logiqa_answer_only", "gapft_math_second",
    }  # fmt: skip
    assert tasks["gapft_logiqa"].split == "audit"
    assert tasks["gapft_logiqa_pool"].split == "pool"
    assert tasks["gapft"].description == ", ".join(f"gapft_{b}" for b in GROUPED)
    assert tasks["gapft_passk"].description == ", ".join(f"gapft_{b}_passk" for b in GROUPED)
    assert all(task.description for task in tasks.values())


@each_benchmark
def test_splits_are_disjoint_and_passk_differs_in_decoding(benchmark, data):
    task = load_task(f"gapft_{benchmark}")
    twin = load_task(f"gapft_{benchmark}_passk")
    pool = load_task(f"gapft_{benchmark}_pool")
    problems, audit = task.read("pool"), task.read("audit")
    assert not {p.prompt for p in problems} & {p.prompt for p in audit}
    for split in (problems, audit):
        assert len({p.id for p in split}) == len(split)
    assert [p.prompt for p in twin.read("audit")] == [p.prompt for p in audit]
    assert [p.id for p in pool.read("audit")] == [p.id for p in problems]
    assert task.build_decoding() == twin.build_decoding() == pool.build_decoding()
    assert not task.build_decoding().do_sample
    folder = tasks_path() / benchmark
    text = (folder / f"gapft_{benchmark}_passk.yaml").read_text(encoding="utf-8")
    options = yaml.safe_load(text)["generation_kwargs"]
    assert options["do_sample"] is True
    assert (options["temperature"], options["top_p"]) == (0.7, 0.95)
    assert options["max_gen_toks"] == task.build_decoding().max_gen_toks
    assert tuple(options["until"]) == task.build_decoding().until


#: By benchmark: golds of the pool and of the audit, verifier, response rule and longest response.
READ = {
    "logiqa": (["B", "C", "B"], ["A", "C"], "option_letter", "shortest", 64),
    "reclor": (["B", "C", "A"], ["D", "C"], "option_letter", "shortest", 64),
    "gsm8k": (["1000", "2000", "3000"], ["4000", "5000"], "math", "shortest", 512),
}


@pytest.mark.parametrize("benchmark", READ)
def test_reads_benchmark(benchmark, data):
    task = load_task(f"gapft_{benchmark}")
    golds = [
        [p.gold["answer"] if isinstance(p.gold, dict) else p.gold for p in split]
        for split in (task.read("pool"), task.read("audit"))
    ]
    settings = task.verifier, task.keep, task.build_decoding().max_gen_toks
    assert (*golds, *settings) == READ[benchmark]


def test_reads_ids_and_prompts(data):
    task = load_task("gapft_logiqa")
    pool, audit = task.read("pool"), task.read("audit")
    assert [p.document["id"] for p in audit] == [2, 2]
    assert pool[2].id == f"{pool[0].id}#2"
    assert audit[0].id.startswith("2-")
    assert audit[0].prompt == (
        "Read the passage and answer the question about it. Exactly one option is right. Reply "
        f"with its letter and nothing else.\n\nPassage: {LOGIC[2][0]}\n\n"
        "Question: What is true of Tom?\nA. Nothing at all\nB. A white swan\nC. It did not rain\n"
        "D. It was not locked\nAnswer:"
    )
    assert audit[0].gold["options"][3] == "It was not locked"
    assert task.verifier_params == {"rule": "first_explicit"}
    reclor = load_task("gapft_reclor").read("pool")
    assert [p.id.split("-")[0] for p in reclor] == ["train_0", "train_1", "train_2"]
    problem = load_task("gapft_gsm8k").read("audit")[0]
    assert problem.document["solution"] == "She has 4*1000=4,000 pens."
    assert problem.prompt.endswith("How many pens are there?")


def test_logiqa_whole_keeps_shared_problems(data):
    """The older protocol uses the complete splits; its prompts equal those of the main task."""
    task, whole = load_task("gapft_logiqa"), load_task("gapft_logiqa_whole")
    audit = {problem.prompt for problem in task.read("audit")}
    every = {problem.prompt for problem in whole.read("audit")}
    assert audit < every
    assert len(whole.read("audit")) == 3
    assert not {problem.prompt for problem in task.read("pool")} & every
    pool = {problem.prompt for problem in whole.read("pool")}
    assert {problem.prompt for problem in task.read("pool")} < pool
    assert len(pool & every) == 1
    older = load_task("gapft_logiqa_whole_pool")
    assert [p.id for p in older.read("pool")] == [p.id for p in whole.read("pool")]
    assert [p.id for p in older.read("audit")] == [p.id for p in task.read("audit")]
    assert "counts differ from the paper: found whole test split 3" in whole.warnings[0]


@pytest.mark.parametrize(
    ("name", "passed"), [("gapft_logiqa", {1.0}), ("gapft_logiqa_answer_only", {0.0})]
)
def test_lm_eval_applies_both_logiqa_rules(name, passed, data):
    """Table 4 judges the whole response for Llama and Qwen, else the first explicit answer."""
    letters = {p.prompt: p.gold["answer"] for p in load_task("gapft_logiqa").read("audit")}
    for template, expected in (("{}.", {1.0}), ("The answer is {}, as the passage says.", passed)):
        model = CannedModel(lambda prompt, template=template: template.format(letters[prompt]))
        results = evaluate(model, [name], tasks_path())
        assert {sample["pass@1"] for sample in results["samples"][name]} == expected


def test_math_audit_comes_from_test_split(data):
    task = load_task("gapft_math")
    audit, pool = task.read("audit"), task.read("pool")
    assert len(audit) == 600
    assert all(p.document["unique_id"].startswith("test/") for p in audit)
    texts = {p.document["problem"] for p in audit}
    shared = sum(build_math_record(n, "train")["problem"] in texts for n in range(600, 650))
    assert shared > 0
    assert len(pool) == 650 - shared
    assert task.warnings == []
    assert audit[0].id.startswith("counting_and_probability-")
    assert (task.verifier, task.keep) == ("boxed_math", "first")
    assert task.build_decoding().max_gen_toks == 1024


def test_second_math_audit_is_disjoint(data):
    first, second = load_task("gapft_math"), load_task("gapft_math_second")
    parts = [
        {p.prompt for p in split}
        for split in (second.read("audit"), first.read("audit"), first.read("pool"))
    ]
    assert parts[0]
    assert not parts[0] & (parts[1] | parts[2])
    assert [p.prompt for p in second.read("pool")] == [p.prompt for p in first.read("pool")]
    assert [p.prompt for p in second.read("audit")] == [p.prompt for p in first.read("calibration")]


def test_math_without_test_file_splits_training_file(data):
    audit_ids = {p.id for p in load_task("gapft_math").read("audit")}
    train, test = data / "MATH" / "train.jsonl", data / "MATH" / "test.jsonl"
    lines = test.read_text(encoding="utf-8").splitlines()
    test.unlink()
    # The rule depends on texts, not on the order of the file or its name.
    train.write_text("\n".join(reversed(lines)), encoding="utf-8")
    task = load_task("gapft_math")
    assert {p.id for p in task.read("audit")} == audit_ids
    assert len(task.read("pool")) == 100


def test_validation_is_optional(data, read_error):
    """The validation problems are LogiQA's dev.txt and further problems of MATH's test split."""
    (problem,) = load_task("gapft_logiqa").read("calibration")
    assert "Some birds swim." in problem.prompt, "the others are in the pool or the audit"
    for file in ("MATH/test.jsonl", "logiqa2/dev.txt"):
        (data / file).unlink()
    for name, file in (("math", "test.jsonl"), ("logiqa", "dev.txt")):
        task = load_task(f"gapft_{name}")
        assert task.read("audit")
        assert file in read_error(partial(task.read, "calibration"))


FOLDERS = {"logiqa": "logiqa2", "math": "MATH"}


@pytest.mark.parametrize("benchmark", ["logiqa", "reclor", "math", "gsm8k", "livecodebench"])
def test_missing_data_names_searched_places(benchmark, tmp_path, monkeypatch, read_error):
    folder = FOLDERS.get(benchmark, benchmark)
    monkeypatch.setenv("GAPFT_DATA_DIR", str(tmp_path))
    monkeypatch.setenv(f"GAPFT_REVISION_{folder.upper()}", "no-such-revision")
    message = read_error(load_task, f"gapft_{benchmark}")
    assert str(tmp_path / folder) in message
    assert "no-such-revision" in message


#: A file of the data folder, the number of a record, and its change, which makes it unusable.
BAD_RECORDS = [
    ("logiqa2/test.txt", 2, {"answer": 4}),
    ("logiqa2/test.txt", 2, {"options": ["only one"]}),
    ("logiqa2/test.txt", 2, {"text": None}),
    ("gsm8k/test.jsonl", 2, {"answer": "#### many"}),
    ("gsm8k/test.jsonl", 2, {"question": None}),
    ("livecodebench/test.jsonl", 1, {"contest_date": "soon"}),
    ("livecodebench/test.jsonl", 1, {"private_test_cases": "eJ!"}),
    (
        "livecodebench/test.jsonl",
        1,
        {"private_test_cases": pack_tests([build_test("1", "4", "functional")])},
    ),
    (
        "livecodebench/test.jsonl",
        1,
        {"public_test_cases": "[]", "private_test_cases": pack_tests([])},
    ),
    ("livecodebench/test.jsonl", 2, {"metadata": "{}"}),
    ("livecodebench/test.jsonl", 2, {"metadata": "[" * 100_000}),
    (
        "livecodebench/test.jsonl",
        2,
        {"public_test_cases": json.dumps([build_test("1", "five", "functional")])},
    ),
]


def check_golds(name: str) -> None:
    """Load a task and check its golds, as before anything is generated."""
    task = load_task(name)
    with load_verifier(task.verifier, **task.verifier_params) as judge:
        for split in ("pool", "audit"):
            task.check_golds(judge, split)


@pytest.mark.parametrize(("file", "number", "change"), BAD_RECORDS)
def test_bad_record_is_named_by_file_and_line(file, number, change, data, read_error):
    path = data / file
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    records[number - 1] |= change
    write_lines(path, records)
    benchmark = path.parent.name.removesuffix("2")
    assert f"{path}, line {number}" in read_error(check_golds, f"gapft_{benchmark}")


def test_missing_field_is_named(data, read_error):
    path = data / "reclor" / "val.json"
    path.write_text('[{"context": "c", "question": "q", "answers": ["a", "b"]}]', encoding="utf-8")
    message = read_error(load_task, "gapft_reclor")
    assert f"{path}, record 1" in message
    assert "'id_string'" in message


def build_few_shot_requests(name):
    """Set an example after the task is built, as the stock command does."""
    manager = TaskManager(include_defaults=False, include_path=[str(tasks_path())])
    task = manager.load([name])["tasks"][name]
    task.set_config("num_fewshot", 1)
    task.set_fewshot_seed(1)
    task.build_all_requests(limit=1)
    return task.instances


@pytest.mark.parametrize(
    "name",
    ["gapft_logiqa", "gapft_reclor_pool", "gapft_math", "gapft_gsm8k", "gapft_demo_code_pool"],
)
def test_few_shot_examples_pass_verifier(name, data):
    assert len(build_few_shot_requests(name)) == 1


def test_few_shot_examples_show_verified_answers():
    for instance in build_few_shot_requests("gapft_demo"):
        assert instance.args[0].count("\\boxed{") == 1


def test_livecodebench_rejects_few_shot_examples(data):
    with pytest.raises(UserError):
        build_few_shot_requests("gapft_livecodebench")
