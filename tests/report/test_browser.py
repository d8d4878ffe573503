"""The report's page in a real browser: nothing is blocked, and everything fits a phone."""

from __future__ import annotations

from typing import Any

import pytest

from gapft_harness.report import write_report
from tests.report.chromium import show_page
from tests.report.planted import build_inputs


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report") / "report"
    write_report(build_inputs(), folder)
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
    images = browser.execute_script(
        "return [...document.images].map(i => [i.naturalWidth > 0, i.alt.length > 20])"
    )
    assert images == [[True, True]] * 3
    names = browser.execute_script(
        "return [...document.querySelectorAll('tbody th')].filter(e => e.checkVisibility())"
        ".map(e => e.offsetWidth)"
    )
    assert min(names) > 20, "no name of a row is squeezed to single letters"


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


def test_print_expands_folded_tables(browser: Any, page: str) -> None:
    folded = "return [...document.querySelectorAll('details > .scroll')]"
    show_page(browser, page, 680, "light")
    assert {*browser.execute_script(f"{folded}.map(e => e.checkVisibility())")} == {False}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert all(browser.execute_script(f"{folded}.map(e => e.checkVisibility())"))
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
