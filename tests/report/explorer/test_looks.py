"""The page on desktop and phone, light and dark; pictures go to the test's folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.report.explorer.driving import press_keys, wait_until
from tests.report.explorer.made import build_content, write_page

#: Contrasts of all texts with their backgrounds, lowest first (WCAG 2, level AA: 4.5 to 1).
CONTRASTS = """
const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
const numbers = (colour) => {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
};
const light = (rgb) => {
  const [r, g, b] = rgb.slice(0, 3).map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    layers.push(numbers(getComputedStyle(at).backgroundColor));
    if (layers.at(-1)[3] === 255) break;
  }
  return layers.reverse().reduce((under, over) =>
    under.map((c, i) => i < 3 ? c + (over[i] - c) * over[3] / 255 : 255));
};
let found = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
  const element = walk.currentNode.parentElement;
  const isText = walk.currentNode.data.trim() && !element.closest("script, noscript, option");
  if (!isText || !element.checkVisibility() || element.closest(":disabled")) continue;
  const [a, b] = [numbers(getComputedStyle(element).color), behind(element)].map(light);
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  found.push([ratio, element.className + ": " + walk.currentNode.data.slice(0, 30)]);
}
return found.sort((a, b) => a[0] - b[0]);
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_page(build_content(400), tmp_path_factory.mktemp("looks"))


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["", "#in.gapft=changed&open=problem-00008"], ids=["list", "open"])
def test_page_fits_is_legible_and_follows_theme(
    page: str, open_page: Callable[..., Any], tmp_path: Path, width: int, scheme: str, view: str
) -> None:
    browser = open_page(page, view, width, 844 if width < 500 else 900, scheme)
    if view:
        wait_until(browser, "document.querySelector('.answers article')")
    picture = tmp_path / f"explorer-{'open' if view else 'list'}-{width}-{scheme}.png"
    assert browser.save_screenshot(str(picture))
    wide = browser.execute_script(
        "return [document.documentElement.scrollWidth, window.innerWidth]"
    )
    assert wide[0] <= wide[1] == width
    contrasts = browser.execute_script(CONTRASTS)
    assert len(contrasts) > 20
    assert [contrast for contrast in contrasts if contrast[0] < 4.5] == []
    colours = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (colours == "rgb(255, 255, 255)") == (scheme == "light")
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [390, 1280])
def test_headers_align_with_columns(page: str, open_page: Callable[..., Any], width: int) -> None:
    for view in ("", "#open=problem-00008"):
        if view and width == 390:
            continue  # a phone shows only the problem
        browser = open_page(page, view, width, 900)
        places = browser.execute_script(
            "return ['.head .row', '.rows .row'].map(one => [...document.querySelector(one)"
            ".children].slice(1).map(cell => Math.round(cell.getBoundingClientRect().left)))"
        )
        assert len(places[0]) == 7
        assert places[0] == places[1]


def test_phone_layout_unfolds_filters_and_fills_screen(
    page: str, open_page: Callable[..., Any]
) -> None:
    from selenium.webdriver.common.by import By

    browser = open_page(page, width=390, height=844)
    choices, more = browser.find_element(By.ID, "choices"), browser.find_element(By.ID, "more")
    assert not choices.is_displayed()
    more.click()
    assert choices.is_displayed()
    assert more.get_attribute("aria-expanded") == "true"
    browser.find_element(By.CSS_SELECTOR, "input[value=U]").click()
    assert more.text == "Filters (1)"
    more.click()
    browser.execute_script("document.querySelector('.rows .row').click()")
    wait_until(browser, "document.querySelector('#detail h2')")
    assert not browser.find_element(By.ID, "list").is_displayed()
    press_keys(browser, "\ue00c")
    assert browser.find_element(By.ID, "list").is_displayed()
