"""Edge cases of views: missing values and states, sort orders, cached texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.report.explorer.content import ProblemTexts
from tests.report.explorer.driving import read_rows, read_text, turn_to, wait_until
from tests.report.explorer.made import build_content, write_page


def test_filter_offers_missing_value(open_page: Callable[..., Any], tmp_path: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    content = build_content(20)

    def entries() -> Iterator[ProblemTexts]:
        for place, entry in enumerate(content.entries()):
            lacks = place % 4 == 0
            yield replace(entry, document={} if lacks else {"level": place % 2})

    browser = open_page(write_page(replace(content, entries=entries), tmp_path))
    (field,) = [
        Select(label.find_element(By.TAG_NAME, "select"))
        for label in browser.find_elements(By.CSS_SELECTOR, "#choices .choice")
        if label.text.startswith("level")
    ]
    assert [option.text for option in field.options] == ["any", "–", "0", "1"]
    without = [place for place in range(20) if place % 4 == 0]
    field.select_by_visible_text("–")
    assert read_rows(browser) == without
    wait_until(browser, "location.hash === '#field.level='")
    assert browser.find_element(By.ID, "clear").is_displayed()
    field.select_by_visible_text("0")
    assert read_rows(browser) == [place for place in range(20) if place % 4 == 2]
    wait_until(browser, "location.hash === '#field.level=0'")
    turn_to(browser, "field.level=")
    assert read_rows(browser) == without
    assert field.first_selected_option.text == "–"
    field.select_by_visible_text("any")
    assert read_rows(browser) == [*range(20)]
    wait_until(browser, "location.hash === ''")


def test_ignores_state_filter_without_states(open_page: Callable[..., Any], tmp_path: Path) -> None:
    browser = open_page(
        write_page(build_content(10, states="", passing=[], samples=[]), tmp_path), "#state=G"
    )
    assert read_rows(browser) == [*range(10)]
    assert read_text(browser, "#count") == "10 problems"


@pytest.mark.parametrize("words", [["wrong", "right", "timeout"], ["0.5", "10", "9"]])
def test_sorts_verdicts_by_name_or_value(
    open_page: Callable[..., Any], tmp_path: Path, words: list[str]
) -> None:
    verdicts = [words[place % 3] for place in range(12)]
    content = replace(
        build_content(12), verdicts=verdicts, models=[], samples=[], entries=_build_source_entries
    )
    browser = open_page(write_page(content, tmp_path), "#sort=before")
    key = float if words[0] == "0.5" else str
    assert read_rows(browser) == sorted(range(12), key=lambda place: key(verdicts[place]))


def _build_source_entries() -> Iterator[ProblemTexts]:
    return (ProblemTexts(f"ask {place}", "gold", ["said"], {}) for place in range(12))
