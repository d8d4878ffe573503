"""Our verifiers in stock YAML: a metric and a filter from lm_eval's entry-point groups."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapft_harness import load_verifier
from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge import offered
from gapft_harness.lm_eval_bridge.task_file.versions import IS_NEXT
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
TEXTS = ["\\boxed{1/2}", "It is \\boxed{0.50}.", "\\boxed{3}", "none", "\\boxed{\\frac{1}{2}}"]
GOLD = "1/2 "

#: Evaluate TEXTS with stock lm_eval and print the results as JSON.
SCRIPT = """
import json, sys
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from tests.canned_model import CannedModel

manager = TaskManager(include_defaults=False, include_path=sys.argv[1])
out = simple_evaluate(
    model=CannedModel(str), tasks=["said"], task_manager=manager,
    log_samples=True, bootstrap_iters=0,
)
rows = [
    [row["filter"], row["doc"]["text"], row["filtered_resps"], row["gapft_verified"]]
    for row in out["samples"]["said"]
]
print(json.dumps([rows, {k: v for k, v in out["results"]["said"].items() if "verif" in k}]))
"""
YAML = """
task: said
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: generate_until
doc_to_text: "{{text}}"
doc_to_target: "{{gold}}"
generation_kwargs: {until: ["~"], max_gen_toks: 5}
filter_list:
  - name: whole
    filter: [{function: take_first}]
  - name: box
    filter: [{function: gapft_answer, verifier: boxed_math}, {function: take_first}]
metric_list:
  - metric: gapft_verified
    verifier: boxed_math
    params: {timeout_s: 20}
"""


@pytest.fixture
def run_stock_lm_eval(tmp_path: Path) -> Any:
    """Run stock lm_eval with only the entry points that pyproject.toml declares."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    facts = tmp_path / "offers" / "offers-1.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: offers\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in groups[group].items())
            for group in ("lm_eval.filters", "lm_eval.metrics")
        )
    )
    (tmp_path / "tasks").mkdir()
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"text": t, "gold": GOLD}) + "\n" for t in TEXTS))

    def run(yaml: str = YAML, **environment: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "tasks" / "said.yaml").write_text(yaml.replace("FILE", str(data)))
        path = os.pathsep.join(
            filter(None, [str(facts.parent), os.environ.get("PYTHONPATH"), str(ROOT)])
        )
        return subprocess.run(
            [sys.executable, "-c", SCRIPT, str(tmp_path / "tasks")],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": path, "HF_DATASETS_CACHE": str(tmp_path)} | environment,
        )  # fmt: skip

    return run


def test_stock_yaml_uses_verifier_and_filter(run_stock_lm_eval: Any) -> None:
    done = run_stock_lm_eval()
    assert done.returncode == 0, done.stderr[-3000:]
    rows, results = json.loads(done.stdout.splitlines()[-1])
    verifier = load_verifier("boxed_math")
    passed = [v.passed for v in verifier.verify(TEXTS, [GOLD] * len(TEXTS))]
    assert passed == [True, True, False, False, True]
    outcomes = {(name, text): (answer_text, score) for name, text, answer_text, score in rows}
    assert len(outcomes) == 2 * len(TEXTS)
    assert [outcomes["whole", text][1] for text in TEXTS] == passed
    for text in TEXTS:
        answer_text = outcomes["box", text][0]
        answer = verifier.answer(text)
        assert (answer_text[0] if IS_NEXT else answer_text) == [
            "[invalid]" if answer is None else answer
        ]
    assert results["gapft_verified,whole"] == pytest.approx(sum(passed) / len(TEXTS))
    assert (
        results["gapft_verified,box"] == 0
    )  # the filter removed the box that the verifier requires


def test_lm_eval_needs_hook(run_stock_lm_eval: Any) -> None:
    assert run_stock_lm_eval(GAPFT_NO_AUTOLOAD="1").returncode != 0


def test_accepts_answer_lists_and_names_mistakes() -> None:
    judged = offered.gapft_verified([["7", "8"]], ["\\boxed{8}"], verifier="boxed_math")
    assert judged == ([1.0] if IS_NEXT else 1.0)
    for options, message in (
        ({}, "metric gapft_verified: the key 'verifier' is missing"),
        ({"verifier": "boxed_mth"}, "metric gapft_verified: unknown verifier 'boxed_mth'"),
        ({"verifyer": "boxed_math"}, "metric gapft_verified: unknown key 'verifyer'; did you mean"),
    ):
        with pytest.raises(UserError, match=message):
            offered.gapft_verified(["7"], ["7"], **options)
        message = message.replace("metric gapft_verified", "filter gapft_answer")
        with pytest.raises(UserError, match=message):
            offered.AnswerFilter(**options)
    with pytest.raises(UserError, match="empty list of answers in doc_to_target"):
        offered.gapft_verified([[]], ["7"], verifier="boxed_math")
    with pytest.raises(UserError, match="take_first"):
        offered.gapft_verified(["7"], [["7", "8"]], verifier="boxed_math")
    with pytest.raises(UserError, match="'program_tests' cannot extract answers"):
        offered.AnswerFilter(verifier="program_tests")


def test_documented_filter_reads_letter() -> None:
    page = (ROOT / "docs" / "verifiers.md").read_text()
    (example,) = re.findall(r"`(\{function: gapft_answer, .*?\})`", page)
    options = yaml.safe_load(example)
    del options["function"]
    answers = offered.AnswerFilter(**options).apply([["The answer is (C).", "No idea."]], [{}])
    assert answers == [["C", "[invalid]"]]
