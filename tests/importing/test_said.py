"""What is said of an import is what its tables say, whatever a manifest says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapft_harness.exporting.kinds import Asked, export
from gapft_harness.forecast.document import warnings
from gapft_harness.forecast.findings import ForecastChoice as Forecasted
from gapft_harness.forecast.findings import forecast
from gapft_harness.forecast.reading import read_run
from gapft_harness.stages.pipeline import run_stages
from gapft_harness.stages.verify.run import verify
from tests.importing.made import imported, plain, write
from tests.recording_run import Letters, letters

SPLITS = ("pool", "audit")


@pytest.fixture
def made(tmp_path: Path) -> Letters:
    return letters(tmp_path, pool=3, audit=3)


def test_what_is_said_of_an_import_is_what_is_sealed(made: Letters, model: Path) -> None:
    """A manifest that says nothing of it any more hides nothing, and is found."""
    verdicts = [[1, 0, 1], *[[0, 0, 0]] * 2]  # nothing to train on, so the report needs no more
    pool = write(made.folder / "pool.jsonl", plain(verdicts))
    run = imported(made, model, "run", [pool])
    audit = write(made.folder / "audit.jsonl", plain(verdicts, "audit"))
    stages = ("states", "select", "report")
    imported(made, model, "run", [audit], *stages, split="audit")
    run.update_manifest(lambda manifest: manifest.update(warnings=[]))
    run.update_manifest(lambda manifest: manifest.pop("imported"))
    lines = [f"{split}: verdicts taken over from {made.folder / split}" for split in SPLITS]

    def said_in(text: str) -> bool:
        return all(line in text for line in lines)

    assert sum("warnings: lacks what" in d for d in verify(run.path, made.plugins).differences) == 4
    run_stages(made.context(run, SPLITS), ["report"], lambda stage: None)
    page = (run.path / "report/report.md").read_text()
    assert said_in(page.replace("\\", ""))
    assert "verified by contains (not pool and audit: verdicts of imported files)" in page
    results = json.loads((run.path / "report/results.json").read_text())
    assert results["imported"]["pool"]["verdicts"] == "file"
    assert str(made.folder) not in json.dumps(results["imported"])
    assert results["imported"]["audit"]["files"][0].keys() == {"sha256", "format", "holds"}
    files = export(run, "dataset", Asked(made.folder / "evidence"))
    assert said_in(files[-1].read_text().replace("\\", ""))
    assert said_in(" ".join(warnings(forecast(read_run(run.path), Forecasted()))))
