"""Logs of several tasks with different metrics and filters, and groups of tasks.

lm_eval writes logs and results, with a canned model on multiple-choice and generation tasks.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lm_eval.loggers import EvaluationTracker

from gapft_harness.compare.gate import check_policy
from gapft_harness.compare.policy import build_margin_rule
from tests.canned_model import CannedModel, evaluate
from tests.compare.command import read_refusal, run_compare
from tests.compare.logs import compare_logs, read_results, row, write_log

#: Number of documents by task.
SIZES = {"said_2": 14, "said_10": 40, "chosen": 9}
#: Whether lm_eval weights the mean, by group; the first group contains the second.
GROUPS = {"by_size": True, "alike": False}


class Answers(CannedModel):
    """Answer 7, or 8 for questions with a number in ``wrong``; score options likewise."""

    def __init__(self, wrong: set[int]) -> None:
        super().__init__(lambda prompt: f"It is {7 + self.errs(prompt)}")
        self._wrong = wrong

    def errs(self, prompt: str) -> bool:
        return int(prompt.split("#")[1].split()[0]) in self._wrong

    def loglikelihood(self, requests: Any) -> Any:
        """Make the second option likelier, except for wrong answers."""
        return [
            (-1.0 - ((request.args[1].strip() == "7") != self.errs(request.args[0])), False)
            for request in requests
        ]


@pytest.fixture(scope="module")
def lm_eval_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the folders ``before`` and ``after`` as lm_eval's command does."""
    folder = tmp_path_factory.mktemp("several")
    for task, size in SIZES.items():
        data = folder / f"{task}.jsonl"
        data.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(size)))
        text = f"task: {task}\ndataset_path: json\ntest_split: test\n"
        text += f"dataset_kwargs: {{data_files: {{test: {data}}}}}\nmetadata: {{version: 1}}\n"
        text += 'doc_to_text: "Question #{{n}} of TASK"\n'.replace("TASK", task)
        if task == "chosen":
            text += 'output_type: multiple_choice\ndoc_to_choice: ["7", "8"]\ndoc_to_target: 1\n'
            text += "metric_list: [{metric: acc}, {metric: acc_norm}]\n"
        else:
            text += 'output_type: generate_until\ndoc_to_target: "7"\n'
            text += "generation_kwargs: {until: ['\\n'], max_gen_toks: 8}\n"
            text += "filter_list: [{name: strict, filter: [{function: regex, "
            text += 'regex_pattern: "(\\\\d)"}, {function: take_first}]}]\n'
            text += (
                "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n"
            )
        (folder / f"{task}.yaml").write_text(text)
    for (group, weighted), tasks in zip(GROUPS.items(), ("alike", "said_2, said_10"), strict=True):
        (folder / f"{group}.yaml").write_text(
            f"group: {group}\ntask: [{tasks}]\nmetadata: {{version: 1}}\n"
            "aggregate_metric_list: [{metric: exact_match, filter_list: strict, "
            f"weight_by_size: {str(weighted).lower()}}}]\n"
        )
    for side, wrong in (
        ("before", {*range(0, 40, 2)}),
        ("after", {*range(4), *range(20, 26)}),
    ):
        tracker = EvaluationTracker(output_path=str(folder / side))
        options = {"log_samples": True, "evaluation_tracker": tracker}
        done = evaluate(Answers(wrong), ["by_size", "chosen"], folder, **options)
        samples = done.pop("samples")
        tracker.save_results_aggregated(results=done, samples=samples)
        for task, rows in samples.items():
            tracker.save_results_samples(task_name=task, samples=rows)
    return folder


def read_reported(folder: Path) -> dict[str, dict[str, Any]]:
    """Read lm_eval's own results of tasks and groups."""
    (path,) = folder.rglob("results_*.json")
    results: dict[str, dict[str, Any]] = json.loads(path.read_text())["results"]
    return results


def test_tasks_and_groups_match_lm_eval(lm_eval_logs: Path) -> None:
    results = read_results(compare_logs(lm_eval_logs / "before", f"new={lm_eval_logs / 'after'}"))
    assert {task["task"]: (task["metric"], task["filter"]) for task in results["tasks"]} == {
        "said_2": ("exact_match", "strict"),
        "said_10": ("exact_match", "strict"),
        "chosen": ("acc", "none"),
    }
    assert [task["group"] for task in results["groups"]] == ["chosen", "said_2", "said_10"]
    groups = {group["group"]: group for group in results["task_groups"]}
    by_size, alike = (groups[name] for name in GROUPS)
    assert (by_size["weights"], alike["weights"]) == ("documents", "equal")
    reported_by_side = [read_reported(lm_eval_logs / side) for side in ("before", "after")]
    for entry in (*results["groups"], by_size, alike):
        key = "acc,none" if entry["group"] == "chosen" else "exact_match,strict"
        before, after = (side[entry["group"]][key] for side in reported_by_side)
        assert (entry["before"], entry["after"]) == pytest.approx((before, after))
        assert entry["difference"] == pytest.approx(after - before)
        assert entry["difference_low"] < entry["difference"] < entry["difference_high"]
    assert not math.isclose(by_size["difference"], alike["difference"]), "the two means must differ"
    assert (by_size["test"], alike["test"]) == ("mcnemar", "sign_flip")


def test_equal_weight_interval_matches_bootstrap(lm_eval_logs: Path) -> None:
    """Compare with an independent bootstrap that draws documents within each task."""
    comparison = compare_logs(lm_eval_logs / "before", lm_eval_logs / "after")
    (group,) = comparison.by_aggregate["alike"].values()
    (after,) = comparison.numbers.after.values()
    tasks = np.array(comparison.tasks)
    generator = np.random.default_rng(1)
    means = np.zeros(20_000)
    for task in ("said_2", "said_10"):
        values = (after[0] - comparison.numbers.before)[tasks == task]
        means += generator.choice(values, (len(means), len(values))).mean(axis=1) / 2
    low, high = np.quantile(means, [0.025, 0.975])
    assert (group.estimate.low, group.estimate.high) == pytest.approx((low, high), abs=0.03)


def test_different_metrics_have_no_common_mean(tmp_path: Path) -> None:
    loss = [{"metrics": ["loss"], "loss": n / 8} for n in range(40)]
    for side, worse in (("a", 0), ("b", 4)):
        write_log(tmp_path / side, [1] * (40 - worse) + [0] * worse, task="right")
        rows = [
            row(n, 0, **fields | {"loss": fields["loss"] + worse}) for n, fields in enumerate(loss)
        ]
        path = write_log(tmp_path / side, rows=rows, task="loss", date="2026-01-02T00-00-00.1")
        facts = {"higher_is_better": {"loss": {"loss": False}}, "versions": {"loss": 1}}
        (path.parent / "results_2026-01-02T00-00-00.1.json").write_text(json.dumps(facts))
    results = read_results(compare_logs(tmp_path / "a", f"b={tmp_path / 'b'}"))
    assert "models" not in results
    differences = {task["group"]: task["difference"] for task in results["groups"]}
    assert differences == {"loss": pytest.approx(4), "right": pytest.approx(-0.1)}
    assert [(task["task"], task["better"]) for task in results["tasks"]] == [
        ("loss", "lower"), ("right", "higher"),
    ]  # fmt: skip
    assert list_blocked(tmp_path, 0.5) == ["loss"], "lower is better; the metric is not a share"
    assert list_blocked(tmp_path, 0.001) == ["loss", "right"]
    done = run_compare(tmp_path / "a", tmp_path / "b", "--out", tmp_path / "out")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "+4" in done.output
    read_refusal(tmp_path / "a", tmp_path / "b", "--by", "subject")
    read_refusal(tmp_path / "a", tmp_path / "b", "--source-samples", tmp_path / "b")


def list_blocked(folder: Path, margin: float) -> list[str]:
    """List the tasks on which b is worse than a by more than a margin."""
    comparison = compare_logs(folder / "a", f"b={folder / 'b'}")
    checks = check_policy(comparison, [build_margin_rule(margin)])
    return [check.task for check in checks if check.decision.verdict == "BLOCK"]


def test_checks_groups_of_tasks(lm_eval_logs: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "tasks: {by_size: {'exact_match,strict': 0.5}, said_10: {exact_match: 0.5}, "
        "chosen: {acc_norm: 0.9}}",
    )
    sides = lm_eval_logs / "before", f"new={lm_eval_logs / 'after'}"
    done = run_compare(*sides, "--policy", policy, "--format", "json")
    assert done.exit_code == 0, (done.output, done.exception)
    results = json.loads(done.stdout)
    group, task, chosen = results["gate"]
    rows = {row["group"]: row for row in (*results["task_groups"], *results["groups"])}
    assert group["difference"] == rows["by_size"]["difference"]
    assert task["difference_low"] == rows["said_10"]["difference_low"]
    metrics = {row["task"]: row["metric"] for row in results["tasks"]}
    assert (chosen["metric"], metrics["chosen"]) == ("acc_norm", "acc")
    policy.write_text("tasks: {said_10: {exact_match: 0.5}}")
    words = " ".join(run_compare(*sides, "--policy", policy).output.split())
    assert "Tasks without a rule: chosen, said_2." in words
    policy.write_text("tasks: {by_size: {acc: 0.5}}")
    assert "'tasks.by_size.acc'" in read_refusal(*sides, "--policy", policy)
