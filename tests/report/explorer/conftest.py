"""Fixtures for the explorer page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.report.chromium import show_page
from tests.report.explorer.driving import wait_until


@pytest.fixture
def open_page(browser: Any) -> Callable[..., Any]:
    """Open a page at a view and wait until it is ready; by default all rows are visible."""

    def at(
        page: str, view: str = "", width: int = 1280, height: int = 8000, scheme: str = "light"
    ) -> Any:
        browser.get_log("browser")
        show_page(browser, page + view, width, scheme, height)
        wait_until(browser, "document.body.dataset.ready")
        return browser

    return at
