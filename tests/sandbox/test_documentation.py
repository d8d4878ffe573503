"""The sandbox's code in docs/verifiers.md runs."""

from __future__ import annotations

import re
from pathlib import Path

from gapft_harness.sandbox import Limits

PAGE = (Path(__file__).parents[2] / "docs" / "verifiers.md").read_text(encoding="utf-8")


def test_documented_python_prints_its_comments():
    section = PAGE.partition("\n## The sandbox\n")[2]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    code = code.replace('preload=("numpy",), ', "").replace(
        "limits=Limits(cpu_s=6)", "limits=small"
    )
    space = {"small": Limits(memory_bytes=256 << 20)}
    exec(code, space)
    (result,) = space["results"]
    comments = re.findall(r"# (.*)", code)
    assert [repr(result.verdict), repr(result.tests[0].output)] == comments
