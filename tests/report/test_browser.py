"""The report's page in a real browser: nothing is blocked, nothing runs off a phone's screen."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from gapft_harness.report import write_report
from tests.report.planted import allocation_inputs, inputs

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no chromium with chromedriver: the page is NOT TESTED in a browser")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    session = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield session
    session.quit()


@pytest.fixture(scope="module", params=[inputs, allocation_inputs], ids=["plain", "allocation"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report") / "report"
    write_report(request.param(), folder)
    return (folder / "index.html").as_uri()


def show(browser: Any, page: str, width: int, scheme: str) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    browser.get(page)


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
