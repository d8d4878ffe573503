"""What is said of an import, on the page and elsewhere; verify holds a manifest to the tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapft_harness.exporting.kinds import ExportChoice, export
from gapft_harness.gap.document import list_run_notes
from gapft_harness.gap.searched import read_run
from gapft_harness.stages.pipeline import run_stages
from gapft_harness.stages.verify.run import verify
from tests.importing.made import imported, plain, write
from tests.recording_run import Letters, letters

SPLITS = ("pool", "audit")


@pytest.fixture
def made(tmp_path: Path) -> Letters:
    return letters(tmp_path, pool=3, audit=3)


def test_an_import_is_said_wherever_its_verdicts_count(made: Letters, model: Path) -> None:
    verdicts = [[1, 0, 1], *[[0, 0, 0]] * 2]  # nothing to train on, so the report needs no more
    pool = write(made.folder / "pool.jsonl", plain(verdicts))
    run = imported(made, model, "run", [pool])
    audit = write(made.folder / "audit.jsonl", plain(verdicts, "audit"))
    stages = ("states", "select", "report")
    imported(made, model, "run", [audit], *stages, split="audit")
    lines = [f"{split}: verdicts imported from {made.folder / split}" for split in SPLITS]

    def said_in(text: str) -> bool:
        return all(line in text for line in lines)

    run_stages(made.context(run, SPLITS), ["report"], lambda stage: None)
    page = (run.path / "report/report.md").read_text()
    assert said_in(page.replace("\\", ""))
    assert "verified by contains (not pool and audit: verdicts of imported files)" in page
    results = json.loads((run.path / "report/results.json").read_text())
    assert results["imported"]["pool"]["verdicts"] == "file"
    assert str(made.folder) not in json.dumps(results["imported"])
    assert results["imported"]["audit"]["files"][0].keys() == {"sha256", "format", "holds"}
    files = export(run, "dataset", ExportChoice(made.folder / "evidence"))
    assert said_in(files[-1].read_text().replace("\\", ""))
    assert said_in(" ".join(note.text for note in list_run_notes(read_run(run.path), {})))
    run.update_manifest(lambda manifest: manifest.update(warnings=[]))
    run.update_manifest(lambda manifest: manifest.pop("imported"))
    differences = verify(run.path, made.plugins).differences
    assert sum("warnings: a warning of" in line for line in differences) == 4
    assert sum("imported: does not match" in line for line in differences) == 2
