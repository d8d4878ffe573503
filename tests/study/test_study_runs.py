"""A study of a small task by the real command: continued after its first cell, and verified."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.kit.command import succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.records import read_run

MORE = ("--run-dir", "out", "--include-path", "tasks", "--plugin", "plugin.py")
STUDY = """
name: letters
conditions: [gapft, all_verified]
reference: all_verified
seeds: [13]
set: {statistics.replicates: 50, executor.workers: 1}
cells:
  Letters: {recipe: recipe.yaml}
  Letters, fewer: {recipe: recipe.yaml, set: {data.pool_limit: 40}}
"""
#: Tables of a run's report that do not depend on its experiments.
SAME_TABLES = ("conditions", "contrasts", "curve", "decomposition", "states")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder_path = tmp_path_factory.mktemp("letters-study")
    prepare_letters_run(folder_path)
    (folder_path / "study.yaml").write_text(STUDY)
    return folder_path


def read_contents(run: Path) -> dict[str, bytes]:
    names = ("decisions", "selections", "adapters")
    return {
        path.relative_to(run).as_posix(): path.read_bytes()
        for name in names
        for path in (run / name).rglob("*")
        if path.is_file()
    }


@pytest.mark.thorough
def test_study_goes_on_with_the_cell_that_is_left(folder: Path) -> None:
    succeed("run", "study.yaml", *MORE, cwd=folder)
    first, second = (folder / f"out/cells/{name}" for name in ("letters", "letters-fewer"))
    for made_later in (second, folder / "out/report"):
        shutil.rmtree(made_later)
    before, seconds = read_contents(first), read_run(first)["stages"]
    assert "decisions/gapft-seed13.parquet" in before

    left = succeed("run", "study.yaml", *MORE, "--dry-run", cwd=folder).stdout
    assert "1 of 2 cells are left" in left
    done = succeed("run", "study.yaml", *MORE, cwd=folder)
    assert "report: out/report/index.html" in done.stdout
    assert read_contents(first) == before
    # a complete run is read, not run again: the time of its stages is unchanged
    assert read_run(first)["stages"] == seconds

    results = json.loads((folder / "out/report/results.json").read_text())
    gains = []
    for name, run in (("Letters", first), ("Letters, fewer", second)):
        own = json.loads((run / "report/results.json").read_text())
        for table in SAME_TABLES:
            rows = [row for row in results[table] if row["cell"] == name]
            assert rows == [{"cell": name, **row} for row in own[table]]
        gain = next(r for r in own["contrasts"] if (r["a"], r["b"]) == ("gapft", "source"))
        gains.append(gain["delta"])
    mean = next(m for m in results["means"] if (m["a"], m["b"]) == ("gapft", "source"))
    assert mean["delta"] == pytest.approx(sum(gains) / 2, abs=1e-12)

    text = succeed("verify", "out", "--plugin", "plugin.py", cwd=folder).stdout
    assert "Letters, fewer: " in text
    assert "the study's report is equal to one recomputed from its cells" in text
