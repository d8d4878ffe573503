"""The documented base model: no chat template, two examples in the prompt, stop strings."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.kit.command import ROOT, succeed
from tests.kit.tiny_models import write_byte_llama

_FILE = re.compile(r"```\w+ title=(\S+)\n(.*?)```", re.DOTALL)


@pytest.mark.thorough
def test_documented_base_model_task_runs(tmp_path: Path) -> None:
    for page in ("run", "tasks"):
        for name, content in _FILE.findall((ROOT / "docs" / f"{page}.md").read_text()):
            (tmp_path / name).write_text(content)
    write_byte_llama(tmp_path / "model")
    succeed(
        "run", "--task", "base", "--include-path", ".", "--only", "search", "--run-dir", "run",
        "--model-args", "pretrained=./model,dtype=float32,device=cpu", "--set", "search.k=2",
        "--set", "model.chat_template=false", cwd=tmp_path,
    )  # fmt: skip
    (problem,) = pq.read_table(tmp_path / "run/audit/problems.parquet").to_pylist()
    first, second, question = problem["prompt"].split("\n\n")
    assert all(example.startswith("Question: ") for example in (first, second, question))
    assert question.endswith("\nAnswer:")
    assert problem["turns"] in (None, "", "[]")
    responses = pq.read_table(tmp_path / "run/audit/responses.parquet").to_pylist()
    assert len(responses) == 3
    assert not any("Question:" in response["text"] for response in responses)
