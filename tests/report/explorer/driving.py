"""What a person does on the page, and sees."""

from __future__ import annotations

from typing import Any


def until(browser: Any, condition: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 10, 0.02).until(
        lambda it: it.execute_script(f"return Boolean({condition})"), condition
    )


def rows(browser: Any, *, prefix: bool = True) -> list[Any]:
    """The numbers of the problems in the list, in order; all of them must be in sight."""
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll('.rows .row')]"
        ".sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)"
        ".map(row => row.querySelector('.name').textContent)"
    )
    counted = browser.execute_script("return +document.getElementById('list').ariaRowCount - 1")
    assert len(found) == counted
    return [int(name.removeprefix("problem-")) for name in found] if prefix else found


def text(browser: Any, selector: str) -> str:
    found: str = browser.execute_script(
        "return document.querySelector(arguments[0]).innerText", selector
    )
    return found


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def searched(browser: Any) -> None:
    """Waits until a search has been through all texts."""
    until(browser, "!document.getElementById('count').textContent.includes('searched')")


def turn_to(browser: Any, view: str) -> None:
    """Gives an open page another address, as a link to another view does."""
    browser.execute_async_script(
        "const [view, done] = arguments;"
        "addEventListener('popstate', () => setTimeout(done), {once: true});"
        "location.hash = view",
        view,
    )
