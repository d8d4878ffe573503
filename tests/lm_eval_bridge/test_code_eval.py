"""lm-eval's own code tasks, with ``code_eval`` in the sandbox."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.lm_eval_bridge.code_eval import CodeEval, install_code_eval
from tests.gap.stock import PLUGIN, POLICY, K, evaluate_texts, run_gap, write_task
from tests.kit.patience import PATIENCE_S

DOCUMENTS = 4
ADD = "def add(a, b):\n    return a + b"

#: Candidates, and the outcome of each by code_eval's rules with the test below.
CANDIDATES = {
    ADD: "passed",
    "def add(a, b):\n    return a * b": "failed: AssertionError",
    f"import sys\nsys.exit(0)\n{ADD}": "failed: SystemExit: 0",
    f"raise SystemExit\n{ADD}": "failed: SystemExit",
    f"import os\nos._exit(0)\n{ADD}": "failed: it ended with status 0 and returned no value",
    f"while True:\n    pass\n{ADD}": "timed out",
    f"import time\ntime.sleep(30)\n{ADD}": "timed out",
    f"input()\n{ADD}": "failed: EOFError: EOF when reading a line",
    "def add(a, b:": "failed: SyntaxError",
    f"print('noise' * 9)\n{ADD}": "passed",
    f"<think>a * b?</think>\n{ADD}": "passed",
    f"<think>\n{ADD}": "failed: NameError",
    f"if __name__ == '__main__':\n    1 / 0\n{ADD}": "passed",
    f"import numpy as np\nnp.ones(3)\n{ADD}": "passed",
    f"import subprocess\nsubprocess.run(['true'])\n{ADD}": "failed: PermissionError",
    f"open('/etc/passwd').read()\n{ADD}": "failed: FileNotFoundError",
}


@pytest.fixture(scope="module")
def metric() -> CodeEval:
    return CodeEval()


def test_judges_candidates_as_code_eval(metric: CodeEval) -> None:
    rates, results = metric.compute(
        predictions=[[*CANDIDATES]], references=["assert add(2, 3) == 5"], k=[1, 100], timeout=1.0
    )
    outcomes = [outcome["result"] for _, outcome in results[0]]
    assert [
        a for a, b in zip(outcomes, CANDIDATES.values(), strict=True) if not a.startswith(b)
    ] == []
    passed = [outcome["passed"] for _, outcome in results[0]]
    assert passed == [expected == "passed" for expected in CANDIDATES.values()]
    assert rates == {"pass@1": sum(passed) / len(passed)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write humaneval with local data, and responses: every other one is right."""
    folder = tmp_path_factory.mktemp("code")
    tasks = folder / "tasks"
    tasks.mkdir()
    outside = folder / "outside"
    responses: dict[str, list[str]] = {}
    problems = []
    for i in range(DOCUMENTS):
        test = f"def check(candidate):\n    assert candidate(1) == {1 + i}\n"
        prompt = f'def f(x):\n    """[{i}] Add {i}."""\n'
        problems.append({"task_id": f"H/{i}", "prompt": prompt, "entry_point": "f", "test": test})
        # the first sample of the last document is an attack: it writes outside the sandbox
        bodies = [f"    return x + {i + (i + index) % 2}\n" for index in range(K + 1)]
        if i == DOCUMENTS - 1:
            bodies[1] = f"    open({str(outside)!r}, 'w').write('here')\n    return x + {i}\n"
        responses[f"[{i}]"] = bodies
    write_task(tasks, "humaneval", "humaneval/humaneval.yaml", {"test": problems})
    (folder / "canned.py").write_text(PLUGIN)
    (folder / "humaneval.json").write_text(json.dumps(responses))
    return folder


def is_right(document: int, index: int) -> bool:
    """Return whether a response is right; the attack is wrong, whatever it returns."""
    attacks = document == DOCUMENTS - 1 and index == 1
    return not attacks and (document + index) % 2 == 0


def test_gap_judges_in_sandbox(folder: Path) -> None:
    done = run_gap(folder, "humaneval")
    assert done.exit_code == 0, (done.output, done.exception)
    with (folder / "humaneval" / "gap" / "tables" / "items.csv").open() as file:
        rows = sorted(csv.DictReader(file), key=lambda row: int(row["doc_id"]))
    assert [(int(row["greedy"]), int(row["passing"])) for row in rows] == [
        (int(is_right(i, 0)), sum(is_right(i, index) for index in range(1, K + 1)))
        for i in range(DOCUMENTS)
    ]
    assert not (folder / "outside").exists()


def test_lm_eval_agrees_without_unsafe_flag(folder: Path) -> None:
    install_code_eval()
    for index in (0, 1):  # the second with the attack
        rows = evaluate_texts(folder, "humaneval", index)
        assert [row["pass@1"] for row in rows] == [is_right(i, index) for i in range(DOCUMENTS)]
    assert not (folder / "outside").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("enabled", [True, False])
def test_stock_command_requires_environment_variable(folder: Path, enabled: bool) -> None:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_EVALUATE_OFFLINE": "1"}
    env |= {"GAPFT_CODE_EVAL": "1"} if enabled else {}
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", "--model", "hf", "--model_args",
         f"pretrained={POLICY},dtype=float32", "--device", "cpu", "--gen_kwargs", "max_gen_toks=8",
         "--tasks", "humaneval", "--include_path", str(folder / "tasks"), "--limit", "1"],
        env=env, capture_output=True, text=True, check=False, cwd=folder, timeout=PATIENCE_S,
    )  # fmt: skip
    if enabled:
        assert done.returncode == 0, done.stderr
        assert "code_eval: programs run in the sandbox, tier" in done.stderr
    else:
        assert done.returncode != 0
        assert "code_eval: programs run" not in done.stderr


def test_rejects_other_unsafe_tasks(tmp_path: Path) -> None:
    write_task(
        tmp_path,
        "other",
        "gsm8k/gsm8k.yaml",
        {split: [{"question": "[0]", "answer": "#### 1"}] for split in ("train", "test")},
        unsafe_code=True,
        num_fewshot=0,
    )
    from gapft_harness.lm_eval_bridge.stock import StockTask

    with pytest.raises(UserError, match="without code_eval"):
        StockTask("other", include_path=str(tmp_path))
