"""task_metric: a stock-like lm-eval task, with gsm8k's metric and filters, as a verifier."""

import json

import pytest
import yaml

from gapft_harness import load_verifier
from gapft_harness.lm_eval_bridge.stock import StockTask

DOCUMENTS = [
    {"question": "Ann has 3 pears and buys 4. How many?", "answer": "3+4=<<3+4=7>>7\n#### 7"},
    {"question": "A car costs 1,200 dollars. Two cars?", "answer": "Twice.\n#### 2,400"},
]
#: The gsm8k task with other data, in FOLDER.
TASK = yaml.safe_load(r"""
dataset_path: json
output_type: generate_until
training_split: train
test_split: train
doc_to_text: "Question: {{question}}\nAnswer:"
doc_to_target: "{{answer}}"
metric_list:
- metric: exact_match
  aggregation: mean
  higher_is_better: true
  ignore_case: true
  ignore_punctuation: false
  regexes_to_ignore: [",", '\$', '(?s).*#### ', '\.$']
generation_kwargs: {until: ["Question:"], do_sample: false}
filter_list:
- name: strict-match
  filter:
  - {function: regex, regex_pattern: '#### (\-?[0-9\.\,]+)'}
  - {function: take_first}
- name: flexible-extract
  filter:
  - {function: regex, group_select: -1, regex_pattern: '(-?[$0-9.,]{2,})|(-?[0-9]+)'}
  - {function: take_first}
""")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of tasks: a copy of gsm8k, and tasks that cannot be used."""
    folder = tmp_path_factory.mktemp("tasks")
    data = folder / "pears.jsonl"
    data.write_text("".join(json.dumps(document) + "\n" for document in DOCUMENTS))
    files = {"data_files": {"train": str(data)}, "cache_dir": str(folder / "cache")}
    graded = {"metric": "bleu", "aggregation": "bleu", "higher_is_better": True}
    error_rate = {"metric": "ter", "aggregation": "ter", "higher_is_better": False}
    variants = {
        "pears": {},
        "pears_bleu": {"metric_list": [graded, error_rate]},
        "pears_choice": {"output_type": "multiple_choice", "doc_to_choice": ["7", "8"]},
    }
    for name, change in variants.items():
        task = {**TASK, "dataset_kwargs": files, **change, "task": name}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(task))
    (folder / "group.yaml").write_text(yaml.safe_dump({"group": "fruit", "task": ["pears"]}))
    return str(folder)


def test_agrees_with_lm_eval(folder):
    """lm-eval's own evaluate() gives the same decisions for the same responses."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    from tests.canned_model import CannedModel

    responses = {"Ann": "the total is 7", "A car": "twice that\n#### 2,400."}
    out = simple_evaluate(
        model=CannedModel(
            lambda prompt: next(responses[start] for start in responses if start in prompt)
        ),
        tasks=["pears"],
        task_manager=TaskManager(include_defaults=False, include_path=folder),
        log_samples=True,
        bootstrap_iters=0,
    )
    for filter_name in ("strict-match", "flexible-extract"):
        expected = {
            s["doc"]["question"]: s["exact_match"]
            for s in out["samples"]["pears"]
            if s["filter"] == filter_name
        }
        verifier = load_verifier(
            "task_metric", task="pears", include_path=folder, metric=f"exact_match,{filter_name}"
        )
        verdicts = verifier.verify(list(responses.values()), DOCUMENTS)
        assert [v.passed for v in verdicts] == [expected[d["question"]] == 1 for d in DOCUMENTS]
        assert [v.passed for v in verdicts] == [filter_name == "flexible-extract", True]


def test_metric_that_is_not_0_or_1_is_error(folder, monkeypatch):
    verifier = load_verifier("task_metric", task="pears_bleu", include_path=folder)
    (verdict,) = verifier.verify(["#### 7"], [DOCUMENTS[0]])
    assert (verdict.status, "bleu" in verdict.reason) == ("error", True)
    stock = StockTask("pears", None, folder, 0.5)
    result = {"exact_match": float("nan")}
    monkeypatch.setattr(stock._task, "process_results", lambda document, results: result)
    (verdict,) = stock.verdicts(DOCUMENTS[:1], ["#### 7"])
    assert (verdict.status, "nan" in verdict.reason) == ("error", True)


def test_unreadable_record_is_error_for_itself_only(folder):
    verifier = load_verifier("task_metric", task="pears", include_path=folder)
    verdicts = verifier.verify(["#### 7"] * 3, [{"question": "?"}, "7", DOCUMENTS[0]])
    assert [v.status for v in verdicts] == ["error", "error", "pass"]


def test_description_depends_on_task_code_not_path(tmp_path):
    """Stored verdicts are not reused after a metric is edited."""
    yaml = (
        "task: own_metric\ndataset_path: json\ntest_split: test\n"
        "dataset_kwargs: {data_files: {test: FOLDER/data.jsonl}}\n"
        "doc_to_text: '{{q}}'\ndoc_to_target: '{{a}}'\noutput_type: generate_until\n"
        "process_results: !function own_code.judge\n"
        "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n"
    )
    code = "def judge(doc, results):\n    return {'exact_match': int(results[0] == doc['a'])}\n"

    descriptions = []
    for name, text in (("one", code), ("moved", code), ("edited", code.replace("==", "!="))):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "own_metric.yaml").write_text(yaml.replace("FOLDER", str(folder)))
        (folder / "own_code.py").write_text(text)
        (folder / "data.jsonl").write_text('{"q": "?", "a": "b"}\n')
        params = {"task": "own_metric", "include_path": str(folder)}
        descriptions.append(load_verifier("task_metric", **params).describe())
    assert descriptions[0] == descriptions[1] != descriptions[2]
