"""Sample logs written by lm_eval, once per session."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapft_harness.lm_eval_bridge.task_file.code_files import tasks_path
from tests.kit.shared import make_once

ROOT = Path(__file__).parents[2]

CHOICES = """\
task: two_options
dataset_path: json
dataset_kwargs: {data_files: {test: options.jsonl}}
output_type: multiple_choice
test_split: test
doc_to_text: "Find {{question}}.\\n"
doc_to_choice: ["12", "13"]
doc_to_target: "{{label}}"
metric_list: [{metric: acc}, {metric: acc_norm}]
metadata: {version: 3}
"""


@pytest.fixture(scope="session")
def logs(shared_root: Path) -> Path:
    """A folder with logs of the demo policy, which tests do not change."""
    return make_once(shared_root / "lm_eval_logs", write_logs)


def write_logs(folder: Path) -> None:
    """Evaluate the demo policy: greedy and K samples as before, sampled once as after.

    lm_eval evaluates and writes as its command does, but loads the model once.
    """
    from lm_eval import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    (folder / "tasks").mkdir()
    options = [{"question": f"{i} +{i}", "label": i % 2} for i in range(12)]
    data = folder / "tasks" / "options.jsonl"
    data.write_text("".join(json.dumps(option) + "\n" for option in options))
    (folder / "tasks" / "options.yaml").write_text(CHOICES.replace("options.jsonl", str(data)))
    model = HFLM(
        pretrained=str(ROOT / "gapft_harness/demo/policy"), dtype="float32", device="cpu",
        batch_size=16,
    )  # fmt: skip
    manager = TaskManager(
        include_path=[str(folder / "tasks"), str(tasks_path())], include_defaults=False
    )
    for side, tasks, settings in (
        ("before", ["gapft_demo", "gapft_demo_passk", "two_options"], None),
        ("after", ["gapft_demo", "two_options"], "do_sample=true,temperature=1.5"),
    ):
        tracker = EvaluationTracker(output_path=str(folder / side))
        done = simple_evaluate(
            model=model, tasks=tasks, limit=16, gen_kwargs=settings, log_samples=True,
            task_manager=manager, evaluation_tracker=tracker, bootstrap_iters=0,
            torch_random_seed=5,
        )  # fmt: skip
        samples = done.pop("samples")
        tracker.save_results_aggregated(results=done, samples=samples)
        for task, rows in samples.items():
            tracker.save_results_samples(task_name=task, samples=rows)
