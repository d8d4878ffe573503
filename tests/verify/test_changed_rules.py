"""Verification reports answers that a changed verifier reads differently."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapft_harness.stages.verify.run import verify
from tests.kit.tampering import change_manifest, read_facts, seal_again

pytestmark = pytest.mark.xdist_group("verify")

#: The verifier reads answers too: a response's first letter.
ANSWERING = """

Contains.answer = lambda self, text: text[:1] or None
"""


def write_table(path: Path, table: pa.Table) -> None:
    """Replace a sealed table and keep its facts."""
    metadata = {"gapft": json.dumps(read_facts(path))}
    pq.write_table(table.replace_schema_metadata(metadata), path)


def test_reports_answers_read_differently(workspace: Path, run: Path, tmp_path: Path) -> None:
    plugin = Path(shutil.copy(workspace / "plugin.py", tmp_path / "plugin.py"))
    plugin.write_text(plugin.read_text() + ANSWERING)
    change_manifest(run, lambda manifest: manifest["rests_on"]["plugins"].clear())
    differences = verify(run, [str(plugin)]).differences
    assert any("index -1 has the answer None, read again it is '" in line for line in differences)
    for path in (*run.glob("*/responses.parquet"), *run.glob("decisions/*.parquet")):
        table = pq.read_table(path)
        texts = table.column("text").to_pylist()
        answers = pa.array([text[:1] or None for text in texts])
        judged_again = table.set_column(table.schema.get_field_index("answer"), "answer", answers)
        write_table(path, judged_again)
        seal_again(run, path.relative_to(run).as_posix())
    report = verify(run, [str(plugin)])
    assert report.differences == []
    assert any(line.endswith("answers of contains were read again") for line in report.checked)
