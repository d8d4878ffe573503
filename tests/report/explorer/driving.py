"""Actions of a user on the page, and what the page shows."""

from __future__ import annotations

from typing import Any

from tests.kit.patience import PATIENCE_S


def wait_until(browser: Any, condition: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, PATIENCE_S, 0.02).until(
        lambda it: it.execute_script(f"return Boolean({condition})"), condition
    )


def read_rows(browser: Any, *, prefix: bool = True) -> list[Any]:
    """Read the numbers of the listed problems, in order; all of them must be visible."""
    names: list[str] = browser.execute_script(
        "return [...document.querySelectorAll('.rows .row')]"
        ".sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)"
        ".map(row => row.querySelector('.name').textContent)"
    )
    counted = browser.execute_script("return +document.getElementById('list').ariaRowCount - 1")
    assert len(names) == counted
    return [int(name.removeprefix("problem-")) for name in names] if prefix else names


def read_text(browser: Any, selector: str) -> str:
    content: str = browser.execute_script(
        "return document.querySelector(arguments[0]).innerText", selector
    )
    return content


def press_keys(browser: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def wait_for_search(browser: Any) -> None:
    """Wait until a search has covered all texts."""
    wait_until(browser, "!document.getElementById('count').textContent.includes('searched')")


def turn_to(browser: Any, view: str) -> None:
    """Change the address of an open page, as a link to another view does."""
    browser.execute_async_script(
        "const [view, done] = arguments;"
        "addEventListener('popstate', () => setTimeout(done), {once: true});"
        "location.hash = view",
        view,
    )
