"""A sound task of sums, which tests change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lm_eval.tasks import TaskManager

YAML = """
task: sums
class: !function gapft_harness.lm_eval_bridge.task.GapTask
dataset_path: json
dataset_kwargs: {data_files: {pool: pool.jsonl, audit: audit.jsonl}}
training_split: pool
test_split: audit
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {do_sample: false, max_gen_toks: 9, until: []}
metadata:
  version: 1
  gapft: {verifier: boxed_math, id: name}
"""


def build_record(number: int, **more: object) -> dict[str, object]:
    return {"name": f"n{number}", "question": f"{number} + 1?", "answer": f"{number + 1}", **more}


def write_rows(path: Path, rows: list[Any]) -> None:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def write_sums(folder: Path) -> None:
    """Write the task with six problems in the pool and three in the audit."""
    for name, numbers in (("pool", range(6)), ("audit", range(6, 9))):
        rows = [build_record(n, kind="sum", worked=f"\\boxed{{{n + 1}}}") for n in numbers]
        write_rows(folder / f"{name}.jsonl", rows)
    (folder / "sums.yaml").write_text(YAML, encoding="utf-8")


def edit_task(folder: Path, old: str, new: str) -> None:
    """Replace a part of the sound task."""
    assert old in YAML
    (folder / "sums.yaml").write_text(YAML.replace(old, new), encoding="utf-8")


def load_with_lm_eval(folder: Path, name: str = "sums") -> Any:
    """Load a task as the stock lm_eval does."""
    manager = TaskManager(include_defaults=False, include_path=[str(folder)])
    return manager.load([name])["tasks"][name]
