"""Navigation of a long page: contents, dates, links from problems to the explorer."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import numpy as np
import pytest

from gapft_harness.report import write_report
from gapft_harness.report.reading.failures import FailedResponse, Failures
from gapft_harness.report.rendering import page
from gapft_harness.report.rendering.blocks import Section, Text
from gapft_harness.run_directory.directory import RunDirectory
from tests.report import planted
from tests.report.chromium import show_page
from tests.report.explorer.driving import wait_until
from tests.study.sealed import build_cell, run_planted_study, write_run_directory, write_study_file

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


def test_problem_link_opens_explorer(browser: Any, report_folder: Path) -> None:
    address = (report_folder / "index.html").as_uri()
    show_page(browser, address, 1280, "light")
    links = browser.execute_script(
        "return [...document.querySelectorAll('.case h3 a')].map(a => "
        "[a.textContent, a.getAttribute('href')])"
    )
    names = [name for name, _ in links]
    assert len(links) >= 8
    odd = [name for name in names if name.startswith(("a&b", "right<U+202E>"))]
    for name in [*odd, names[0]]:
        show_page(browser, address, 1280, "light")
        browser.execute_script(
            "document.querySelectorAll('details').forEach(d => { d.open = true });"
            "[...document.querySelectorAll('.case h3 a')]"
            ".find(a => a.textContent === arguments[0]).click()",
            name,
        )
        wait_until(browser, "document.querySelector('#detail h2')")
        opened = browser.execute_script("return document.querySelector('#detail h2').textContent")
        assert opened == name
    assert odd, "a problem with an odd id is among the cases"
    assert browser.get_log("browser") == []


def test_only_audit_failures_link_to_explorer(report_folder: Path) -> None:
    html = (report_folder / "index.html").read_text("utf-8")
    part = html[html.index('id="why-so-little-passes"') : html.index('id="conditions"')]
    (link,) = re.findall(r'<a href="explorer\.html#open=(.*?)">', part)
    assert unquote_plus(link) in ("problem-00000", ODD[0])


def test_study_links_to_reports_of_cells(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("a b#1", "without")):
        run = write_run_directory(tmp_path / "runs" / name, build_cell(number))
        if name == "without":  # its report was never written
            without = RunDirectory.open(run)
            without.update_manifest(lambda manifest: manifest["stages"].pop("report"))
            continue
        (run / "report").mkdir()
        (run / "report/index.html").write_text("<title>the report of A</title>", "utf-8")
    write_study_file(cells={"A": {"run": "runs/a b#1"}, "B": {"run": "runs/without"}})
    written = run_planted_study(tmp_path)
    show_page(browser, written.as_uri(), 1280, "light")
    links = browser.execute_script(
        "return [...document.querySelectorAll('th a')].map(a => [a.textContent, a.href])"
    )
    assert links == [["A", (tmp_path / "runs/a b#1/report/index.html").as_uri()]] * 2
    browser.execute_script("document.querySelector('th a').click()")
    wait_until(browser, "document.title === 'the report of A'")
    before = written.read_bytes()
    assert run_planted_study(tmp_path).read_bytes() == before
    report = (written.parent / "report.md").read_text("utf-8")
    assert f"[A](<{links[0][1]}>)" in report
