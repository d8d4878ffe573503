"""docs/python.ipynb runs unchanged on README's demo run and two logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.compare.logs import write_log

NOTEBOOK = Path(__file__).parents[2] / "docs" / "python.ipynb"


def test_notebook_prints_the_reports_values(
    demo_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "demo").symlink_to(demo_run)
    write_log(tmp_path / "before", [1, 0, 0, 1] * 20)
    write_log(tmp_path / "after", [1, 1, 0, 1] * 20)
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    names: dict[str, Any] = {}
    for cell in code:
        exec("".join(cell["source"]), names)
    results = json.loads((demo_run / "report" / "results.json").read_text("utf-8"))
    rates = names["rates"].groupby("condition").mean()
    rows = {row["condition"]: row["pass_at_1"] for row in results["conditions"]}
    assert rates.to_dict() == pytest.approx({name: rows[name] for name in rates.index})
    assert names["tuned"]["difference"] == 0.25
    assert names["verdict"].status == "pass"
