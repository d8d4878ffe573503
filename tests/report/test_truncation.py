"""Cut responses in the report of a run whose source's failures are cut at the token limit."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.test_changed_recipe import ChangingLetters, write_task

ENDING = 'tuple(text.encode()), "stop")'


def run_letters(folder: Path, ending: str) -> ChangingLetters:
    """Run letters with an expression for how each response ended."""
    letters_run = write_task(folder)
    plugin = folder / "by_scale.py"
    text = plugin.read_text()
    assert ENDING in text
    plugin.write_text(text.replace(ENDING, f"tuple(text.encode()), {ending})"))
    letters_run.change()
    return letters_run


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> ChangingLetters:
    """Return a run in which the source's wrong responses are cut, and those of arms never."""
    folder = tmp_path_factory.mktemp("cut")
    return run_letters(folder, '"stop" if good or self._arm else "length"')


def select_rows(results: dict[str, Any], **values: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = results["truncation"]
    return [row for row in rows if all(row[key] == value for key, value in values.items())]


def test_corrections_of_cut_responses_are_the_part_of_the_limit(
    finished_run: ChangingLetters,
) -> None:
    results = finished_run.results()
    (source,) = select_rows(results, model="source", state="all")
    assert source["limit"] == pytest.approx(1 - results["source"]["pass_at_1"])
    assert (source["complete_accuracy"], source["stop_string"]) == (1, 0)
    assert source["change_limit"] is None
    for condition in ("gapft", "uniform"):
        (row,) = select_rows(results, model=condition, state="all")
        terms = results["conditions"][condition]["terms"]
        assert row["change_limit"] == pytest.approx(terms["S"] + terms["U"])
        assert row["change_other"] == pytest.approx(terms["G"])
        assert row["change_limit"] > 0 > row["change_other"]
        assert row["change_stop_string"] == row["limit"] == 0


def test_states_divide_the_responses(finished_run: ChangingLetters) -> None:
    results = finished_run.results()
    for model in ("source", "gapft"):
        (whole,) = select_rows(results, model=model, state="all")
        parts = [
            row for row in select_rows(results, model=model) if row["state"] in ("G", "S", "U")
        ]
        for key in ("limit", "mean_tokens"):
            weighted = sum(row["responses"] * row[key] for row in parts if row["responses"])
            assert weighted == pytest.approx(whole["responses"] * whole[key])
    (solved,) = select_rows(results, model="source", state="G")
    assert solved["limit"] == 0


def test_report_and_table_have_the_same_values(finished_run: ChangingLetters) -> None:
    report = finished_run.folder / "r/report"
    assert "Cut responses, and the part of the change" in (report / "index.html").read_text("utf-8")
    with (report / "tables/endings.csv").open() as file:
        rows = {(row["model"], row["state"]): row for row in csv.DictReader(file)}
    for entry in finished_run.results()["truncation"]:
        row = rows[entry["model"], entry["state"]]
        for key in ("limit", "complete_accuracy", "mean_tokens", "change_limit", "change_other"):
            assert row[key] == ("" if entry[key] is None else json.dumps(entry[key])), key


def test_report_without_cut_responses_has_no_table(tmp_path: Path) -> None:
    letters_run = run_letters(tmp_path, '"stop"')
    report = letters_run.folder / "r/report"
    assert "Cut responses" not in (report / "index.html").read_text("utf-8")
    rows = letters_run.results()["truncation"]
    assert {row["limit"] for row in rows if row["responses"]} == {0}


def test_unknown_endings_are_not_counted_as_cut(tmp_path: Path) -> None:
    rows = run_letters(tmp_path, '"unknown"').results()["truncation"]
    (gapft,) = [row for row in rows if (row["model"], row["state"]) == ("gapft", "all")]
    assert (gapft["limit"], gapft["complete_accuracy"], gapft["change_limit"]) == (0, None, 0)
