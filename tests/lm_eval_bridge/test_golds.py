"""Bad gold answers are rejected before generation, with file and line."""

import json
from types import SimpleNamespace

import pytest
from lm_eval.tasks import TaskManager

from gapft_harness import load_verifier
from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.discovery import load_task
from tests.kit.command import gapft

YAML = """
task: sums
class: !function gapft_harness.lm_eval_bridge.task.GapTask
dataset_path: json
dataset_kwargs: {data_files: {pool: pool.jsonl, audit: audit.jsonl}}
training_split: pool
test_split: audit
doc_to_text: "{{question}}"
doc_to_target: TARGET
generation_kwargs: {do_sample: false, max_gen_toks: 9, until: []}
metadata:
  version: 1
  gapft: {verifier: VERIFIER}
"""
GOOD = {"question": "29 + 1?", "answer": "30"}


@pytest.fixture
def write_task(tmp_path):
    """Write a task with a faulty record on line 2 of its audit."""

    def write(second, target='"{{answer}}"', verifier="boxed_math"):
        rows = [json.dumps(row) for row in (GOOD, {**GOOD, **second})]
        (tmp_path / "pool.jsonl").write_text(rows[0], encoding="utf-8")
        (tmp_path / "audit.jsonl").write_text("\n".join(rows), encoding="utf-8")
        text = YAML.replace("TARGET", target).replace("VERIFIER", verifier)
        (tmp_path / "sums.yaml").write_text(text, encoding="utf-8")
        return tmp_path

    return write


def load_lm_eval_task(folder):
    """Load a task as stock lm_eval does; return it and the function that builds requests."""
    manager = TaskManager(include_defaults=False, include_path=[str(folder)])
    task = manager.load(["sums"])["tasks"]["sums"]
    return task, lambda: task.build_all_requests()


@pytest.mark.parametrize(
    "target",
    ['"{{answer}}"', "answer", '"{{ answer }} "', "\"{{ answer if answer else '' }}\""],
)
@pytest.mark.parametrize("answer", [None, "", " \n"], ids=["null", "empty", "blank"])
def test_rejects_empty_target(write_task, target, answer):
    folder = write_task({"answer": answer}, target)
    task = load_task("sums", [folder])
    assert [problem.gold.strip() for problem in task.read_pool()] == ["30"]
    with pytest.raises(UserError, match=r"audit\.jsonl, line 2: .*(found|is) (null|empty)"):
        task.read_audit()
    _, build = load_lm_eval_task(folder)
    with pytest.raises(UserError, match=r"audit\.jsonl, line 2: "):
        build()


@pytest.mark.parametrize(
    "gold", ["answer", '"{{answer}}"', "{answer: answer}", '{answer: "{{answer}}"}']
)
def test_rejects_empty_gold(write_task, gold):
    folder = write_task({"answer": None}, verifier=f"boxed_math, gold: {gold}")
    with pytest.raises(UserError, match=r"audit\.jsonl, line 2: .*null"):
        load_task("sums", [folder]).read_audit()


def test_accepts_null_beside_answer(write_task):
    spec = "mine, gold: {answer: answer, hidden: hidden}"
    folder = write_task({"hidden": None}, verifier=spec)
    (folder / "pool.jsonl").write_text(json.dumps({**GOOD, "hidden": None}), encoding="utf-8")
    assert load_task("sums", [folder]).read_pool()[0].gold == {"answer": "30", "hidden": None}


def test_checks_golds_with_recipe_verifier(write_task):
    task = load_task("sums", [write_task({"answer": "B"})])
    task.check_golds(load_verifier("boxed_math"), "pool")
    task.check_golds(load_verifier("boxed_math"), "audit")
    # A recipe's verifier: 30 is not a letter, and B is one.
    with pytest.raises(
        UserError, match=r"pool\.jsonl, line 1: the gold answer '30' is not an option"
    ):
        task.check_golds(load_verifier("option_letter"), "pool")
    refuse_b = SimpleNamespace(check_gold=lambda gold: "it is B" if gold == "B" else "")
    with pytest.raises(UserError, match=r"audit\.jsonl, line 2: it is B$"):
        task.check_golds(refuse_b, "audit")


def test_lm_eval_checks_golds_before_generation(write_task):
    folder = write_task({"answer": "B"}, verifier="option_letter")
    task, build = load_lm_eval_task(folder)
    with pytest.raises(
        UserError, match=r"audit\.jsonl, line 1: the gold answer '30' is not an option"
    ):
        build()
    task.override_metric("bypass")  # --predict_only judges nothing.
    task.build_all_requests()
    assert len(task.instances) == 2


def test_eval_reports_place_and_exits_with_2(write_task):
    folder = write_task({"answer": None})
    done = gapft(
        *("eval", "--model", "dummy", "--tasks", "sums", "--include_path", folder), cwd=folder
    )
    assert done.returncode == 2, done.stderr
    assert f"gapft: {folder / 'audit.jsonl'}, line 2: " in done.stderr
    assert "Traceback" not in done.stderr
