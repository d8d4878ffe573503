"""Logs of Inspect, read by its own reader. ``make test-inspect`` installs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gapft_harness.core.errors import UserError
from gapft_harness.exporting.inspect_logs import IMPORTED, write_inspect_logs
from gapft_harness.importing.job import state
from gapft_harness.run_directory.tables import read_judged
from tests.importing.made import imported, plain, states_of, write
from tests.recording_run import Letters, letters

VERDICTS = [[1, 0, 1], [0, 0, 1], [0, 0, 0]]
STATES = {"pool0": "G", "pool1": "S", "pool2": "U"}


@pytest.fixture
def made(tmp_path: Path) -> Letters:
    return letters(tmp_path, pool=3, audit=3)


def test_without_the_package_it_is_said_how_to_have_it(
    made: Letters, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    log = write(made.folder / "log.eval", ["PK"])
    with pytest.raises(UserError, match=r"log.eval: .* pip install 'gapft-harness\[inspect\]'"):
        imported(made, model, "run", [], greedy=log)


def test_logs_of_a_run_are_its_search(made: Letters, model: Path) -> None:
    """By the input, and by a field; damaged, twice and with other scores they are refused."""
    log = pytest.importorskip("inspect_ai.log")
    file = write(made.folder / "r.jsonl", plain(VERDICTS))
    first = imported(made, model, "first", [file])
    state(first.path, "pool", made.plugins)
    write_inspect_logs(first, made.folder / "logs")
    greedy, samples = (
        str(made.folder / "logs" / f"pool-source{name}.eval") for name in ("", "-samples")
    )
    run = imported(made, model, "run", [samples], greedy=greedy)
    state(run.path, "pool", made.plugins)
    assert states_of(run) == STATES
    assert [*read_judged(run.path / "pool/responses.parquet")] == [
        *read_judged(first.path / "pool/responses.parquet")
    ]
    assert run.manifest()["imported"]["pool"]["told_by"] == f"score {IMPORTED}"
    with pytest.raises(UserError, match=r"the greedy response of problem .* a second time"):
        imported(made, model, "other", [greedy], greedy=samples)
    with pytest.raises(UserError, match=f"no score 'f1'; known: {IMPORTED}"):
        imported(made, model, "other", [samples], greedy=greedy, metric="f1")
    content = Path(samples).read_bytes()
    Path(samples).write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match="Inspect cannot read it as a whole log"):
        imported(made, model, "other", [samples], greedy=greedy)
    edited = log.read_eval_log(greedy)
    edited.samples[0].scores[IMPORTED].value = "P"
    log.write_eval_log(edited, greedy)
    with pytest.raises(UserError, match=f'score {IMPORTED} is "P", and a verdict is 0 or 1'):
        imported(made, model, "other", [], greedy=greedy)
