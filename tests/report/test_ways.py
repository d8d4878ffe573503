"""Navigation of a long page: contents, dates, links from problems to the explorer."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

from gapft_harness.report import write_report
from gapft_harness.report.reading.failures import FailedResponse, Failures
from gapft_harness.report.rendering import page
from gapft_harness.report.rendering.blocks import Section, Text
from tests.presentation.exploring import wait_until
from tests.report import planted
from tests.report.chromium import show_page

#: An id with characters special in addresses and HTML, and one that reverses text.
ODD = ("a&b=c#d %41+é</a><b>x</b>\"'", "right\u202eleft")


@pytest.fixture(scope="module")
def report_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = planted.build_inputs(sizes=(40, 35, 25), days=("2026-11-20", "2026-11-23"))
    ids = base.audit.ids.tolist()
    changed = [i for i, (a, b) in enumerate(zip(
        base.audit.verdicts.deployed, base.find_arms("gapft")[0].deployed.passed, strict=True
    )) if b and not a]  # fmt: skip
    for place, name in zip(changed, ODD, strict=False):
        ids[place] = name
    failed = [
        FailedResponse("audit", ids[0], -1, "fail", "why", "text", "gold"),
        FailedResponse("pool", "of the pool", -1, "fail", "why", "text", "gold"),
    ]
    failures = (Failures("audit", {"fail": 2}, ((("fail", "why"), 2),), tuple(failed)),)
    audit = replace(base.audit, ids=np.array(ids))
    folder = tmp_path_factory.mktemp("ways") / "report"
    write_report(replace(base, audit=audit, failures=failures), folder)
    return folder


def test_contents_link_to_every_section(browser: Any, report_folder: Path) -> None:
    show_page(browser, (report_folder / "index.html").as_uri(), 390, "light")
    links = browser.execute_script(
        "return [...document.querySelectorAll('.contents a')].map(a => "
        "[a.textContent, document.getElementById(decodeURIComponent(a.hash.slice(1)))"
        "?.querySelector('h2').textContent])"
    )
    titles = browser.execute_script(
        "return [...document.querySelectorAll('h2')].map(h => h.textContent)"
    )
    assert [name for name, _ in links] == titles
    assert [title for _, title in links] == titles
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not browser.execute_script("return document.querySelector('nav').checkVisibility()")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_section_anchors_are_unique_and_short_page_lacks_contents() -> None:
    titles = ["", "Same", "same!", "Same", "***", "?"]
    sections = [Section(title, [Text("text")]) for title in titles]
    html = page.render_page("t", "", sections, [], {})
    anchors = re.findall(r'<section id="(.*?)">', html)
    assert len(anchors) == len({*anchors}) == 5
    assert all(anchors)
    assert re.findall(r'<a href="#(.*?)">', html) == anchors
    assert "<nav" not in page.render_page("t", "", sections[:3], [], {})


def test_report_shows_run_dates(report_folder: Path) -> None:
    for name in ("index.html", "report.md"):
        text = (report_folder / name).read_text("utf-8")
        assert "20 November 2026" in text
        assert "23 November 2026" in text
    assert "2026" not in (report_folder / "results.json").read_text("utf-8")


def test_only_audit_failures_link_to_explorer(report_folder: Path) -> None:
    html = (report_folder / "index.html").read_text("utf-8")
    part = html[html.index('id="why-so-little-passes"') : html.index('id="conditions"')]
    (link,) = re.findall(r'<a href="explorer\.html#(.*?)">', part)
    assert unquote(link) in ("problem-00000", ODD[0])
