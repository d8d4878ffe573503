"""A command's result as one document: pages, results as JSON, and CSV tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.files import format_json, replace_file
from gapft_harness.core.text import replace_surrogates, replace_text_surrogates
from gapft_harness.report.rendering import markdown, page
from gapft_harness.report.rendering.blocks import Drawing, Section

#: Content of a file: a text, bytes, or rows of a CSV table; the first row has the column names.
Content = str | bytes | Iterable[Sequence[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Blocks for people and results for programs, with the files to write.

    Attributes:
        title: the title of the pages.
        sections: the blocks, by section.
        names: file names of the pages and of the results; the suffix (html, md, json) determines
            the format.
        results: the content of the JSON file.
        tables: rows of CSV files by file name.
        drawings: the figures that sections show.
        explorer: a page with every problem; may be empty.
        subtitle: a line below the title; may be empty.
        date_note: a sentence with the dates; may be empty.
    """

    title: str
    sections: Sequence[Section]
    names: Sequence[str]
    results: Any = None
    tables: Mapping[str, Iterable[Sequence[object]]] = field(default_factory=dict)
    drawings: Sequence[Drawing] = ()
    explorer: str = ""
    subtitle: str = ""
    date_note: str = ""

    def write(self, folder: Path) -> None:
        """Write the files, each completely or not at all, and replace files of the same names.

        Raises:
            GapftError: the folder cannot be written, or the disk is full.
        """
        for name, content in self._render_files():
            replace_file(folder / name, partial(_write_content, content))

    def build_files(self) -> dict[str, bytes]:
        """Return the content of the files, by name."""
        return {name: b"".join(_encode_content(content)) for name, content in self._render_files()}

    def to_markdown(self) -> str:
        """Render title and sections as Markdown."""
        return markdown.render_markdown(self.title, self.subtitle, self.sections, self.date_note)

    def to_json(self) -> str:
        """Format the results as JSON."""
        return format_json(replace_surrogates(self.results))

    def _render_files(self) -> Iterator[tuple[str, Content]]:
        place = page.EXPLORER if self.explorer else ""
        for name in self.names:
            match Path(name).suffix:
                case ".json":
                    yield name, self.to_json()
                case ".md":
                    yield name, self.to_markdown()
                case _:
                    has_tables = any("/" in table for table in self.tables)
                    page_content = self.title, self.subtitle, self.sections, self.drawings, place
                    yield (
                        name,
                        page.render_page(
                            *page_content, tables=has_tables, date_note=self.date_note
                        ),
                    )
        if self.explorer:
            yield place, self.explorer
        yield from self.tables.items()
        for drawing in self.drawings:
            yield f"figures/{drawing.name}.svg", drawing.svg
            yield f"figures/{drawing.name}.png", drawing.png


def format_csv(rows: Iterable[Sequence[object]]) -> str:
    """Format rows as CSV text."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _encode_content(content: Content) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
    elif isinstance(content, str):
        yield replace_text_surrogates(content).encode()
    else:
        for row in content:  # one at a time: texts of a row may be large
            yield replace_text_surrogates(format_csv([row])).encode()


def _write_content(content: Content, path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(_encode_content(content))
