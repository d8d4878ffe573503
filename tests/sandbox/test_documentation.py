"""The code of docs/sandbox.md runs."""

from __future__ import annotations

import re
from pathlib import Path

from gapft_harness.sandbox import Limits
from gapft_harness.verification.program_file import judge_file

PAGE = (Path(__file__).parents[2] / "docs" / "sandbox.md").read_text(encoding="utf-8")


def test_documented_python_prints_its_comments():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    code = code.replace('preload=("numpy",), ', "").replace(
        "limits=Limits(cpu_s=6)", "limits=small"
    )
    space = {"small": Limits(memory_bytes=256 << 20)}
    exec(code, space)
    (result,) = space["results"]
    comments = re.findall(r"# (.*)", code)
    assert [repr(result.verdict), repr(result.tests[0].output)] == comments


def test_documented_records_are_judged(tmp_path):
    (records,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "programs.jsonl"
    path.write_text(records)
    lines = list(judge_file(path, workers=1, limits=Limits(memory_bytes=256 << 20)))
    assert [line.count('"verdict": "accepted"') for line in lines] == [2, 2]
