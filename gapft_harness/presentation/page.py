"""Pages: sections as HTML, Markdown and terminal output, and their tables as JSON and CSV."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gapft_harness.core.files import format_json, replace_file
from gapft_harness.core.text import replace_surrogates, replace_text_surrogates
from gapft_harness.presentation import palette
from gapft_harness.presentation.content import Figure, Section, Table
from gapft_harness.presentation.terminal import print_sections
from gapft_harness.presentation.visible import make_visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from rich.console import Console

#: The file name of the page with every problem.
EXPLORER = "explorer.html"
#: Characters of a line of a page that is printed as a value.
_REPR_WIDTH = 100
#: The version of the keys of results.json.
SCHEMA = 2

_MARKDOWN = re.compile(r"[\\`*|~]|<(?!\d)|(?<!\w)_|_(?!\w)|(?<=\])[(:\[]|^[#>+-](?=[\s#>]|$)")


@dataclass(frozen=True, slots=True, repr=False)
class Page:
    """A command's result for people and programs; notebooks show its sections.

    Attributes:
        name: the stem of the pages' file names.
        title: the heading.
        sections: in order; the first one is the opening.
        files: tables that are not on the page.
        explorer: the HTML of the page with every problem; may be empty.
    """

    name: str
    title: str
    sections: Sequence[Section]
    files: Sequence[Table] = ()
    explorer: str = ""

    def __repr__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        self.print(Console(file=text, width=_REPR_WIDTH, highlight=False, color_system=None))
        return text.getvalue().strip("\n")

    def _repr_markdown_(self) -> str:
        parts = (_render_markdown(replace(section, figures=())) for section in self.sections)
        return "\n\n".join(chain.from_iterable(parts))

    @property
    def tables(self) -> list[Table]:
        """The tables with a name, in order; one without a name is shown, but not written."""
        shown = [table for section in self.sections for table in section.tables]
        return [table for table in (*shown, *self.files) if table.name]

    @property
    def figures(self) -> list[Figure]:
        """All figures, in order."""
        return [figure for section in self.sections for figure in section.figures]

    def write(self, folder: Path) -> None:
        """Write all files, each completely or not at all, and replace those of the same names.

        Raises:
            GapftError: the folder cannot be written, or the disk is full.
        """
        for name, content in self.build_files().items():
            replace_file(folder / name, partial(_write_bytes, content))

    def build_files(self) -> dict[str, bytes]:
        """Return the content of all files by name."""
        texts = {
            f"{self.name}.html": self.to_html(),
            f"{self.name}.md": self.to_markdown(),
            "results.json": self.to_json(),
            **{f"tables/{table.name}.csv": _format_csv(table) for table in self.tables},
            **{f"figures/{figure.name}.svg": figure.svg for figure in self.figures},
        }
        if self.explorer:
            texts[EXPLORER] = self.explorer
        return {name: replace_text_surrogates(text).encode() for name, text in texts.items()}

    def list_results(self) -> dict[str, Any]:
        """Return the content of results.json: every table's rows, and the warnings."""
        rows = {table.name: table.list_entries() for table in self.tables if not table.csv_only}
        warnings = [warning for section in self.sections for warning in section.warnings]
        return {"schema": SCHEMA, **rows, "warnings": warnings}

    def to_json(self) -> str:
        """Format results.json."""
        return format_json(replace_surrogates(self.list_results()))

    def to_html(self) -> str:
        """Render the page, which needs no other file and loads nothing."""
        template = create_environment().get_template("page.html.j2")
        return template.render(page=self, style=build_style("style.css"), explorer=EXPLORER)

    def to_markdown(self) -> str:
        """Render the page as Markdown that is also readable as plain text."""
        parts = [f"# {escape_markdown(self.title)}"]
        for section in self.sections:
            parts += _render_markdown(section)
        return "\n\n".join(parts) + "\n"

    def print(self, console: Console) -> None:
        """Print the page on a terminal."""
        print_sections(self.sections, console)


def link_problem(problem_id: str) -> str:
    """Return the address of a problem on the page of every problem, in the same folder."""
    fragment = quote(replace_text_surrogates(make_visible(problem_id)), safe="")
    return f"{EXPLORER}#{fragment}"


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown shows it unchanged and on one line."""
    one_line = " ".join(make_visible(text).split())
    return _MARKDOWN.sub(lambda match: "\\" + match[0], one_line)


def _render_markdown(section: Section) -> Iterator[str]:
    if section.title:
        yield f"## {escape_markdown(section.title)}"
    for warning in section.warnings:
        yield f"> **Warning.** {escape_markdown(warning)}"
    yield from map(escape_markdown, section.text)
    for figure in section.figures:
        yield f"![{escape_markdown(figure.alt)}](figures/{figure.name}.svg)"
        yield escape_markdown(figure.caption)
    for table in section.tables:
        if columns := table.titled:
            titles = [column.title or "" for column in columns]
            rule = [":--" if column.is_word else "--:" for column in columns]
            rows = [[column.format_cell(row) for column in columns] for row in table.rows]
            cells = [map(escape_markdown, titles), rule, *(map(escape_markdown, r) for r in rows)]
            yield "\n".join(f"| {' | '.join(line)} |" for line in cells)
            if table.note:
                yield escape_markdown(table.note)


def _format_csv(table: Table) -> str:
    entries = table.list_entries()
    text = io.StringIO()
    names = list(entries[0]) if entries else [column.key for column in table.columns]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(entries)
    return text.getvalue()


def _write_bytes(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def build_style(*names: str) -> str:
    """Return style sheets of the templates, after the colours of light and dark pages."""
    light, dark = (palette.css_variables(dark=dark) for dark in (False, True))
    on_dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return "\n".join((f":root {{ {light} }}", on_dark, *map(read_template, names)))


def read_template(name: str) -> str:
    """Read a file of the templates."""
    templates = files("gapft_harness.presentation").joinpath("templates")
    return templates.joinpath(name).read_text("utf-8")


@lru_cache(maxsize=1)
def create_environment() -> Environment:
    """Return the templates' environment, which escapes every text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("gapft_harness.presentation"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = make_visible
    environment.filters["css"] = Markup
    environment.filters["digest"] = _hash_source
    environment.filters["prose"] = _join_intervals
    environment.filters["problem"] = link_problem
    environment.filters["light"] = lambda figure: _encode_picture(figure.svg)
    environment.filters["dark"] = lambda figure: _encode_picture(palette.darken(figure.svg))
    return environment


def _hash_source(source: str) -> str:
    """Return the hash by which a content security policy allows a style or a script."""
    return base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


def _encode_picture(svg: str) -> str:
    """Encode a drawing as a data URI, so that it cannot change the page."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _join_intervals(text: str) -> str:
    """Join the ends of intervals, so that no line ends inside one."""
    no_break = "\N{NO-BREAK SPACE}"
    return re.sub(r"\[([^\s\[]+), ([^\s\[\]]+)\]", rf"[\1,{no_break}\2]", make_visible(text))
