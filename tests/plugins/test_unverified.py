"""``gapft verify`` on selections without the verifier: each sample is the one that was drawn."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gapft_harness.core.records import (
    Arm,
)  # fmt: skip
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.tables import read_judged
from tests.kit.scaled_letters import SELECTED, ChangingLetters, write_task
from tests.kit.tampering import seal_again

CONDITIONS = {"gapft": {}, "unverified": {}, "wrong": {}}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> ChangingLetters:
    letters_run = write_task(tmp_path_factory.mktemp("unverified"))
    keys = {"conditions": CONDITIONS, "budget": {"n": 8}, "search": {"k": 3, "chunk": 20}}
    letters_run.change(*SELECTED, **keys)
    assert letters_run.find_differences() == []
    return letters_run


@pytest.mark.parametrize("name", ["unverified", "wrong"])
def test_verify_detects_exchanged_sample(
    finished_run: ChangingLetters, tmp_path: Path, name: str
) -> None:
    """Another sample of the same problem, with the same tokens, is not the one that was drawn."""
    forged = ChangingLetters(Path(shutil.copytree(finished_run.folder, tmp_path / "copy")))
    run, relative = forged.folder / "r", layout.selection_path(Arm(name, 13))
    table = pq.read_table(run / relative)
    rows = table.to_pylist()
    responses = {
        judged.response.index: judged.response
        for _, judged_rows in read_judged(run / layout.responses_path("pool"))
        for judged in judged_rows
        if judged.response.problem_id == rows[0]["problem_id"]
    }
    other = next(
        response for index, response in responses.items()
        if index >= 0 and index != rows[0]["response_index"]
    )  # fmt: skip
    rows[0] |= {"response_ids": list(other.token_ids), "response_index": other.index}
    pq.write_table(type(table).from_pylist(rows, schema=table.schema), run / relative)
    seal_again(run, relative)
    differences = forged.find_differences()
    assert any("slot 0" in line and rows[0]["problem_id"] in line for line in differences)
