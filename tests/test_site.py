"""The documentation site works from a folder and loads nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kit.patience import PATIENCE_S

FILE = Path(__file__).parents[1] / "docs" / "site" / "build.py"
SPEC = importlib.util.spec_from_file_location("site_build", FILE)
assert SPEC is not None
assert SPEC.loader is not None
site = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(site)


def test_page_opened_from_a_folder_has_a_worker(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "w.js").write_text("onmessage = e => postMessage('\\u2603\"' + e.data)")
    (tmp_path / "in_page.js").write_text(site.worker_in_page((tmp_path / "w.js").read_text()))
    starts = """<script>
        try { const w = new Worker("w.js"); w.onmessage = e => { document.title = e.data }
              w.postMessage("found") } catch { document.title = "refused" }</script>"""
    page = tmp_path / "page.html"
    for script, title in (("", "refused"), ('<script src="in_page.js"></script>', '\u2603"found')):
        page.write_text(script + starts)
        browser.get(page.as_uri())
        deadline = time.monotonic() + PATIENCE_S
        while not browser.title and time.monotonic() < deadline:
            time.sleep(0.05)
        assert browser.title == title


def test_external_resources_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workers = tmp_path / "assets" / "javascripts" / "workers"
    workers.mkdir(parents=True)
    (workers / "search.1.min.js").touch()
    monkeypatch.setattr(site, "SITE", tmp_path)
    (tmp_path / "a.html").write_text('<script src="./a.js"></script><a href="https://a.org">a</a>')
    assert site.finish() == 0
    (tmp_path / "a.html").write_text('<script type="module" src="https://a.org/a.js"></script>')
    assert site.finish() == 1
    assert "elsewhere: a.html: <script type" in capsys.readouterr().err
