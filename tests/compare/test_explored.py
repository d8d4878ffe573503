"""The explorer that ``--out`` writes; tests/report/explorer tests the page itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.compare.items import build_explored
from gapft_harness.report.explorer import packing
from tests.compare.logs import compare_logs, row, write_log
from tests.report.explorer.made import unpack_page


def test_explorer_matches_logs(tmp_path: Path) -> None:
    before = [0, 0, 1, 1, 0, 1, 0, 1, 1]
    seeds = [[1, 0, 0, 1, 1, 1, 0, 0, 1], [1, 1, 1, 1, 0, 0, 0, 1, 1]]
    write_log(tmp_path / "before", before)
    for number, values in enumerate(seeds):
        write_log(tmp_path / f"after{number}", values)
    content = build_explored(
        compare_logs(tmp_path / "before", f"a={tmp_path}/after*", by="subject")
    )
    index, texts = unpack_page(packing.render_explorer(content))
    assert index["ids"] == [str(number) for number in range(9)], "in the order of the log"
    assert [model["seed"] for model in index["models"]] == ["after0", "after1"]
    for model, values in zip(index["models"], seeds, strict=True):
        letters = {(0, 1): "c", (1, 0): "r", (1, 1): "k", (0, 0): "m"}
        assert model["outcomes"] == "".join(map(letters.get, zip(before, values, strict=True)))
    subject = index["fields"]["subject"]
    assert [subject["values"][code] for code in subject["codes"]] == [*"abcabcabc"]
    assert texts[4] == [
        "Question q4", "42", "response 0 to 4", "response 1 to 4", "response 0 to 4",
    ]  # fmt: skip
    assert (index["states"], index["k"], index["passing"]) == ("", 0, [])


def test_explorer_shows_numeric_outcomes(tmp_path: Path) -> None:
    write_log(tmp_path / "before", [0.25, 0.5, 1.0])
    write_log(tmp_path / "after", [0.5, 0.125, 1.0])
    content = build_explored(compare_logs(tmp_path / "before", tmp_path / "after"))
    assert content.verdicts == ["0.25", "0.5", "1"]
    assert content.models[0].verdicts == ["0.5", "0.125", "1"]
    assert content.models[0].outcomes == "hle"


@pytest.mark.parametrize(("most", "unchanged"), [(4, 2), (1, 0), (12, 10)])
def test_explorer_prefers_changed_documents(tmp_path: Path, most: int, unchanged: int) -> None:
    changed = {3, 8}
    write_log(tmp_path / "before", [0] * 12)
    write_log(tmp_path / "after", [int(number in changed) for number in range(12)])
    comparison = compare_logs(tmp_path / "before", tmp_path / "after")
    content = build_explored(comparison, most)
    names = {int(name) for name in content.ids}
    assert len(content.ids) == most
    assert len(changed & names) == min(2, most)
    assert len(names - changed) == unchanged
    assert [int(name) for name in content.ids] == sorted(names)
    assert (f"{most} of 12 documents: changed" in content.remark) == (most < 12)
    assert next(content.entries()).document["question"] == f"q{content.ids[0]}"


def test_explorer_ids_are_unique(tmp_path: Path) -> None:
    rows = [row(number, number % 2, doc_id=7) for number in range(3)]
    write_log(tmp_path / "before", rows=rows)
    write_log(tmp_path / "after", rows=rows)
    content = build_explored(compare_logs(tmp_path / "before", tmp_path / "after"))
    assert len({*content.ids}) == 3
    assert all(name.startswith("7 ") for name in content.ids)
