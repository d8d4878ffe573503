"""The recipe of the real-model study, reduced, and the tables that its page is made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import succeed
from tests.kit.report_tables import index_rows, read_results
from tests.study_script import import_study

MODEL = os.environ.get("GAPFT_REAL_MODEL", "")
pytestmark = pytest.mark.skipif(not MODEL, reason="GAPFT_REAL_MODEL: make test-real-model sets it")

#: Sums of one digit with worked examples, which this smaller model solves in part.
TASK = """\
task: short_sums
class: !function gapft_harness.lm_eval_bridge.reasoning_gym.ReasoningGymTask
dataset_kwargs:
  generators:
    chain_sum: {min_terms: 2, max_terms: 2, max_digits: 1}
    basic_arithmetic: {min_terms: 2, max_terms: 2, max_digits: 1, operators: ["+"]}
  pool: 40
  audit: 12
num_fewshot: 2
fewshot_config:
  sampler: first_n
  doc_to_target: "Answer: {{answer}}"
  samples:
    - question: &a "State the final answer to the following arithmetic problem: 21 + 3 ="
      answer: "24"
      gold: {generator: chain_sum, settings: {}, question: *a, answer: "24", metadata: {}}
    - question: &b "State the final answer to the following arithmetic problem: 15 - 4 ="
      answer: "11"
      gold: {generator: chain_sum, settings: {}, question: *b, answer: "11", metadata: {}}
generation_kwargs: {do_sample: false, max_gen_toks: 8, until: []}
"""
REDUCED = [
    "budget.n=4",
    "search.k=4",
    "training.repetitions=1",
    "training.dtype=float32",
    "seeds=[101]",
]
CONDITIONS = {"gapft", "uniform", "replay", "half_replay", "unverified", "wrong", "all_verified"}


study = import_study()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reduced run of the recipe."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "short_sums.yaml").write_text(TASK, "utf-8")
    options = [word for setting in REDUCED for word in ("--set", setting)]
    succeed(
        "run", "small/reasoning-gym", "--task", "short_sums", "--include-path", ".", "--run-dir",
        "run", "--model-args", f"pretrained={MODEL},dtype=float32", *options, cwd=folder,
    )  # fmt: skip
    return folder / "run"


@pytest.fixture(scope="module")
def tables(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The study's tables of this run, read again."""
    folder = tmp_path_factory.mktemp("tables")
    study.extract(run, folder)
    return study.load(folder)


def test_run_has_all_conditions_and_verifies(run: Path, tables: Any) -> None:
    assert set(tables.conditions) == CONDITIONS
    succeed("verify", run)


def test_tables_give_the_reports_figures(run: Path, tables: Any) -> None:
    results = read_results(run)
    for row in results["conditions"]:
        assert tables.passed[row["condition"]].mean() == pytest.approx(row["pass_at_1"])
    pairs = index_rows(results["contrasts"], "a", "b")
    assert len(pairs) == 7 * 6 / 2 + 7
    for (a, b), row in pairs.items():
        estimate = tables.change(a, b)
        assert estimate.value == pytest.approx(row["delta"])
        low, high = estimate.estimate.low, estimate.estimate.high
        if low < high:
            assert [low, high] == pytest.approx([row["delta_low"], row["delta_high"]])
        else:  # resampling shows no variation: the report has Newcombe's interval
            assert row["delta_low"] < low == high < row["delta_high"]
        regressions = tables.estimate(
            lambda name: (tables.states == "G") & ~tables.passed[name], a, b, tables.ids
        )
        assert -regressions.value == pytest.approx(row["term_G"])
