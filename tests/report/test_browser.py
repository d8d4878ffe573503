"""The report's page in a real browser: nothing is blocked, nothing runs off a phone's screen."""

from __future__ import annotations

import base64
import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.report import write_report
from gapft_harness.report.reading.inputs import ReportInputs
from tests.report.chromium import show
from tests.report.planted import allocation_inputs, audited_inputs, inputs
from tests.study.sealed import cell, seal, study, write_study_file


def long_inputs() -> ReportInputs:
    """Responses of many lines, on which page and paper break."""
    made = inputs()
    lines = "\n".join(f"{number}. One more step of {number} words." for number in range(60))
    arms = tuple(replace(of, texts=tuple(lines + text for text in of.texts)) for of in made.arms)
    texts = tuple(lines.replace("step", "doubt") + text for text in made.audit.greedy_texts)
    return replace(made, arms=arms, audit=replace(made.audit, greedy_texts=texts))


#: What a page may be of.
KINDS = {"plain": long_inputs, "allocation": allocation_inputs, "audits": audited_inputs}


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report") / "report"
    write_report(request.param(), folder)
    return (folder / "index.html").as_uri()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_nothing_is_blocked(browser: Any, page: str, width: int, scheme: str) -> None:
    show(browser, page, width, scheme)
    wide = browser.execute_script(
        "return [document.documentElement.scrollWidth, window.innerWidth]"
    )
    assert wide[0] <= wide[1] == width
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    broken = browser.execute_script(
        "return [...document.images].filter(i => i.offsetParent && !i.naturalWidth).length"
    )
    assert broken == 0
    shown = browser.execute_script("return [...document.images].filter(i => i.offsetParent).length")
    assert shown >= 3


def test_no_table_of_a_study_is_wider_than_a_desks_screen(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = {}
    models = ("/data/models/meta-llama/Llama-3.1-8B-Instruct", "mistralai/Mistral-7B-Instruct-v0.3")
    for number, model in enumerate(models):
        place = f"runs/on-a-folder-with-a-name-of-some-length/{number}"
        seal(tmp_path / place, cell(number), model={"args": {"pretrained": model}})
        cells[f"{Path(model).name} / LogiQA 2.0"] = {"run": place}
    write_study_file(cells=cells)
    page = study(tmp_path)
    show(browser, page.as_uri(), 1280, "light")
    wide = browser.execute_script(
        "document.querySelectorAll('details').forEach(each => { each.open = true });"
        "return [...document.querySelectorAll('.scroll')].map(of => "
        "[of.closest('section').querySelector('h2').textContent, of.scrollWidth, of.clientWidth])"
    )
    assert {"Cells", "Where the change comes from"} <= {title for title, _, _ in wide}
    assert [of for of in wide if of[1] > of[2]] == []


def test_differences_are_told_without_colour(browser: Any, page: str) -> None:
    """Beside their meaning to a screen reader, each has a line of its own kind under it."""
    show(browser, page, 390, "light")
    for tag, line in (("del", "dotted"), ("ins", "solid")):
        lines = browser.execute_script(
            f"return [...document.querySelectorAll('.case {tag}')]"
            ".map(e => getComputedStyle(e)).map(s => s.textDecorationLine + ' ' + "
            "s.textDecorationStyle)"
        )
        assert set(lines) == {f"underline {line}"}


def brightness(browser: Any, what: str) -> float:
    colour = browser.execute_script(f"return getComputedStyle(document.body).{what}")
    numbers = [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    return sum(numbers) / 3


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_it_follows_the_readers_theme(browser: Any, page: str, scheme: str, dark: bool) -> None:
    show(browser, page, 1280, scheme)
    background, text = brightness(browser, "backgroundColor"), brightness(browser, "color")
    assert (background < text) == dark
    assert abs(background - text) > 120


def test_every_figure_has_a_text_and_headings_are_in_order(browser: Any, page: str) -> None:
    show(browser, page, 1280, "light")
    assert browser.execute_script(
        "return [...document.images].every(image => image.alt.length > 20)"
    )
    levels = browser.execute_script(
        "return [...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])"
    )
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


#: What A4 leaves between the margins of the page, in CSS pixels.
SHEET = (680, 1001)


def print_emulated(browser: Any, page: str) -> None:
    """The page as it is laid out for paper, on one endless sheet."""
    show(browser, page, SHEET[0], "light")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})


def test_paper_shows_what_a_screen_keeps_closed(browser: Any, page: str) -> None:
    closed = "return [...document.querySelectorAll('details > :is(.scroll, .pair, .case)')]"
    show(browser, page, 1280, "light")
    seen = browser.execute_script(f"{closed}.map(e => e.checkVisibility())")
    assert set(seen) == {False}
    print_emulated(browser, page)
    assert all(browser.execute_script(f"{closed}.map(e => e.checkVisibility())"))
    assert min(browser.execute_script(f"{closed}.map(e => e.offsetHeight)")) > 100
    cut = (
        "return [...document.querySelectorAll('.scroll')]"
        ".filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX != "
        "'visible' || e.firstElementChild.offsetWidth > document.body.clientWidth + 1).length"
    )
    assert browser.execute_script(cut) == 0


def test_no_sheet_of_paper_is_nearly_empty(browser: Any, page: str) -> None:
    """What is kept in one piece is small, so that little room is left before it."""
    print_emulated(browser, page)
    kept = (
        "return [...document.querySelectorAll('main *')]"
        ".filter(e => getComputedStyle(e).breakInside.startsWith('avoid'))"
        ".map(e => e.offsetHeight || 0)"
    )
    assert max(browser.execute_script(kept)) < SHEET[1] / 2
    height = browser.execute_script("return document.body.scrollHeight")
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})
    sheets = len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed["data"])))
    assert height / SHEET[1] <= sheets <= 1 + 1.35 * height / SHEET[1]
