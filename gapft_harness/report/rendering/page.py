"""Render blocks as one HTML page that needs no other file and loads nothing, for index.html."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gapft_harness.presentation import palette
from gapft_harness.presentation.visible import MAX_CHARS, make_visible, shorten
from gapft_harness.report.rendering.blocks import Drawing, Section, make_anchor
from gapft_harness.report.rendering.differences import find_differences

if TYPE_CHECKING:
    from jinja2 import Environment

#: Sections from which a page has a list of contents.
_MIN_LISTED = 3

#: The file name of the page with every problem.
EXPLORER = "explorer.html"


def render_page(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    drawings: Sequence[Drawing],
    explorer: str,
    *,
    tables: bool = True,
    date_note: str = "",
) -> str:
    """Render the page. All texts are escaped; HTML in plugins' Markdown is shown as text.

    Args:
        title: the title.
        subtitle: a line below it; may be empty.
        sections: the blocks, by section.
        drawings: the figures that sections show.
        explorer: the file name of the page with every problem; empty: there is none.
        tables: whether the page is next to a folder of tables.
        date_note: a sentence with the dates; may be empty.
    """
    return fill_template(
        "index.html.j2",
        style=build_style("style.css"),
        title=title,
        subtitle=subtitle,
        sections=[*zip(_make_anchors(sections), sections, strict=True)],
        made=date_note,
        long=sum(bool(section.title) for section in sections) >= _MIN_LISTED,
        figures={drawing.name: _encode_pictures(drawing) for drawing in drawings},
        explorer=explorer,
        tables=tables,
    )


def fill_template(template: str, *, style: str, script: str = "", **values: Any) -> str:
    """Fill a template with one style sheet and one script, and with the hashes that admit them."""
    from markupsafe import Markup

    hashes = {
        f"{name}_hash": _encode_base64(hashlib.sha256(text.encode()).digest())
        for name, text in (("css", style), ("script", script))
    }
    return (
        _create_environment()
        .get_template(template)
        .render(css=Markup(style), script=Markup(script), **hashes, **values)
    )


def build_style(*sheets: str) -> str:
    """Join style sheets of the templates, after the colours of light and dark pages."""
    templates = files("gapft_harness.report.rendering").joinpath("templates")
    light, dark = (palette.css_variables(dark=dark) for dark in (False, True))
    on_dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    read = (templates.joinpath(sheet).read_text("utf-8") for sheet in sheets)
    return "\n".join((f":root {{ {light} }}", on_dark, *read))


def markdown_to_html(text: str) -> str:
    """Convert Markdown to HTML; HTML inside it is shown as text, and images as their alt text."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    return str(parser.render(text))


def _make_anchors(sections: Sequence[Section]) -> list[str]:
    """Return a distinct fragment identifier for each section."""
    anchors: list[str] = []
    for section in sections:
        name = section.anchor or "section"
        repeats = sum(other == name or other.rpartition(".")[0] == name for other in anchors)
        anchors.append(f"{name}.{repeats + 1}" if repeats else name)
    return anchors


def _encode_pictures(drawing: Drawing) -> Mapping[str, str]:
    """Encode a drawing for light and dark pages as data URIs, so that it cannot change the page."""
    return {
        theme: f"data:image/svg+xml;base64,{_encode_base64(svg.encode())}"
        for theme, svg in (("light", drawing.svg), ("dark", palette.darken(drawing.svg)))
    }


@lru_cache(maxsize=1)
def _create_environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("gapft_harness.report.rendering"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = make_visible
    environment.filters["prose"] = _join_intervals
    environment.filters["shortened"] = shorten
    environment.filters["sides"] = lambda case: find_differences(
        make_visible(case.before), make_visible(case.after)
    )
    environment.globals["fold"] = MAX_CHARS
    environment.filters["markdown"] = lambda text: Markup(markdown_to_html(text))
    environment.filters["anchor"] = make_anchor
    environment.filters["kind"] = lambda block: type(block).__name__
    return environment


def _join_intervals(text: str) -> str:
    """Join the ends of intervals with no-break spaces, so that no line ends inside one."""
    return re.sub(
        r"\[([^\s\[]+), ([^\s\[\]]+)\]", "[\\1,\N{NO-BREAK SPACE}\\2]", make_visible(text)
    )


def _encode_base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
