"""Render blocks as one HTML page that needs no other file and loads nothing, for index.html."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from gapft_harness.core.text import whole_text
from gapft_harness.report.rendering import palette
from gapft_harness.report.rendering.blocks import Drawing, Section, anchor
from gapft_harness.report.rendering.differences import differences
from gapft_harness.report.rendering.visible import LONGEST, shortened, visible

if TYPE_CHECKING:
    from jinja2 import Environment

#: Sections from which a page has a list of contents.
_LONG = 3


def render(
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    drawings: Sequence[Drawing],
    explorers: Mapping[str, str],
    *,
    tables: bool = True,
    made: str = "",
) -> str:
    """Render the page. All texts are escaped; HTML in plugins' Markdown is shown as text.

    Args:
        title: the title.
        subtitle: a line below it; may be empty.
        sections: the blocks, by section.
        drawings: the figures that sections show.
        explorers: file names of the pages with every problem, by the audit's name.
        tables: whether the page is next to a folder of tables.
        date_note: a sentence with the dates; may be empty.
    """
    return filled(
        "index.html.j2",
        style=style("style.css"),
        title=title,
        subtitle=subtitle,
        sections=[*zip(_anchors(sections), sections, strict=True)],
        made=made,
        long=sum(bool(section.title) for section in sections) >= _LONG,
        figures={drawing.name: _pictures(drawing) for drawing in drawings},
        explorers=explorers,
        tables=tables,
    )


def filled(template: str, *, style: str, script: str = "", **values: Any) -> str:
    """Fill a template with one style sheet and one script, and with the hashes that admit them."""
    from markupsafe import Markup

    hashes = {
        f"{name}_hash": _base64(hashlib.sha256(text.encode()).digest())
        for name, text in (("css", style), ("script", script))
    }
    return (
        _environment()
        .get_template(template)
        .render(css=Markup(style), script=Markup(script), **hashes, **values)
    )


def style(*sheets: str) -> str:
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


def _anchors(sections: Sequence[Section]) -> list[str]:
    """Return a distinct fragment identifier for each section."""
    found: list[str] = []
    for section in sections:
        name = section.anchor or "section"
        taken = sum(other == name or other.rpartition(".")[0] == name for other in found)
        found.append(f"{name}.{taken + 1}" if taken else name)
    return found


def _pictures(drawing: Drawing) -> Mapping[str, str]:
    """Encode a drawing for light and dark pages as data URIs, so that it cannot change the page."""
    return {
        theme: f"data:image/svg+xml;base64,{_base64(svg.encode())}"
        for theme, svg in (("light", drawing.svg), ("dark", palette.darkened(drawing.svg)))
    }


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("gapft_harness.report.rendering"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    environment.filters["prose"] = _unbroken_intervals
    environment.filters["shortened"] = shortened
    environment.filters["sides"] = lambda case: differences(
        visible(case.before), visible(case.after)
    )
    environment.globals["fold"] = LONGEST
    environment.filters["markdown"] = lambda text: Markup(markdown_to_html(text))
    environment.filters["anchor"] = anchor
    environment.filters["kind"] = lambda block: type(block).__name__
    return environment


def _unbroken_intervals(text: str) -> str:
    """Join the ends of intervals with no-break spaces, so that no line ends inside one."""
    return re.sub(r"\[([^\s\[]+), ([^\s\[\]]+)\]", "[\\1,\N{NO-BREAK SPACE}\\2]", visible(text))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def explorer_file(audit: str = "") -> str:
    """Return the file name of an audit's explorer; the run's own audit has an empty name."""
    return f"explorer{audit and '-'}{audit}.html"


def problem_link(name: str, audit: str = "") -> str:
    """Return the address that opens a problem in the explorer, by its name on that page."""
    return f"{explorer_file(audit)}#{urlencode({'open': whole_text(visible(name))})}"
