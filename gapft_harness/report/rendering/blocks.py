"""What a report is built of, before it is Markdown or HTML: one content, two renderings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph of plain text.

    Attributes:
        text: its sentences; nothing in it is read as markup.
        role: ``body``; ``lead`` opens the report; ``note`` is small; ``warning`` is set apart.
        links: addresses by their names, shown behind it on the page.
        see: the title of the section that says more, linked on the page; may be empty.
    """

    text: str
    role: Literal["body", "lead", "note", "warning"] = "body"
    links: Mapping[str, str] = field(default_factory=dict)
    see: str = ""

    @property
    def whole(self) -> str:
        """It with the section that says more, for pages without links."""
        return f"{self.text} See {self.see}." if self.see else self.text

    @property
    def line(self) -> str:
        """It on a line among others, where a warning says that it is one."""
        return f"warning: {self.whole}" if self.role == "warning" else self.whole


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of plain sentences."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Stat:
    """One number that stands out.

    Attributes:
        label: what it is.
        value: the number, with its unit.
        detail: what belongs to it, such as its interval; may be empty.
    """

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Stats:
    """A row of numbers that stand out."""

    stats: Sequence[Stat]


Rank = Literal["best", "second"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts.

    Attributes:
        columns: their headings.
        rows: of each a text for every column.
        words: every column but the first so many holds numbers, aligned right.
        note: a sentence below it.
        summary: the page shows this line alone until the table is opened; empty: it is open.
        links: of texts in the first column where they lead.
        ranks: cells, by row and column, that are best (bold) or second-best (underlined) among
            those that a row compares.
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
    """A drawing, which ``Part.figures`` draws under the same name.

    Attributes:
        name: of its file.
        alt: what it shows, for those who cannot see it.
        caption: a sentence below it: axes, marks, intervals.
    """

    name: str
    alt: str
    caption: str


@dataclass(frozen=True, slots=True)
class Case:
    """One problem before and after training.

    Attributes:
        heading: which problem, and how its outcome changed.
        prompt: as rendered; this and the responses are complete.
        before: the source's response.
        after: the trained model's.
        gained: whether ``after`` is the right one, or else ``before``; None: neither is right or
            wrong.
        others: what became of it in other conditions, in a sentence; may be empty.
        name: of the problem, before the heading, where it leads somewhere; may be empty.
        link: where that is.
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
        """What ``before`` and ``after`` are, right or wrong; empty where they are neither."""
        if self.gained is None:
            return "", ""
        return ("wrong", "right") if self.gained else ("right", "wrong")


@dataclass(frozen=True, slots=True)
class Cases:
    """Problems side by side, before and after, with their differences marked.

    With a ``summary`` the page shows that line alone until it is opened.
    """

    cases: Sequence[Case]
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Commands or settings, set in a fixed pitch."""

    text: str


@dataclass(frozen=True, slots=True)
class Markdown:
    """What a plugin's report section wrote."""

    text: str


Block = Text | Bullets | Stats | Table | Figure | Cases | Code | Markdown


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it.

    Attributes:
        title: the heading; the first section of a report has none.
        blocks: in order.
    """

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """The heading as a fragment identifier."""
        return anchor(self.title)


def anchor(title: str) -> str:
    """Return a section's heading as a fragment identifier."""
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())


def remarks(notes: Iterable[Text]) -> list[Block]:
    """What to know of figures: each warning by itself, then a list of the other notes."""
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
    """One figure: the stem of its files, the text of its SVG, the bytes of its PNG."""

    name: str
    svg: str
    png: bytes
