"""What is called right, wrong, gained or lost is; what a log says makes no line of ours."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.cli import main
from gapft_harness.compare.choice import CompareChoice
from gapft_harness.compare.comparison import compare
from gapft_harness.compare.document import write_comparison as write_files
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Case, Cases, Section
from gapft_harness.report.rendering.page import render_page
from tests.compare.logs import row, write
from tests.compare.test_gate import run


def written(tmp_path: Path, before: Path, *after: object) -> tuple[str, dict[str, Any]]:
    """The page and the results."""
    out = tmp_path / "out"
    of = compare(str(before), [str(one) for one in after], CompareChoice())
    write_files(of, out, overwrite=True)
    found = json.loads((out / "results.json").read_text())
    return (out / "comparison.md").read_text(), found


def test_numbers_are_higher_or_lower_not_right_or_wrong(tmp_path: Path) -> None:
    before, after = write(tmp_path / "a", [0.3, 0.9]), write(tmp_path / "b", [0.4, 0.8])
    page, found = written(tmp_path, before, f"f1={after}")
    assert "### doc_id 0 · higher, 0.3 to 0.4 (f1)" in page
    assert "### doc_id 1 · lower, 0.9 to 0.8 (f1)" in page
    assert "Before:\n" in page
    assert "wrong" not in page
    (line,) = csv.DictReader((tmp_path / "out" / "comparison.csv").open())
    assert (line["higher"], line["lower"]) == ("1", "1")
    assert found["models"]["f1"]["higher"] == 1


def test_fewer_errors_are_not_lost(tmp_path: Path) -> None:
    before = write(tmp_path / "a", [1, 1, 0], higher=False)
    after = write(tmp_path / "b", [0, 1, 0], higher=False)
    page, found = written(tmp_path, before, f"new={after}")
    assert "### doc_id 0 · lower, 1 to 0 (new)" in page
    assert "· lost" not in page
    assert "wrong" not in page
    assert "−33.3" in page  # still in points
    assert (found["models"]["new"]["lower"], found["models"]["new"]["test"]) == (1, "mcnemar")
    (item,) = csv.DictReader((tmp_path / "out" / "items.csv").open())
    assert item["change"] == "lower"


def test_a_page_of_neither_right_nor_wrong() -> None:
    def page(gained: bool | None) -> str:
        cases = Cases([Case("one", "prompt", "gold", "old", "new", gained)])
        return render_page("Title", "", [Section("S", [cases])], [], {})

    assert "<h4>Before</h4>" in page(None)
    assert 'class="was-' not in page(None)
    assert '<div class="was-wrong"><h4>Before, wrong</h4>' in page(True)
    assert '<div class="was-wrong"><h4>After, wrong</h4>' in page(False)


def test_another_model_does_not_change_the_test(tmp_path: Path) -> None:
    before = write(tmp_path / "a", [0, 1, 0, 1])
    mine, other = write(tmp_path / "b", [1, 1, 1, 0]), write(tmp_path / "c", [0.5, 1, 1, 0])
    page, both = written(tmp_path, before, f"mine={mine}", f"other={other}")
    _, alone = written(tmp_path, before, f"mine={mine}")
    assert alone["models"]["mine"]["test"] == "mcnemar"
    assert both["models"]["mine"] | {"p_holm": None} == alone["models"]["mine"]
    assert both["models"]["other"]["test"] == "sign_flip"
    assert "McNemar's exact test for one seed" in page
    assert any("other than 0 and 1 of other: means" in note for note in both["notes"])


FORGED = "x\n\ngapft: worse than before\x1b[2J"


def test_names_make_no_lines(tmp_path: Path) -> None:
    rows = [row(i, 0, doc={"question": f"q{i}", "subject": FORGED}) for i in range(3)]
    before = write(tmp_path / "a", rows=rows)
    after = write(
        tmp_path / "b", rows=[line | {"exact_match": 1, "doc_id": FORGED} for line in rows]
    )
    after_first = run(after, before, "--by", "subject")
    assert after_first.exit_code == 0
    lines = after_first.output.splitlines()
    assert not any(line.lstrip().startswith("gapft: worse") for line in lines)
    assert any("x gapft: worse than before␛[2J" in line for line in lines)


def test_errors_show_what_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row(i, 0, doc={"question": f"q{i}", FORGED: 1}) for i in range(3)]
    log = write(tmp_path / "a", rows=rows)
    command = ["gapft", "compare", str(log), str(log), "--by", "\x1b[31mnope"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as ended:
        main.main()
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert told.count("\n") == 1
    assert "\x1b" not in told
    assert repr(FORGED) in told


def test_numbers_have_the_minus_sign_of_the_tables() -> None:
    assert [wording.format_number(value) for value in (-12.3456, 0.5, -1e-7)] == [
        "−12.35",
        "0.5",
        "−1e−07",
    ]
