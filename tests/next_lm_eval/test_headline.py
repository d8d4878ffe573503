"""The next lm-eval finds our tasks, uses our verifiers and works with gapft's commands.

``make test-next`` runs this with that version on PYTHONPATH.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import lm_eval
import pytest

from gapft_harness import load_verifier
from gapft_harness.lm_eval_bridge.task_file.versions import IS_NEXT
from tests.command import succeed
from tests.end_to_end.results_checks import check_results
from tests.patience import PATIENCE_S

POLICY = Path(__file__).parents[2] / "gapft_harness" / "demo" / "policy"
DOCUMENTS, SAMPLES = 12, 8

pytestmark = pytest.mark.skipif(not IS_NEXT, reason="make test-next runs it with lm_eval 0.5")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stock command's logs for two of our tasks."""
    folder = tmp_path_factory.mktemp("logs")
    command = [
        sys.executable, "-m", "lm_eval", "run", "--model", "hf", "--device", "cpu",
        "--limit", str(DOCUMENTS), "--batch_size", "32",
        "--model_args", f"pretrained={POLICY},dtype=float32",
        "--tasks", "gapft_demo", "gapft_demo_passk", "--log_samples", "--output_path", str(folder),
    ]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=folder,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def find_log(logs: Path, task: str) -> Path:
    (log,) = logs.rglob(f"samples_{task}_2*.jsonl")
    return log


def test_installed_version_is_the_next_one() -> None:
    assert lm_eval.__version__.startswith("0.5")


def test_lm_eval_judges_tasks_with_our_verifier(logs: Path) -> None:
    (results,) = logs.rglob("results_*.json")
    written = json.loads(results.read_text())
    assert written["lm_eval_version"] == lm_eval.__version__
    rates = written["results"]
    verifier = load_verifier("boxed_math")
    tasks = (("gapft_demo", "none", 1), ("gapft_demo_passk", "samples", SAMPLES))
    for task, filter, samples in tasks:
        rows = [json.loads(line) for line in find_log(logs, task).read_text().splitlines()]
        assert len(rows) == DOCUMENTS
        passing = 0
        for row in rows:
            texts = row["resps"][0]
            assert len(texts) == samples
            verdicts = verifier.verify(texts, [row["target"]] * samples)
            assert [row_verdict["status"] for row_verdict in row["verdicts"]] == [
                v.status for v in verdicts
            ]
            passing += sum(verdict.passed for verdict in verdicts)
        assert 0 < passing < DOCUMENTS * samples
        assert rates[task][f"pass@1,{filter}"] == pytest.approx(passing / DOCUMENTS / samples)


def test_compare_and_rejudge_read_its_logs(logs: Path, tmp_path: Path) -> None:
    greedy, samples = find_log(logs, "gapft_demo"), find_log(logs, "gapft_demo_passk")
    succeed("compare", greedy, greedy, "--source-samples", samples, "--out", tmp_path / "compared")
    passing = {}
    for log in (greedy, samples):
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        passing[log] = [any(v["status"] == "pass" for v in row["verdicts"]) for row in rows]
    states = ["G" if g else "S" if s else "U" for g, s in zip(*passing.values(), strict=True)]
    results = json.loads((tmp_path / "compared" / "results.json").read_text())
    assert results["before"]["mean"] == states.count("G") / DOCUMENTS
    assert results["source_samples"]["k"] == SAMPLES
    assert results["source_samples"]["states"] == {state: states.count(state) for state in "GSU"}
    succeed("rejudge", greedy, "--verifier", "boxed_math", "--out", tmp_path / "rejudged")
    again = json.loads((tmp_path / "rejudged" / "results.json").read_text())
    assert again["verdicts"] == {"fail": DOCUMENTS - states.count("G"), "pass": states.count("G")}
    assert again["right_now"] == again["wrong_now"] == 0


def test_run_searches_trains_and_evaluates(tmp_path: Path) -> None:
    run = tmp_path / "run"
    succeed(
        "demo", "--run-dir", run, "--limit", "40", "--condition", "gapft", "--seed", "13",
        "--set", "training.repetitions=1", "--set", "statistics.replicates=40",
        "--set", "executor.workers=1",
    )  # fmt: skip
    check_results(json.loads((run / "report/results.json").read_text()))
    succeed("verify", run)
