"""The written folder: same bytes each time, whole or absent, and safe with hostile text."""

import csv
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from gapft_harness.core.errors import GapftError, PluginError, UserError
from gapft_harness.report import document, figures, write_report
from gapft_harness.report.findings import computation as findings
from gapft_harness.report.rendering.blocks import Figure
from gapft_harness.report.rendering.visible import MAX_CHARS
from tests.report import planted

HOSTILE = (
    "</pre><script>alert(1)</script><img src=x onerror=alert(2)> ```` {{ 7*7 }} [a](javascript:x)\n"
    "| a | b |\x00\x1b[31m \u202egnp.exe https://example.com/x '\"&amp;"
)


def files(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*.*")}


@pytest.fixture(scope="module")
def small():
    return planted.inputs(sizes=(40, 35, 25))


@pytest.fixture(scope="module")
def written(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "report"
    write_report(small, folder)
    return folder


@pytest.fixture(scope="module")
def drawn(small):
    return [of.name for of in figures.draw_figures(findings.compute_findings(small))]


class Page(HTMLParser):
    """Collects tags, attributes and text of a page."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *attribute) for attribute in attrs]

    def handle_data(self, data):
        self.text.append(data)


def page(folder):
    return Page((folder / "index.html").read_text("utf-8"))


def test_all_promised_files_are_there(written, drawn):
    names = set(files(written))
    pictures = {f"figures/{name}.{kind}" for name in drawn for kind in ("svg", "png")}
    assert {"index.html", "explorer.html", "report.md", "results.json"} | pictures <= names
    assert {"tables/conditions.csv", "tables/contrasts.csv", "tables/items.csv"} <= names
    assert [p.name for p in written.parent.iterdir()] == ["report"]


def test_two_writes_give_the_same_bytes(small, written, tmp_path):
    write_report(small, tmp_path / "report")
    assert files(tmp_path / "report") == files(written)


def test_writing_again_replaces_all(small, tmp_path):
    folder = tmp_path / "report"
    write_report(small, folder)
    (folder / "tables" / "stale.csv").write_text("old")
    write_report(small, folder)
    assert not (folder / "tables" / "stale.csv").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["report"]


def test_somebody_elses_file_is_not_replaced_by_a_report(small, tmp_path):
    folder = tmp_path / "report"
    write_report(small, folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"report: .* notes\.txt"):
        write_report(small, folder)
    assert (folder / "notes.txt").read_text() == "mine"


def test_names_are_drawn_as_they_are_and_rates_as_symbols(small):
    from matplotlib.figure import Figure as Drawn

    def draw(text):
        figure = Drawn()
        figure.text(0, 0, text)
        return figure

    def glyphs(text):
        svg = figures.render_figure("text", lambda: draw(text)).svg
        return set(re.findall(r'id="(DejaVu[\w-]+)"', svg))

    (dollar,) = glyphs("$")
    assert glyphs("$5 to $6") == {dollar, *glyphs("5 to 6")}
    drawn = {of.name: of.svg for of in figures.draw_figures(findings.compute_findings(small))}
    assert f'id="{dollar}"' not in drawn["flows"]


def test_it_returns_what_it_writes(small, written, tmp_path):
    returned = write_report(small, tmp_path / "report")
    assert returned == json.loads((written / "results.json").read_text("utf-8"))


def test_the_page_loads_nothing(written, drawn):
    found = page(written)
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(found.tags)
    urls = [
        value
        for _, name, value in found.attributes
        if name in ("src", "srcset", "href", "action", "data", "poster")
    ]
    within = [url for url in urls if url.startswith(("#", "explorer.html"))]
    pictures = [url for url in urls if url not in within]
    assert len(pictures) == 2 * len(drawn), "each for a bright and a dark page"
    assert all(url.startswith("data:image/svg+xml;base64,") for url in pictures)
    text = (written / "index.html").read_text("utf-8")
    assert not re.search(r"https?://|url\(|@import", text)
    policy = next(v for t, n, v in found.attributes if n == "content" and "default-src" in v)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_the_policy_admits_the_pages_own_style(written):
    import base64
    import hashlib

    text = (written / "index.html").read_text("utf-8")
    css = re.search(r"<style>(.*?)</style>", text, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in text
    assert "prefers-color-scheme: dark" in css


def hostile_inputs(small):
    audit = small.audit
    return replace(
        small,
        recipe={**small.recipe, "description": HOSTILE},
        warnings=(HOSTILE,),
        audit=replace(
            audit,
            prompts=tuple(HOSTILE for _ in audit.prompts),
            golds=tuple(json.dumps(HOSTILE) for _ in audit.golds),
            greedy_texts=tuple(HOSTILE + "x" * 2 * MAX_CHARS for _ in audit.greedy_texts),
        ),
        arms=tuple(replace(arm, texts=tuple(HOSTILE for _ in arm.texts)) for arm in small.arms),
    )


def test_hostile_text_is_shown_and_never_used(small, written, tmp_path):
    write_report(hostile_inputs(small), tmp_path / "report")
    clean, found = page(written), page(tmp_path / "report")
    assert set(found.tags) == set(clean.tags)
    assert found.tags.count("img") == clean.tags.count("img")
    assert not [name for _, name, _ in found.attributes if name.startswith("on")]
    text = "".join(found.text)
    assert "<script>alert(1)</script>" in text
    assert "{{ 7*7 }}" in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "<U+202E>" in text
    assert "x" * 2 * MAX_CHARS in text, "a response is shown whole"


def test_markdown_shows_hostile_text_and_never_uses_it(small, written, drawn, tmp_path):
    def parse(folder):
        text = (folder / "report.md").read_text("utf-8")
        return MarkdownIt("commonmark").enable("table").parse(text)

    write_report(hostile_inputs(small), tmp_path / "report")
    tokens = parse(tmp_path / "report")
    assert not [t for t in tokens if t.type == "html_block"]
    inline = [child for t in tokens for child in t.children or ()]
    assert not [t for t in inline if t.type in ("html_inline", "link_open")]
    assert {t.attrs["src"] for t in inline if t.type == "image"} == {
        f"figures/{name}.svg" for name in drawn
    }
    for kind in ("table_open", "fence", "heading_open", "paragraph_open"):
        found, clean = ([t for t in of if t.type == kind] for of in (tokens, parse(written)))
        assert len(found) == len(clean), kind


def test_page_and_markdown_have_the_same_sections_in_the_same_order(written):
    html = (written / "index.html").read_text("utf-8")
    markdown = (written / "report.md").read_text("utf-8")
    headings = re.findall(r"<h2>(.*?)</h2>", html)
    assert headings == re.findall(r"^## (.*)$", markdown, re.M)
    assert headings[0] == "Conditions"
    assert headings[-1] == "Reproduce"


@pytest.mark.parametrize("made", [planted.inputs, planted.allocation_inputs])
def test_every_figure_that_is_drawn_is_shown_and_none_besides(made):
    inputs = made(sizes=(40, 35, 25))
    found = findings.compute_findings(inputs)
    blocks = [
        block for section in document.build_sections(inputs, found) for block in section.blocks
    ]
    shown = [block.name for block in blocks if isinstance(block, Figure)]
    assert sorted(shown) == sorted(drawing.name for drawing in figures.draw_figures(found))


def test_items_hold_every_change_with_its_whole_text(small, written):
    rows = list(csv.DictReader(io.StringIO((written / "tables/items.csv").read_text("utf-8"))))
    results = json.loads((written / "results.json").read_text("utf-8"))
    for name, condition in results["conditions"].items():
        for seed, found in condition["seeds"].items():
            of_arm = [r for r in rows if (r["condition"], r["seed"]) == (name, seed)]
            changed = [r["change"] for r in of_arm]
            counts = found["counts"]
            assert changed.count("gained") == counts["S_corrected"] + counts["U_corrected"]
            assert changed.count("lost") == counts["G_regressed"]
    ordered = small
    places = {str(problem): place for place, problem in enumerate(ordered.audit.ids)}
    first = rows[0]
    assert first["before"] == ordered.audit.greedy_texts[places[first["problem_id"]]]
    assert first["after"] == ordered.find_arms("gapft")[0].texts[places[first["problem_id"]]]


def test_tables_hold_the_numbers_of_results(written):
    results = json.loads((written / "results.json").read_text("utf-8"))
    rows = csv.DictReader(io.StringIO((written / "tables/conditions.csv").read_text("utf-8")))
    for row in rows:
        condition = results["conditions"][row["condition"]]
        assert float(row["pass_at_1"]) == condition["pass_at_1"]
        assert float(row["kappa_S"]) == condition["kappa_S"]
        assert float(row["term_G"]) == condition["terms"]["G"]
    contrasts = csv.DictReader(io.StringIO((written / "tables/contrasts.csv").read_text("utf-8")))
    assert [float(row["delta"]) for row in contrasts] == [c["delta"] for c in results["contrasts"]]


def test_tables_hold_no_measured_time(small, tmp_path):
    facts = {"loss": {"last": 0.25}, "seconds": 4.5, "tokens_per_second": 9.0}
    write_report(replace(small, training={"gapft-seed13": facts}), tmp_path / "report")
    table = (tmp_path / "report" / "tables" / "training.csv").read_text("utf-8")
    assert table == "arm,fact,value\ngapft-seed13,loss.last,0.25\n"


def test_the_training_table_holds_the_reports_arms_and_no_others(tmp_path):
    """The run trained four conditions; the recipe now names two."""
    of = planted.inputs(conditions=("gapft", "replay"), sizes=(40, 35, 25))
    everything = {
        f"{name}-seed{seed}": {"loss": 0.5} for name in planted.CONDITIONS for seed in (13, 21, 73)
    }
    write_report(replace(of, training=everything), tmp_path / "report")
    table = (tmp_path / "report/tables/training.csv").read_text("utf-8")
    found = [row["arm"] for row in csv.DictReader(io.StringIO(table))]
    assert found == [f"{name}-seed{seed}" for name in ("gapft", "replay") for seed in (13, 21, 73)]


def test_few_problems_in_a_state_are_marked(written):
    markdown = (written / "report.md").read_text("utf-8")
    assert "U (25)" in markdown
    assert re.search(r"\d%†", markdown)


def test_warnings_of_stages_and_notes_of_the_recipe_are_shown(small, written):
    markdown = (written / "report.md").read_text("utf-8")
    assert small.warnings[0] in markdown
    assert "2 records whose prompt is in the audit dropped" in markdown
    assert "A remark of the recipe." in markdown


def test_nothing_to_train_on_still_gives_a_report(tmp_path):
    inputs = planted.inputs(conditions=(), sizes=(20, 0, 30), pool_states=(5, 0, 9))
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
def test_unusual_shapes_are_written(changes, tmp_path):
    write_report(planted.inputs(**{"sizes": (12, 9, 8), **changes}), tmp_path / "report")
    assert (tmp_path / "report" / "index.html").stat().st_size > 10_000


def test_plugins_sections_come_last_and_their_html_is_inert(small, drawn, tmp_path):
    def render(results):
        results.clear()  # a plugin cannot change what is written
        return "**bold** <script>x</script> ![p](https://example.com/a.png)\n\n|a|\n|-|\n|1|"

    write_report(small, tmp_path / "report", [("Extra", render)])
    html = (tmp_path / "report" / "index.html").read_text("utf-8")
    assert "<strong>bold</strong>" in html
    assert "<script" not in html
    assert html.count("<img") == len(drawn)
    assert html.index("<h2>Extra</h2>") > html.index("<h2>Reproduce</h2>")
    assert json.loads((tmp_path / "report" / "results.json").read_text("utf-8"))["schema"] == 1


@pytest.mark.parametrize("render", [lambda results: 1 / 0, lambda results: None])
def test_a_failing_section_is_named_and_nothing_is_written(small, tmp_path, render):
    with pytest.raises(PluginError, match="report section 'Broken'"):
        write_report(small, tmp_path / "report", [("Broken", render)])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(small, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(GapftError, match="cannot be written"):
        write_report(small, tmp_path / "file" / "report")


def test_the_documented_section_works(small, tmp_path):
    docs = Path(__file__).parents[2] / "docs" / "report.md"
    code = re.search(r"```python\n(.*?)```", docs.read_text("utf-8"), re.S)[1]
    names, sections = {}, []
    exec(code, names)
    names["register_report_sections"](lambda *section: sections.append(section))
    write_report(small, tmp_path / "report", sections)
    assert "Fewest regressions: **replay**" in (tmp_path / "report/report.md").read_text("utf-8")
