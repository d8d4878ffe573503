"""The report's page in a real browser: nothing is blocked, and everything fits a phone."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.report import write_report
from gapft_harness.report.reading.inputs import ReportInputs
from tests.report.chromium import show_page
from tests.report.planted import (
    build_allocation_inputs,
    build_inputs,
    replace_decodes,
)
from tests.study.sealed import build_cell, run_planted_study, write_run_directory, write_study_file


def build_long_inputs() -> ReportInputs:
    """Build inputs with long responses, which need page breaks."""
    base = build_inputs()
    lines = "\n".join(f"{number}. One more step of {number} words." for number in range(60))
    arms = tuple(
        replace_decodes(arm, texts=tuple(lines + text for text in arm.deployed.texts))
        for arm in base.arms
    )
    doubt = lines.replace("step", "doubt")
    audit = replace_decodes(
        base.audit, texts=tuple(doubt + text for text in base.audit.deployed.texts)
    )
    return replace(base, arms=arms, audit=audit)


#: Inputs of the tested pages.
KINDS = {
    "plain": build_long_inputs,
    "allocation": build_allocation_inputs,
}


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report") / "report"
    write_report(request.param(), folder)
    return (folder / "index.html").as_uri()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_fits_width_and_loads_images(browser: Any, page: str, width: int, scheme: str) -> None:
    show_page(browser, page, width, scheme)
    wide = browser.execute_script(
        "return [document.documentElement.scrollWidth, window.innerWidth]"
    )
    assert wide[0] <= wide[1] == width
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    broken = browser.execute_script(
        "return [...document.images].filter(i => i.offsetParent && !i.naturalWidth).length"
    )
    assert broken == 0
    image_count = browser.execute_script(
        "return [...document.images].filter(i => i.offsetParent).length"
    )
    assert image_count >= 3


def test_study_tables_fit_desktop_width(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = {}
    models = ("/data/models/meta-llama/Llama-3.1-8B-Instruct", "mistralai/Mistral-7B-Instruct-v0.3")
    for number, model in enumerate(models):
        place = f"runs/on-a-folder-with-a-name-of-some-length/{number}"
        write_run_directory(
            tmp_path / place, build_cell(number), model={"args": {"pretrained": model}}
        )
        cells[f"{Path(model).name} / LogiQA 2.0"] = {"run": place}
    write_study_file(cells=cells)
    page = run_planted_study(tmp_path)
    show_page(browser, page.as_uri(), 1280, "light")
    wide = browser.execute_script(
        "document.querySelectorAll('details').forEach(each => { each.open = true });"
        "return [...document.querySelectorAll('.scroll')].map(of => "
        "[of.closest('section').querySelector('h2').textContent, of.scrollWidth, of.clientWidth])"
    )
    assert {"Cells", "Where the change comes from"} <= {title for title, _, _ in wide}
    assert [widths for widths in wide if widths[1] > widths[2]] == []


def test_differences_are_visible_without_colour(browser: Any, page: str) -> None:
    """Each kind of difference has its own underline, besides its meaning for screen readers."""
    show_page(browser, page, 390, "light")
    for tag, line in (("del", "dotted"), ("ins", "solid")):
        lines = browser.execute_script(
            f"return [...document.querySelectorAll('.case {tag}')]"
            ".map(e => getComputedStyle(e)).map(s => s.textDecorationLine + ' ' + "
            "s.textDecorationStyle)"
        )
        assert set(lines) == {f"underline {line}"}


def measure_brightness(browser: Any, what: str) -> float:
    colour = browser.execute_script(f"return getComputedStyle(document.body).{what}")
    numbers = [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    return sum(numbers) / 3


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_page_follows_colour_scheme(browser: Any, page: str, scheme: str, dark: bool) -> None:
    show_page(browser, page, 1280, scheme)
    background, text = (
        measure_brightness(browser, "backgroundColor"),
        measure_brightness(browser, "color"),
    )
    assert (background < text) == dark
    assert abs(background - text) > 120


def test_figures_have_alt_text_and_headings_nest(browser: Any, page: str) -> None:
    show_page(browser, page, 1280, "light")
    assert browser.execute_script(
        "return [...document.images].every(image => image.alt.length > 20)"
    )
    levels = browser.execute_script(
        "return [...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])"
    )
    assert levels[0] == 1
    assert all(lower - upper <= 1 for upper, lower in itertools.pairwise(levels))


def emulate_print(browser: Any, page: str) -> None:
    """Lay the page out for print, on one endless sheet of A4's width."""
    show_page(browser, page, 680, "light")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})


def test_print_expands_collapsed_details(browser: Any, page: str) -> None:
    closed = "return [...document.querySelectorAll('details > :is(.scroll, .pair, .case)')]"
    show_page(browser, page, 1280, "light")
    visible = browser.execute_script(f"{closed}.map(e => e.checkVisibility())")
    assert set(visible) == {False}
    emulate_print(browser, page)
    assert all(browser.execute_script(f"{closed}.map(e => e.checkVisibility())"))
    assert min(browser.execute_script(f"{closed}.map(e => e.offsetHeight)")) > 100
    cut = (
        "return [...document.querySelectorAll('.scroll')]"
        ".filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX != "
        "'visible' || e.firstElementChild.offsetWidth > document.body.clientWidth + 1).length"
    )
    assert browser.execute_script(cut) == 0
