"""Ways through a long page: its contents, its day, and from a problem's id to the explorer."""

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
from tests.report.chromium import show
from tests.report.explorer.driving import until
from tests.study.sealed import cell, seal, study, write_study_file

#: An id that means something in an address and in HTML, and one that turns text round.
ODD = ("a&b=c#d %41+é</a><b>x</b>\"'", "right\u202eleft")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = planted.inputs(sizes=(40, 35, 25), days=("2026-11-20", "2026-11-23"))
    ids = made.audit.ids.tolist()
    changed = [i for i, (a, b) in enumerate(zip(
        made.audit.verdicts.greedy, made.find_arms("gapft")[0].passed, strict=True
    )) if b and not a]  # fmt: skip
    for place, name in zip(changed, ODD, strict=False):
        ids[place] = name
    failed = [
        FailedResponse("audit", ids[0], -1, "fail", "why", "text", "gold"),
        FailedResponse("pool", "of the pool", -1, "fail", "why", "text", "gold"),
    ]
    failures = (Failures("audit", {"fail": 2}, ((("fail", "why"), 2),), tuple(failed)),)
    audit = replace(made.audit, ids=np.array(ids))
    folder = tmp_path_factory.mktemp("ways") / "report"
    write_report(replace(made, audit=audit, failures=failures), folder)
    return folder


def test_a_long_page_has_its_contents_and_each_leads_to_its_section(
    browser: Any, folder: Path
) -> None:
    show(browser, (folder / "index.html").as_uri(), 390, "light")
    listed = browser.execute_script(
        "return [...document.querySelectorAll('.contents a')].map(a => "
        "[a.textContent, document.getElementById(decodeURIComponent(a.hash.slice(1)))"
        "?.querySelector('h2').textContent])"
    )
    titles = browser.execute_script(
        "return [...document.querySelectorAll('h2')].map(h => h.textContent)"
    )
    assert [name for name, _ in listed] == titles
    assert [there for _, there in listed] == titles
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not browser.execute_script("return document.querySelector('nav').checkVisibility()")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_sections_of_one_name_have_anchors_of_their_own_and_a_short_page_no_contents() -> None:
    titles = ["", "Same", "same!", "Same", "***", "?"]
    sections = [Section(title, [Text("text")]) for title in titles]
    html = page.render_page("t", "", sections, [], {})
    anchors = re.findall(r'<section id="(.*?)">', html)
    assert len(anchors) == len({*anchors}) == 5
    assert all(anchors)
    assert re.findall(r'<a href="#(.*?)">', html) == anchors
    assert "<nav" not in page.render_page("t", "", sections[:3], [], {})


def test_a_report_says_when_it_was_made(folder: Path) -> None:
    for name in ("index.html", "report.md"):
        text = (folder / name).read_text("utf-8")
        assert "20 November 2026" in text
        assert "23 November 2026" in text
    assert "2026" not in (folder / "results.json").read_text("utf-8")


def test_a_problem_on_the_page_opens_in_the_explorer(browser: Any, folder: Path) -> None:
    address = (folder / "index.html").as_uri()
    show(browser, address, 1280, "light")
    links = browser.execute_script(
        "return [...document.querySelectorAll('.case h3 a')].map(a => "
        "[a.textContent, a.getAttribute('href')])"
    )
    shown = [name for name, _ in links]
    assert len(links) >= 8
    odd = [name for name in shown if name.startswith(("a&b", "right<U+202E>"))]
    for name in [*odd, shown[0]]:
        show(browser, address, 1280, "light")
        browser.execute_script(
            "document.querySelectorAll('details').forEach(d => { d.open = true });"
            "[...document.querySelectorAll('.case h3 a')]"
            ".find(a => a.textContent === arguments[0]).click()",
            name,
        )
        until(browser, "document.querySelector('#detail h2')")
        opened = browser.execute_script("return document.querySelector('#detail h2').textContent")
        assert opened == name
    assert odd, "a problem with an odd id is among the cases"
    assert browser.get_log("browser") == []


def test_of_the_examples_of_failures_those_of_the_audit_lead_there(folder: Path) -> None:
    html = (folder / "index.html").read_text("utf-8")
    part = html[html.index('id="why-so-little-passes"') : html.index('id="conditions"')]
    (link,) = re.findall(r'<a href="explorer\.html#open=(.*?)">', part)
    assert unquote_plus(link) in ("problem-00000", ODD[0])


def test_a_study_leads_to_its_cells_reports(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("a b#1", "without")):
        run = seal(tmp_path / "runs" / name, cell(number))
        if name == "without":  # its report was never written
            without = RunDirectory.open(run)
            without.update_manifest(lambda manifest: manifest["stages"].pop("report"))
            continue
        (run / "report").mkdir()
        (run / "report/index.html").write_text("<title>the report of A</title>", "utf-8")
    write_study_file(cells={"A": {"run": "runs/a b#1"}, "B": {"run": "runs/without"}})
    written = study(tmp_path)
    show(browser, written.as_uri(), 1280, "light")
    links = browser.execute_script(
        "return [...document.querySelectorAll('th a')].map(a => [a.textContent, a.href])"
    )
    assert links == [["A", (tmp_path / "runs/a b#1/report/index.html").as_uri()]] * 2
    browser.execute_script("document.querySelector('th a').click()")
    until(browser, "document.title === 'the report of A'")
    before = written.read_bytes()
    assert study(tmp_path).read_bytes() == before
    report = (written.parent / "report.md").read_text("utf-8")
    assert f"[A](<{links[0][1]}>)" in report
