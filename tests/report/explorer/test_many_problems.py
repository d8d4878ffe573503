"""15,000 problems, four conditions, three seeds: open, filter, scroll; `-s` prints times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapft_harness.report.explorer.content import ExplorerContent, ProblemTexts
from tests.report.chromium import show_page
from tests.report.explorer.driving import press_keys, wait_for_search, wait_until
from tests.report.explorer.made import build_content, write_page

PROBLEMS = 15_000


def build_long_entries(content: ExplorerContent) -> Iterator[ProblemTexts]:
    """Yield texts of some hundred characters with different words for each problem."""
    rng = np.random.default_rng(1)
    words = [f"{a}{b}" for a in ("add", "take", "times", "so", "half") for b in range(200)]
    text = " ".join(rng.choice(words, 400_000).tolist())
    starts = rng.integers(0, len(text) - 600, (PROBLEMS, 22)).tolist()
    for place, place_starts in enumerate(starts):
        shared = text[place_starts[0] : place_starts[0] + 250]
        yield ProblemTexts(
            prompt=f"Question {place}: {shared}",
            gold=str(place),
            responses=[shared + text[start : start + 60] for start in place_starts[1:]],
            document={"subject": f"subject {place % 7}"},
        )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    content = build_content(PROBLEMS)
    return write_page(
        replace(content, entries=lambda: build_long_entries(content)),
        tmp_path_factory.mktemp("many"),
    )


def test_many_problems_open_filter_and_scroll(
    browser: Any, page: str, open_page: Callable[..., Any], tmp_path: Path
) -> None:
    size = Path(page.removeprefix("file://")).stat().st_size
    assert 5e6 < size < 30e6
    started = time.monotonic()
    show_page(browser, page, 1280, "light")
    wait_until(browser, "document.body.dataset.ready")
    open_s = time.monotonic() - started
    assert browser.execute_script("return document.querySelectorAll('.rows .row').length") < 60
    filtering = browser.execute_async_script(
        """
        const done = arguments[0];
        const select = document.querySelector("#choices select");
        const box = document.querySelector("#choices input[value=S]");
        const time = (act) => new Promise((resolve) => {
          const start = performance.now();
          act();
          requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - start)));
        });
        const choose = (value) => () => {
          select.value = value;
          select.dispatchEvent(new Event("change"));
        };
        const sort = () => document.querySelectorAll("[role=columnheader] button")[2].click();
        (async () => {
          const times = [];
          for (const act of [choose("corrected"), () => box.click(), sort, choose("changed")]) {
            times.push(await time(act));
          }
          done(times);
        })();
        """
    )
    press_keys(browser, "\ue010")
    wait_until(
        browser,
        "document.querySelector('[aria-selected=true]')?.ariaRowIndex === "
        "document.getElementById('list').ariaRowCount",
    )
    started = time.monotonic()
    press_keys(browser, "/", "Question 14321:")
    wait_until(browser, "location.hash.includes('q=')")
    wait_for_search(browser)
    search_s = time.monotonic() - started
    print(
        f"{size / 1e6:.1f} MB, opened in {open_s:.2f} s, filters {filtering} ms, "
        f"search {search_s:.2f} s"
    )
    assert len(filtering) == 4
    assert browser.get_log("browser") == []
