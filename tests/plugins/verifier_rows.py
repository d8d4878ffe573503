"""One row for each bundled verifier and rule, for the laws that hold for all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from gapft_harness import load_verifier
from gapft_harness.hooks.judge import Judge
from gapft_harness.sandbox import probe_tiers

SQUARE = "\n```python\nprint(int(input()) ** 2)\n```\n"
CUBE = "\n```python\nprint(int(input()) ** 3)\n```\n"


@dataclass(frozen=True)
class VerifierRow:
    """A verifier and a problem.

    Attributes:
        name: its registered name.
        gold: the gold answer of a problem.
        right: a response that passes.
        wrong: a response that fails.
        params: its parameters.
    """

    name: str
    gold: Any
    right: str
    wrong: str
    params: Mapping[str, Any] = field(default_factory=dict)


CHOICE = {"answer": "B", "options": ["one", "two", "three"]}
ROWS = {
    "whole_response": VerifierRow("option_letter", "B", "B", "C", {"rule": "whole_response"}),
    "first_explicit": VerifierRow("option_letter", "B", "(B)", "(C)", {"rule": "first_explicit"}),
    "permissive": VerifierRow(
        "option_letter", CHOICE, "B. two", "C. three", {"rule": "permissive"}
    ),
    "boxed_math": VerifierRow("boxed_math", "5", r"\boxed{5}", r"\boxed{7}"),
    "math": VerifierRow("math", "5", "It is 5.", "It is 7."),
    "task_metric": VerifierRow("task_metric", {"question": "?", "answer": "5"}, "5", "7"),
    "program_tests": VerifierRow(
        "program_tests",
        {"kind": "stdin", "tests": [{"input": "3\n", "expected": "9\n"}]},
        SQUARE,
        CUBE,
        {"limits": {"memory_bytes": 256 << 20}},
    ),
    "reasoning_gym": VerifierRow(
        "reasoning_gym",
        {"generator": "lcm", "settings": {}, "question": "?", "answer": "12", "metadata": {}},
        "Answer: 12",
        "Answer: 13",
    ),
}


def write_metric_task(folder: Path, **changes: Any) -> dict[str, str]:
    """Write a stock task whose metric is an exact match of the whole response.

    Args:
        folder: gets the task and its data.
        changes: other keys of the task.

    Returns:
        The parameters of ``task_metric``.
    """
    folder.mkdir(exist_ok=True)
    (folder / "data.jsonl").write_text(json.dumps({"question": "?", "answer": "5"}))
    files = {"data_files": {"train": str(folder / "data.jsonl")}}
    task = {
        "task": "pears",
        "dataset_path": "json",
        "dataset_kwargs": {**files, "cache_dir": str(folder / "cache")},
        "output_type": "generate_until",
        "test_split": "train",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "metric_list": [{"metric": "exact_match"}],
    }
    (folder / "pears.yaml").write_text(yaml.safe_dump(task | changes))
    return {"task": "pears", "include_path": str(folder)}


def create_verifier(row: VerifierRow, folder: Path) -> Judge:
    """Create the verifier of a row, with one worker; skip the test where it cannot run.

    Args:
        row: the verifier's row.
        folder: an empty folder, for the task of ``task_metric``.
    """
    params = dict(row.params)
    if row.name == "program_tests" and not any(outcome.holds for outcome in probe_tiers()):
        pytest.skip("no sandbox tier holds on this machine: NOT TESTED")
    if row.name == "reasoning_gym" and find_spec("reasoning_gym") is None:
        pytest.skip("the extra reasoning-gym is not installed: NOT TESTED")
    if row.name == "task_metric":
        params |= write_metric_task(folder)
    elif row.name != "option_letter":
        params |= {"workers": 1}
    return load_verifier(row.name, **params)
