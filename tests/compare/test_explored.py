"""The page of all documents that ``--out`` writes; tests/report/explorer tests the page itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.compare.items import build_explored
from gapft_harness.report.explorer import packing
from tests.compare.logs import row, write
from tests.report.explorer.made import unpack_page


def test_seeds_groups_and_outcomes_are_those_of_the_logs(tmp_path: Path) -> None:
    before = [0, 0, 1, 1, 0, 1, 0, 1, 1]
    seeds = [[1, 0, 0, 1, 1, 1, 0, 0, 1], [1, 1, 1, 1, 0, 0, 0, 1, 1]]
    write(tmp_path / "before", before)
    for number, values in enumerate(seeds):
        write(tmp_path / f"after{number}", values)
    of = build_explored(
        compare(str(tmp_path / "before"), [f"a={tmp_path}/after*"], CompareChoice(by="subject"))
    )
    index, texts = unpack_page(packing.render_explorer(of))
    assert index["ids"] == [str(number) for number in range(9)], "in the order of the log"
    assert [model["seed"] for model in index["models"]] == ["after0", "after1"]
    for model, values in zip(index["models"], seeds, strict=True):
        named = {(0, 1): "c", (1, 0): "r", (1, 1): "k", (0, 0): "m"}
        assert model["outcomes"] == "".join(map(named.get, zip(before, values, strict=True)))
    subject = index["fields"]["subject"]
    assert [subject["values"][code] for code in subject["codes"]] == [*"abcabcabc"]
    assert texts[4] == [
        "Question q4", "42", "response 0 to 4", "response 1 to 4", "response 0 to 4",
    ]  # fmt: skip
    assert (index["states"], index["k"], index["passing"]) == ("", 0, [])


def test_other_metrics_are_numbers_that_rose_or_fell(tmp_path: Path) -> None:
    write(tmp_path / "before", [0.25, 0.5, 1.0])
    write(tmp_path / "after", [0.5, 0.125, 1.0])
    of = build_explored(
        compare(str(tmp_path / "before"), [str(tmp_path / "after")], CompareChoice())
    )
    assert of.verdicts == ["0.25", "0.5", "1"]
    assert of.models[0].verdicts == ["0.5", "0.125", "1"]
    assert of.models[0].outcomes == "hle"


@pytest.mark.parametrize(("most", "shown"), [(4, 2), (1, 0), (12, 10)])
def test_of_too_many_documents_those_that_changed_are_shown_first(
    tmp_path: Path, most: int, shown: int
) -> None:
    changed = {3, 8}
    write(tmp_path / "before", [0] * 12)
    write(tmp_path / "after", [int(number in changed) for number in range(12)])
    found = compare(str(tmp_path / "before"), [str(tmp_path / "after")], CompareChoice())
    of = build_explored(found, most)
    names = {int(name) for name in of.ids}
    assert len(of.ids) == most
    assert len(changed & names) == min(2, most)
    assert len(names - changed) == shown
    assert [int(name) for name in of.ids] == sorted(names)
    assert (f"{most} of 12 documents: changed" in of.remark) == (most < 12)
    assert next(of.entries()).document["question"] == f"q{of.ids[0]}"


def test_documents_whose_numbers_are_the_same_have_names_of_their_own(tmp_path: Path) -> None:
    rows = [row(number, number % 2, doc_id=7) for number in range(3)]
    write(tmp_path / "before", rows=rows)
    write(tmp_path / "after", rows=rows)
    of = build_explored(
        compare(str(tmp_path / "before"), [str(tmp_path / "after")], CompareChoice())
    )
    assert len({*of.ids}) == 3
    assert all(name.startswith("7 ") for name in of.ids)
