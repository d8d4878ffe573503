"""The browser that all tests of pages share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.report import chromium


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = chromium.start_browser(tmp_path_factory.mktemp("chromium"))
    yield session
    session.quit()
