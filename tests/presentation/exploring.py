"""Read the data of explorer.html, and hostile texts for it."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

from tests.kit.patience import PATIENCE_S

#: Text that tries to be executed, to escape its element, or to hide.
HOSTILE = (
    "</script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\">"
    "\u202ereversed\x00\x1b[31m\u200b{{ 7*7 }} ]]> <!-- <b>bold</b> &lt; \x1e\x1f \ud83d"
    + "x"
    * 3000
)


def unpack_page(page: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the page's index, and the texts of each problem."""
    html = page.read_text("utf-8")

    def unpack(packed: str) -> Any:
        return json.loads(zlib.decompress(base64.b64decode(packed)))

    (index,) = re.findall(r'<script type="text/plain" id="index">(.*?)</script>', html)
    chunks = re.findall(r'<script type="text/plain" class="chunk">(.*?)</script>', html)
    return unpack(index), [texts for chunk in chunks for texts in unpack(chunk)]


def wait_until(browser: Any, condition: str) -> None:
    """Wait until a JavaScript condition holds."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, PATIENCE_S, 0.02).until(
        lambda it: it.execute_script(f"return Boolean({condition})"), condition
    )
