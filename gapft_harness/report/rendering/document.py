"""A command's result as one document: pages, results as JSON, and CSV tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gapft_harness.core.files import json_text, replace_file
from gapft_harness.core.text import whole, whole_text
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
        explorers: pages with every problem, by the audit's name; "" is the document's own.
        subtitle: a line below the title; may be empty.
        date_note: a sentence with the dates; may be empty.
    """

    title: str
    sections: Sequence[Section]
    names: Sequence[str]
    results: Any = None
    tables: Mapping[str, Iterable[Sequence[object]]] = field(default_factory=dict)
    drawings: Sequence[Drawing] = ()
    explorers: Mapping[str, str] = field(default_factory=dict)
    subtitle: str = ""
    made: str = ""

    def write(self, folder: Path) -> None:
        """Write the files, each completely or not at all, and replace files of the same names.

        Raises:
            GapftError: the folder cannot be written, or the disk is full.
        """
        for name, content in self._contents():
            replace_file(folder / name, partial(_put, content))

    def files(self) -> dict[str, bytes]:
        """Return the content of the files, by name."""
        return {name: b"".join(_bytes(content)) for name, content in self._contents()}

    def markdown(self) -> str:
        """Render title and sections as Markdown."""
        return markdown.render(self.title, self.subtitle, self.sections, self.made)

    def json(self) -> str:
        """Format the results as JSON."""
        return json_text(whole(self.results))

    def _contents(self) -> Iterator[tuple[str, Content]]:
        places = {name: page.explorer_file(name) for name in self.explorers}
        for name in self.names:
            match Path(name).suffix:
                case ".json":
                    yield name, self.json()
                case ".md":
                    yield name, self.markdown()
                case _:
                    apart = any("/" in table for table in self.tables)
                    told = self.title, self.subtitle, self.sections, self.drawings, places
                    yield name, page.render(*told, tables=apart, made=self.made)
        yield from ((places[name], text) for name, text in self.explorers.items())
        yield from self.tables.items()
        for drawing in self.drawings:
            yield f"figures/{drawing.name}.svg", drawing.svg
            yield f"figures/{drawing.name}.png", drawing.png


def as_csv(rows: Iterable[Sequence[object]]) -> str:
    """Format rows as CSV text."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def _bytes(content: Content) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
    elif isinstance(content, str):
        yield whole_text(content).encode()
    else:
        for row in content:  # one at a time: texts of a row may be large
            yield whole_text(as_csv([row])).encode()


def _put(content: Content, path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(_bytes(content))
