"""What a person does on the page, and sees."""

from __future__ import annotations

from typing import Any


def wait_until(browser: Any, condition: str) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 10, 0.02).until(
        lambda it: it.execute_script(f"return Boolean({condition})"), condition
    )


def read_rows(browser: Any, *, prefix: bool = True) -> list[Any]:
    """The numbers of the problems in the list, in order; all of them must be in sight."""
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
    """Waits until a search has been through all texts."""
    wait_until(browser, "!document.getElementById('count').textContent.includes('searched')")


def turn_to(browser: Any, view: str) -> None:
    """Gives an open page another address, as a link to another view does."""
    browser.execute_async_script(
        "const [view, done] = arguments;"
        "addEventListener('popstate', () => setTimeout(done), {once: true});"
        "location.hash = view",
        view,
    )
