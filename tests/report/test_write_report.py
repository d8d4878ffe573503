"""The report's folder: reproducible bytes, complete or absent, safe with hostile text."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.report import replace_folder, write_report
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.reading.texts import AuditTexts
from tests.report import planted
from tests.report.written_run import write_run

HOSTILE = (
    "</pre><script>alert(1)</script><img src=x onerror=alert(2)> ```` {{ 7*7 }} [a](javascript:x)\n"
    "| a | b |\x00\x1b[31m \u202egnp.exe https://example.com/x '\"&amp;"
)


def read_files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> ReportInputs:
    run = tmp_path_factory.mktemp("planted")
    inputs = planted.build_inputs(sizes=(40, 35, 25))
    write_run(run, inputs)
    return replace(inputs, texts=AuditTexts(run))


@pytest.fixture(scope="module")
def report_folder(inputs: ReportInputs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "report"
    write_report(inputs, folder)
    return folder


class PageParser(HTMLParser):
    """Collect tags, attributes and text of a page."""

    def __init__(self, folder: Path) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed((folder / "index.html").read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def test_writes_all_files_and_the_same_bytes_again(
    inputs: ReportInputs, report_folder: Path, tmp_path: Path
) -> None:
    files = read_files(report_folder)
    figures = {f"figures/{name}.svg" for name in ("contrasts", "flows", "pass_at_k")}
    tables = {f"tables/{name}.csv" for name in ("conditions", "contrasts", "items", "problems")}
    assert {"index.html", "index.md", "explorer.html", "results.json"} | figures | tables <= {
        *files
    }
    assert [path.name for path in report_folder.parent.iterdir()] == ["report"]
    write_report(inputs, tmp_path / "report")
    assert read_files(tmp_path / "report") == files


@pytest.mark.parametrize("names", [["results.json", "notes.txt"], ["index.html"]])
def test_does_not_replace_files_of_others(names: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "report"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("mine")
    with pytest.raises(UserError) as caught:
        replace_folder(folder, {"results.json": b"{}"})
    assert str(folder) in str(caught.value)
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(
        names, "mine"
    )


def test_failed_write_leaves_the_old_folder(tmp_path: Path) -> None:
    replace_folder(tmp_path / "report", {"results.json": b"old"})
    with pytest.raises(GapftError):
        replace_folder(tmp_path / "report", {"results.json": b"new", "results.json/x": b""})
    assert read_files(tmp_path) == {"report/results.json": b"old"}


def test_page_links_only_to_the_explorer(report_folder: Path) -> None:
    page = PageParser(report_folder)
    assert not {"script", "link", "iframe", "object", "base", "form"} & {*page.tags}
    links = [value or "" for name, value in page.attributes if name in ("src", "srcset", "href")]
    allowed = ("#", "explorer.html", "data:image/svg+xml;base64,")
    assert all(link.startswith(allowed) for link in links)
    rows = json.loads((report_folder / "results.json").read_text("utf-8"))["cases"]
    assert {f"explorer.html#{row['problem_id']}" for row in rows} <= {*links}


def test_hostile_text_is_shown_as_text(
    inputs: ReportInputs, report_folder: Path, tmp_path: Path
) -> None:
    count = len(inputs.audit.ids)
    audit = planted.replace_decodes(inputs.audit, texts=(HOSTILE,) * count)
    audit = replace(audit, prompts=(HOSTILE,) * count, golds=(json.dumps(HOSTILE),) * count)
    recipe = {**inputs.recipe, "description": HOSTILE, "notes": [HOSTILE]}
    arms = tuple(planted.replace_decodes(arm, texts=(HOSTILE,) * count) for arm in inputs.arms)
    hostile = replace(inputs, recipe=recipe, warnings=(HOSTILE,), audit=audit, arms=arms)
    write_report(hostile, tmp_path / "report")
    page, clean = PageParser(tmp_path / "report"), PageParser(report_folder)
    assert {*page.tags} == {*clean.tags}
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    for text in ("<script>alert(1)</script>", "{{ 7*7 }}", "<U+202E>"):
        assert page.text.count(text) == 3, "warning, note and description"
    assert not {"\u202e", "\x00", "\x1b"} & {*page.text}
    markdown = (tmp_path / "report/index.md").read_text("utf-8")
    tokens = MarkdownIt("commonmark").enable("table").parse(markdown)
    inline = [child for token in tokens for child in token.children or ()]
    kinds = {token.type for token in (*tokens, *inline)}
    assert not {"html_block", "html_inline", "link_open", "fence"} & kinds
