"""15,000 problems, four conditions, three seeds: opened, filtered, walked; `-s` prints times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapft_harness.report.explorer.content import ExplorerContent, ProblemTexts
from tests.report.chromium import show
from tests.report.explorer.driving import press, searched, until
from tests.report.explorer.made import explored, write

PROBLEMS = 15_000


def long_entries(of: ExplorerContent) -> Iterator[ProblemTexts]:
    """Texts of some hundred characters in words that differ from problem to problem."""
    rng = np.random.default_rng(1)
    words = [f"{a}{b}" for a in ("add", "take", "times", "so", "half") for b in range(200)]
    text = " ".join(rng.choice(words, 400_000).tolist())
    starts = rng.integers(0, len(text) - 600, (PROBLEMS, 22)).tolist()
    for place, of_place in enumerate(starts):
        shared = text[of_place[0] : of_place[0] + 250]
        yield ProblemTexts(
            prompt=f"Question {place}: {shared}",
            gold=str(place),
            responses=[shared + text[start : start + 60] for start in of_place[1:]],
            document={"subject": f"subject {place % 7}"},
        )


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    of = explored(PROBLEMS)
    return write(replace(of, entries=lambda: long_entries(of)), tmp_path_factory.mktemp("many"))


def test_many_problems_open_filter_and_scroll(
    browser: Any, page: str, opens: Callable[..., Any], tmp_path: Path
) -> None:
    size = Path(page.removeprefix("file://")).stat().st_size
    assert 5e6 < size < 30e6
    started = time.monotonic()
    show(browser, page, 1280, "light")
    until(browser, "document.body.dataset.ready")
    took = time.monotonic() - started
    assert browser.execute_script("return document.querySelectorAll('.rows .row').length") < 60
    filtering = browser.execute_async_script(
        """
        const done = arguments[0];
        const select = document.querySelector("#choices select");
        const box = document.querySelector("#choices input[value=S]");
        const time = (act) => new Promise((told) => {
          const start = performance.now();
          act();
          requestAnimationFrame(() => setTimeout(() => told(performance.now() - start)));
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
    press(browser, "\ue010")
    until(
        browser,
        "document.querySelector('[aria-selected=true]')?.ariaRowIndex === "
        "document.getElementById('list').ariaRowCount",
    )
    started = time.monotonic()
    press(browser, "/", "Question 14321:")
    until(browser, "location.hash.includes('q=')")
    searched(browser)
    found = time.monotonic() - started
    print(
        f"{size / 1e6:.1f} MB, opened in {took:.2f} s, filters {filtering} ms, search {found:.2f}"
    )
    assert len(filtering) == 4
    assert browser.get_log("browser") == []
