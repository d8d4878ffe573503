"""The report's folder: reproducible bytes, complete or absent, safe with hostile text."""

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from gapft_harness.core.errors import UserError
from gapft_harness.presentation.visible import MAX_CHARS
from gapft_harness.report import document, figures, write_report
from gapft_harness.report.findings import computation as findings
from gapft_harness.report.rendering.blocks import Figure
from tests.report import planted

HOSTILE = (
    "</pre><script>alert(1)</script><img src=x onerror=alert(2)> ```` {{ 7*7 }} [a](javascript:x)\n"
    "| a | b |\x00\x1b[31m \u202egnp.exe https://example.com/x '\"&amp;"
)


def read_files(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


@pytest.fixture(scope="module")
def small_inputs():
    return planted.build_inputs(sizes=(40, 35, 25))


@pytest.fixture(scope="module")
def report_folder(small_inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "report"
    write_report(small_inputs, folder)
    return folder


@pytest.fixture(scope="module")
def figure_names(small_inputs):
    return [figure.name for figure in figures.draw_figures(findings.compute_findings(small_inputs))]


class PageParser(HTMLParser):
    """Collect tags, attributes and text of a page."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attrs]

    def handle_data(self, data):
        self.text.append(data)


def parse_page(folder):
    return PageParser((folder / "index.html").read_text("utf-8"))


def test_writes_all_documented_files(report_folder, figure_names):
    names = set(read_files(report_folder))
    pictures = {f"figures/{name}.{kind}" for name in figure_names for kind in ("svg", "png")}
    assert {"index.html", "explorer.html", "report.md", "results.json"} | pictures <= names
    assert {"tables/conditions.csv", "tables/contrasts.csv", "tables/items.csv"} <= names
    assert [p.name for p in report_folder.parent.iterdir()] == ["report"]


def test_writes_same_bytes_again(small_inputs, report_folder, tmp_path):
    write_report(small_inputs, tmp_path / "report")
    assert read_files(tmp_path / "report") == read_files(report_folder)


def test_second_write_replaces_folder(small_inputs, tmp_path):
    folder = tmp_path / "report"
    write_report(small_inputs, folder)
    (folder / "tables" / "stale.csv").write_text("old")
    write_report(small_inputs, folder)
    assert not (folder / "tables" / "stale.csv").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["report"]


def test_rejects_folder_with_unknown_file(small_inputs, tmp_path):
    folder = tmp_path / "report"
    write_report(small_inputs, folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"report: .* notes\.txt"):
        write_report(small_inputs, folder)
    assert (folder / "notes.txt").read_text() == "mine"


def test_page_loads_no_external_resources(report_folder, figure_names):
    parsed_page = parse_page(report_folder)
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(
        parsed_page.tags
    )
    urls = [
        value
        for _, name, value in parsed_page.attributes
        if name in ("src", "srcset", "href", "action", "data", "poster")
    ]
    within = [url for url in urls if url.startswith(("#", "explorer.html"))]
    pictures = [url for url in urls if url not in within]
    assert len(pictures) == 2 * len(figure_names), "one each for light and dark pages"
    assert all(url.startswith("data:image/svg+xml;base64,") for url in pictures)
    text = (report_folder / "index.html").read_text("utf-8")
    assert not re.search(r"https?://|url\(|@import", text)
    policy = next(v for t, n, v in parsed_page.attributes if n == "content" and "default-src" in v)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_security_policy_allows_own_style(report_folder):
    import base64
    import hashlib

    text = (report_folder / "index.html").read_text("utf-8")
    css = re.search(r"<style>(.*?)</style>", text, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in text
    assert "prefers-color-scheme: dark" in css


def build_hostile_inputs(small):
    count = len(small.audit.ids)
    audit = planted.replace_decodes(small.audit, texts=(HOSTILE + "x" * 2 * MAX_CHARS,) * count)
    return replace(
        small,
        recipe={**small.recipe, "description": HOSTILE},
        warnings=(HOSTILE,),
        audit=replace(
            audit,
            prompts=tuple(HOSTILE for _ in audit.prompts),
            golds=tuple(json.dumps(HOSTILE) for _ in audit.golds),
        ),
        arms=tuple(planted.replace_decodes(arm, texts=(HOSTILE,) * count) for arm in small.arms),
    )


def test_page_shows_hostile_text_as_text(small_inputs, report_folder, tmp_path):
    write_report(build_hostile_inputs(small_inputs), tmp_path / "report")
    clean_page, hostile_page = parse_page(report_folder), parse_page(tmp_path / "report")
    assert set(hostile_page.tags) == set(clean_page.tags)
    assert hostile_page.tags.count("img") == clean_page.tags.count("img")
    assert not [name for _, name, _ in hostile_page.attributes if name.startswith("on")]
    text = "".join(hostile_page.text)
    assert "<script>alert(1)</script>" in text
    assert "{{ 7*7 }}" in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "<U+202E>" in text
    assert "x" * 2 * MAX_CHARS in text, "a response is not shortened"


def test_markdown_shows_hostile_text_as_text(small_inputs, report_folder, figure_names, tmp_path):
    def parse(folder):
        text = (folder / "report.md").read_text("utf-8")
        return MarkdownIt("commonmark").enable("table").parse(text)

    write_report(build_hostile_inputs(small_inputs), tmp_path / "report")
    tokens = parse(tmp_path / "report")
    assert not [t for t in tokens if t.type == "html_block"]
    inline = [child for t in tokens for child in t.children or ()]
    assert not [t for t in inline if t.type in ("html_inline", "link_open")]
    assert {t.attrs["src"] for t in inline if t.type == "image"} == {
        f"figures/{name}.svg" for name in figure_names
    }
    for kind in ("table_open", "fence", "heading_open", "paragraph_open"):
        hostile_tokens, clean_tokens = (
            [t for t in token_list if t.type == kind]
            for token_list in (tokens, parse(report_folder))
        )
        assert len(hostile_tokens) == len(clean_tokens), kind


@pytest.mark.parametrize("build", [planted.build_inputs, planted.build_allocation_inputs])
def test_report_shows_every_drawn_figure(build):
    inputs = build(sizes=(40, 35, 25))
    report_findings = findings.compute_findings(inputs)
    blocks = [
        block
        for section in document.build_sections(inputs, report_findings)
        for block in section.blocks
    ]
    shown_figures = [block.name for block in blocks if isinstance(block, Figure)]
    assert sorted(shown_figures) == sorted(
        drawing.name for drawing in figures.draw_figures(report_findings)
    )


def test_items_table_holds_every_change_in_full(small_inputs, report_folder):
    rows = list(
        csv.DictReader(io.StringIO((report_folder / "tables/items.csv").read_text("utf-8")))
    )
    results = json.loads((report_folder / "results.json").read_text("utf-8"))
    for name, condition in results["conditions"].items():
        for seed, seed_results in condition["seeds"].items():
            arm_rows = [r for r in rows if (r["condition"], r["seed"]) == (name, seed)]
            changed = [r["change"] for r in arm_rows]
            counts = seed_results["counts"]
            assert changed.count("gained") == counts["S_corrected"] + counts["U_corrected"]
            assert changed.count("lost") == counts["G_regressed"]
    ordered = small_inputs
    places = {str(problem): place for place, problem in enumerate(ordered.audit.ids)}
    first = rows[0]
    assert first["before"] == ordered.audit.deployed.texts[places[first["problem_id"]]]
    assert (
        first["after"] == ordered.find_arms("gapft")[0].deployed.texts[places[first["problem_id"]]]
    )


def test_tables_match_results(report_folder):
    results = json.loads((report_folder / "results.json").read_text("utf-8"))
    rows = csv.DictReader(io.StringIO((report_folder / "tables/conditions.csv").read_text("utf-8")))
    for row in rows:
        condition = results["conditions"][row["condition"]]
        assert float(row["pass_at_1"]) == condition["pass_at_1"]
        assert float(row["kappa_S"]) == condition["kappa_S"]
        assert float(row["term_G"]) == condition["terms"]["G"]
    contrasts = csv.DictReader(
        io.StringIO((report_folder / "tables/contrasts.csv").read_text("utf-8"))
    )
    assert [float(row["delta"]) for row in contrasts] == [c["delta"] for c in results["contrasts"]]


def test_tables_hold_no_measured_times(small_inputs, tmp_path):
    facts = {"loss": {"last": 0.25}, "seconds": 4.5, "tokens_per_second": 9.0}
    write_report(replace(small_inputs, training={"gapft-seed13": facts}), tmp_path / "report")
    table = (tmp_path / "report" / "tables" / "training.csv").read_text("utf-8")
    assert table == "arm,fact,value\ngapft-seed13,loss.last,0.25\n"


def test_training_table_holds_only_reported_arms(tmp_path):
    """The run trained four conditions; the recipe now has two."""
    inputs = planted.build_inputs(conditions=("gapft", "replay"), sizes=(40, 35, 25))
    everything = {
        f"{name}-seed{seed}": {"loss": 0.5} for name in planted.CONDITIONS for seed in (13, 21, 73)
    }
    write_report(replace(inputs, training=everything), tmp_path / "report")
    table = (tmp_path / "report/tables/training.csv").read_text("utf-8")
    arms = [row["arm"] for row in csv.DictReader(io.StringIO(table))]
    assert arms == [f"{name}-seed{seed}" for name in ("gapft", "replay") for seed in (13, 21, 73)]


def test_shows_stage_warnings_and_recipe_notes(small_inputs, report_folder):
    markdown = (report_folder / "report.md").read_text("utf-8")
    assert small_inputs.warnings[0] in markdown
    assert "2 records whose prompt is in the audit dropped" in markdown
    assert "A remark of the recipe." in markdown


def test_writes_report_when_nothing_can_be_trained(tmp_path):
    inputs = planted.build_inputs(conditions=(), sizes=(20, 0, 30), pool_states=(5, 0, 9))
    write_report(inputs, tmp_path / "report")
    assert (tmp_path / "report" / "report.md").exists()
    assert sorted(p.name for p in (tmp_path / "report" / "figures").iterdir()) == [
        "search_curve.png",
        "search_curve.svg",
    ]


@pytest.mark.parametrize(
    "changes",
    [{"seeds": (13,)}, {"k": 1}, {"k": 32}, {"sizes": (0, 3, 2)}, {"sizes": (9, 0, 0)}],
)
def test_writes_unusual_shapes(changes, tmp_path):
    write_report(planted.build_inputs(**{"sizes": (12, 9, 8), **changes}), tmp_path / "report")
    assert (tmp_path / "report" / "index.html").stat().st_size > 10_000


def test_plugin_sections_come_last_with_inert_html(small_inputs, figure_names, tmp_path):
    def render(results):
        results.clear()  # a plugin cannot change what is written
        return "**bold** <script>x</script> ![p](https://example.com/a.png)\n\n|a|\n|-|\n|1|"

    write_report(small_inputs, tmp_path / "report", [("Extra", render)])
    html = (tmp_path / "report" / "index.html").read_text("utf-8")
    assert "<strong>bold</strong>" in html
    assert "<script" not in html
    assert html.count("<img") == len(figure_names)
    assert html.index("<h2>Extra</h2>") > html.index("<h2>Reproduce</h2>")
    assert json.loads((tmp_path / "report" / "results.json").read_text("utf-8"))["schema"] == 1


def test_documented_section_works(small_inputs, tmp_path):
    docs = Path(__file__).parents[2] / "docs" / "report.md"
    code = re.search(r"```python\n(.*?)```", docs.read_text("utf-8"), re.S)[1]
    names, sections = {}, []
    exec(code, names)
    names["register_report_sections"](lambda *section: sections.append(section))
    write_report(small_inputs, tmp_path / "report", sections)
    assert "Fewest regressions: **replay**" in (tmp_path / "report/report.md").read_text("utf-8")
