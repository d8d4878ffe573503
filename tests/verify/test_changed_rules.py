"""Verdicts of another edition of a verifier's rules: named as such, and never passed over."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapft_harness.run_directory.recording import record_judging
from gapft_harness.stages.verify.run import verify
from tests.verify.tampering import change_manifest, facts_of, rows_of, seal_again, write_rows

pytestmark = pytest.mark.xdist_group("verify")

#: The run's verifier as a later version has it: it says so, and judges capitals otherwise.
LATER = """

Contains.describe = lambda self: {"rules": 2}
Contains.verify = lambda self, responses, golds: [
    Verdict("pass" if g in r.lower()[:-1] else "fail") for r, g in zip(responses, golds)
]
"""


def later(made: Path, run: Path, folder: Path) -> str:
    """The plugin as a later version has it; the run is of one that did not record its code."""
    plugin = Path(shutil.copy(made / "plugin.py", folder / "plugin.py"))
    plugin.write_text(plugin.read_text() + LATER)
    change_manifest(run, lambda manifest: manifest["rests_on"]["plugins"].clear())
    return str(plugin)


def test_older_verdicts_that_differ_are_named_as_of_other_rules(
    made: Path, run: Path, tmp_path: Path
) -> None:
    found = verify(run, [later(made, run, tmp_path)])
    (told,) = found.differences
    assert "were judged by another edition of its rules than this version has" in told
    assert "has the verdict pass, judged again it is fail" in told


def test_a_table_of_the_same_rules_is_held_to_them(made: Path, run: Path, tmp_path: Path) -> None:
    """Whoever forges a verdict cannot hide behind a change of rules that there was not."""
    for relative in ("pool/responses.parquet", "audit/responses.parquet"):
        rows = rows_of(run / relative)
        write_rows(run / relative, rows, judged_by={"rules": 2})
        seal_again(run, relative)
    differences = verify(run, [later(made, run, tmp_path)]).differences
    assert any(line.startswith("pool/responses.parquet: problem") for line in differences)


#: The verifier, which now reads answers too: a response's first letter.
ANSWERING = """

Contains.answer = lambda self, text: text[:1] or None
"""


def write_table(path: Path, table: pa.Table) -> None:
    """Writes another table in the place of a sealed one, with its facts."""
    told = {"gapft": json.dumps(facts_of(path))}
    pq.write_table(table.replace_schema_metadata(told), path)


def test_an_answer_that_is_read_otherwise_is_named(made: Path, run: Path, tmp_path: Path) -> None:
    plugin = Path(shutil.copy(made / "plugin.py", tmp_path / "plugin.py"))
    plugin.write_text(plugin.read_text() + ANSWERING)
    change_manifest(run, lambda manifest: manifest["rests_on"]["plugins"].clear())
    told = verify(run, [str(plugin)]).differences
    assert any("index -1 has the answer None, read again it is '" in line for line in told)
    for path in (*run.glob("*/responses.parquet"), *run.glob("decisions/*.parquet")):
        table = pq.read_table(path)
        texts = table.column("text").to_pylist()
        answers = pa.array([text[:1] or None for text in texts])
        whole = table.set_column(table.schema.get_field_index("answer"), "answer", answers)
        write_table(path, whole)
        seal_again(run, path.relative_to(run).as_posix())
    found = verify(run, [str(plugin)])
    assert found.differences == []
    assert any(line.endswith("answers of contains were read again") for line in found.checked)


def test_a_run_judged_by_two_editions_warns() -> None:
    manifest: dict[str, Any] = {"task": {}, "judged_by": {"pool": {}}, "warnings": []}
    facts: dict[str, Any] = {"judged_by": {"rules": 2}, "warnings": []}
    record_judging(manifest, "audit", facts)
    record_judging(manifest, "audit", facts)
    (warning,) = manifest["warnings"]
    assert warning.startswith("audit: judged by another edition of the verifier's rules than pool,")
    assert json.dumps(manifest)
    other: dict[str, Any] = {
        "task": {}, "judged_by": {"pool": {"tier": "landlock"}}, "warnings": []
    }  # fmt: skip
    record_judging(other, "audit", {"judged_by": {"tier": "namespaces"}, "warnings": []})
    assert other["warnings"] == []
