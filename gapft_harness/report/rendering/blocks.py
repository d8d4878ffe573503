"""The blocks of a report, before they are rendered as Markdown, HTML or on the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph of plain text.

    Attributes:
        text: its sentences; nothing in them is interpreted as markup.
        role: ``body``; ``lead`` is the opening of the report; ``note`` is small; ``warning`` is
            highlighted.
        links: addresses by name, shown after the text on the page.
        see: the title of a section with more information, linked on the page; may be empty.
    """

    text: str
    role: Literal["body", "lead", "note", "warning"] = "body"
    links: Mapping[str, str] = field(default_factory=dict)
    see: str = ""

    @property
    def full_text(self) -> str:
        """The text with a reference to ``see``, for output without links."""
        return f"{self.text} See {self.see}." if self.see else self.text

    @property
    def line(self) -> str:
        """The full text as one line, with the prefix ``warning:`` where it is a warning."""
        return f"warning: {self.full_text}" if self.role == "warning" else self.full_text


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of plain sentences."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Stat:
    """One highlighted number.

    Attributes:
        label: the name of the quantity.
        value: the number, with its unit.
        detail: additional information, such as its interval; may be empty.
    """

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Stats:
    """A row of highlighted numbers."""

    stats: Sequence[Stat]


Rank = Literal["best", "second"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts.

    Attributes:
        columns: the headings.
        rows: one text for every column.
        words: the number of text columns at the left; all others contain numbers, aligned right.
        note: a sentence below the table.
        summary: the page shows only this line until the table is opened; empty: it is open.
        links: addresses by the text in the first column.
        ranks: cells, by row and column, that are best (bold) or second-best (underlined) among the
            compared cells of their row.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    note: str = ""
    summary: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    ranks: Mapping[tuple[int, int], Rank] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figure:
    """A reference to a drawing of the same name, from ``Part.figures`` or the report.

    Attributes:
        name: the stem of its file names.
        alt: a description for readers who cannot see it.
        caption: a sentence below it: axes, marks, intervals.
    """

    name: str
    alt: str
    caption: str


@dataclass(frozen=True, slots=True)
class Case:
    """One problem before and after training.

    Attributes:
        heading: the problem, and how its outcome changed.
        prompt: as rendered; prompt and responses are complete.
        gold: the gold answer.
        before: the source's response.
        after: the trained model's response.
        gained: True if ``after`` is right and ``before`` wrong, False if it is the reverse; None
            under a metric without right and wrong.
        others: a sentence on the outcome in other conditions; may be empty.
        name: the problem's name, shown before the heading and linked; may be empty.
        link: the address for ``name``.
    """

    heading: str
    prompt: str
    gold: str
    before: str
    after: str
    gained: bool | None
    others: str = ""
    name: str = ""
    link: str = ""

    @property
    def outcomes(self) -> tuple[str, str]:
        """``right`` or ``wrong`` for ``before`` and ``after``; empty under other metrics."""
        if self.gained is None:
            return "", ""
        return ("wrong", "right") if self.gained else ("right", "wrong")


@dataclass(frozen=True, slots=True)
class Cases:
    """Problems with the responses before and after side by side, and differences marked.

    With a ``summary`` the page shows only that line until it is opened.
    """

    cases: Sequence[Case]
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Commands or settings, in a fixed-width font."""

    text: str


@dataclass(frozen=True, slots=True)
class Markdown:
    """The Markdown text of a plugin's report section."""

    text: str


Block = Text | Bullets | Stats | Table | Figure | Cases | Code | Markdown


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the blocks below it.

    Attributes:
        title: the heading; the first section of a report has none.
        blocks: in order.
    """

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """The heading as a fragment identifier."""
        return make_anchor(self.title)


def make_anchor(title: str) -> str:
    """Convert a section's heading to a fragment identifier."""
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def group_remarks(notes: Iterable[Text]) -> list[Block]:
    """Group remarks: each warning in its own block, then one list of the other notes."""
    warnings: list[Block] = []
    plain: list[str] = []
    for note in notes:
        if note.role == "warning":
            warnings.append(note)
        else:
            plain.append(note.text)
    return [*warnings, *([Bullets(plain)] if plain else [])]


@dataclass(frozen=True, slots=True)
class Drawing:
    """One drawn figure: the stem of its file names, the text of its SVG, the bytes of its PNG."""

    name: str
    svg: str
    png: bytes
