"""Model outputs are shown as text: they do not run, load, move other text, or hide."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gapft_harness.core.text import replace_text_surrogates
from gapft_harness.presentation.visible import make_visible
from gapft_harness.report.explorer import packing as explorer
from gapft_harness.report.explorer.content import ExplorerModel
from tests.report.explorer.driving import press_keys, read_rows, wait_for_search, wait_until
from tests.report.explorer.made import HOSTILE, build_content, map_texts, write_page

VISIBLE_HOSTILE = make_visible(replace_text_surrogates(HOSTILE))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    content = map_texts(build_content(30), lambda text: f"{text}{HOSTILE}")
    models = [
        ExplorerModel(HOSTILE, HOSTILE, f"{model.seed}{HOSTILE}", model.verdicts, model.outcomes)
        for model in content.models[:2]
    ]
    entries = content.entries

    def keep_two_models() -> Any:
        for entry in entries():
            responses = [*entry.responses[:3], *entry.responses[-8:]]
            document = {HOSTILE[:50] + key: f"<b>{v}" for key, v in entry.document.items()}
            yield replace(entry, responses=responses, document=document)

    ids = [f"{name}{HOSTILE}" for name in content.ids]
    content = replace(
        content, ids=ids, models=models, entries=keep_two_models, title=HOSTILE, remark=HOSTILE
    )
    return write_page(content, tmp_path_factory.mktemp("hostile"))


def test_hostile_texts_are_inert(page: str, open_page: Callable[..., Any]) -> None:
    browser = open_page(page, width=390, height=4000)
    title = browser.title
    press_keys(browser, "j", "k", "\ue007")
    wait_until(browser, "document.querySelector('.answers article')")
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true })")
    texts = browser.execute_script(
        "return [...document.querySelectorAll('#detail pre')].map(pre => pre.textContent)"
    )
    assert len(texts) == 1 + 2 + 8
    assert all(VISIBLE_HOSTILE in text for text in texts)
    tags = browser.execute_script(
        "return [...new Set([...document.querySelectorAll('body *')].map(e => e.localName))]"
    )
    assert not {"img", "b", "i", "iframe", "object", "form"} & {*tags}
    assert browser.execute_script("return document.scripts.length") == 1 + 1 + 1
    assert browser.title == title == " ".join(f"{VISIBLE_HOSTILE}: every problem".split())
    everything = browser.execute_script("return document.body.innerText")
    assert not re.search("[\u202e\x00\x1b\u200b]", everything)
    assert browser.get_log("browser") == []
    wide = browser.execute_script(
        "return [document.documentElement.scrollWidth, window.innerWidth]"
    )
    assert wide[0] <= wide[1] == 390


def test_search_finds_hostile_texts_as_shown(page: str, open_page: Callable[..., Any]) -> None:
    browser = open_page(page)
    press_keys(browser, "/", "<U+202E>reversed")
    wait_until(browser, "location.hash.includes('q=')")
    wait_for_search(browser)
    assert len(read_rows(browser, prefix=False)) == 30


def test_security_policy_allows_only_own_script_and_style(
    open_page: Callable[..., Any], tmp_path: Path
) -> None:
    html = explorer.render_explorer(build_content(10))
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', html)
    (script,) = re.findall(r'<script type="module">(.*?)</script>', html, re.S)
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.S)
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (script, style)
    ]
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digests[0]}'; style-src 'sha256-{digests[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not re.search(r"https?://|url\(|@import|innerHTML|outerHTML|insertAdjacent", html)
    forged = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>"
    (tmp_path / "forged.html").write_text(html.replace("<main>", f"{forged}<main>"), "utf-8")
    browser = open_page((tmp_path / "forged.html").as_uri())
    assert browser.title == "made on a task: every problem"
    refused = [entry["message"] for entry in browser.get_log("browser")]
    assert len([message for message in refused if "Content Security Policy" in message]) >= 2
