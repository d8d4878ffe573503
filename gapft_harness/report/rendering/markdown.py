"""Render blocks as Markdown that is also readable as plain text, for report.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from gapft_harness.report.rendering.blocks import (
    Block,
    Bullets,
    Case,
    Cases,
    Code,
    Figure,
    Markdown,
    Rank,
    Section,
    Stats,
    Table,
    Text,
)
from gapft_harness.report.rendering.differences import Piece, differences
from gapft_harness.report.rendering.visible import shortened, visible

_SPECIAL = re.compile(r"[\\`*|~]|<(?!\d)|(?<!\w)_|_(?!\w)|(?<=\])[(:\[]|^[#>+-](?=[\s#>]|$)")


def render(title: str, subtitle: str, sections: Sequence[Section], made: str = "") -> str:
    """Render title, subtitle, dates (``date_note``, a sentence) and sections as Markdown."""
    parts = [f"# {escape(title)}", *(escape(text) for text in (subtitle, made) if text)]
    for section in sections:
        if section.title:
            parts.append(f"## {escape(section.title)}")
        parts += [part for block in section.blocks for part in _block(block)]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """Escape a text so that Markdown shows it unchanged, on one line, with few backslashes.

    Underscores inside a word, and brackets without a following parenthesis or colon, are not
    special in Markdown and stay.
    """
    one_line = " ".join(visible(text).split())
    return _SPECIAL.sub(lambda found: "\\" + found[0], one_line)


def fenced(text: str) -> str:
    """Put a text into a code fence that is longer than any run of backticks in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _block(block: Block) -> Iterable[str]:
    match block:
        case Text(role="warning"):
            yield f"> **Warning.** {escape(block.whole)}"
        case Text():
            yield escape(block.whole)
        case Bullets(items):
            yield "\n".join(f"- {escape(item)}" for item in items)
        case Stats(stats):
            yield "\n".join(
                f"- {escape(s.label)}: **{escape(s.value)}** {escape(s.detail)}" for s in stats
            )
        case Table():
            if block.summary:
                yield f"{escape(block.summary)}:"
            yield _table(block)
            if block.note:
                yield escape(block.note)
        case Figure(name, alt, caption):
            yield f"![{escape(alt)}](figures/{name}.svg)"
            yield escape(caption)
        case Cases(cases, summary):
            if summary:
                yield f"{escape(summary)}:"
            for case in cases:
                yield from _case(case)
        case Code(text):
            yield fenced(text)
        case Markdown(text):
            yield text.strip()


#: The format of a cell, by its rank.
_RANKED: Mapping[Rank | None, str] = {None: "{}", "best": "**{}**", "second": "<u>{}</u>"}


def _table(table: Table) -> str:
    rule = [":--" if column < table.words else "--:" for column in range(len(table.columns))]
    rows = []
    for number, row in enumerate(table.rows):
        marks = (_RANKED[table.ranks.get((number, place))] for place in range(len(row)))
        cells = [mark.format(escape(cell)) for mark, cell in zip(marks, row, strict=True)]
        rows.append([_linked(row[0], table.links), *cells[1:]])
    lines = [[*map(escape, table.columns)], rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _linked(text: str, links: Mapping[str, str]) -> str:
    return f"[{escape(text)}](<{links[text]}>)" if text in links else escape(text)


def _case(case: Case) -> Iterable[str]:
    before, after = differences(visible(case.before), visible(case.after))
    width = _width(case.before + case.after)
    yield f"### {escape(f'{case.name} · {case.heading}' if case.name else case.heading)}"
    yield fenced(visible(case.prompt))
    yield f"Gold: {escape(shortened(case.gold))}"
    if case.others:
        yield escape(case.others)
    old, new = (f" ({outcome})" if outcome else "" for outcome in case.outcomes)
    yield f"Before{old}:"
    yield fenced(_marked(before, "[" + "-" * width, "-" * width + "]"))
    yield f"After{new}:"
    yield fenced(_marked(after, "{" + "+" * width, "+" * width + "}"))


def _marked(pieces: Sequence[Piece], start: str, end: str) -> str:
    """Join pieces, with changed ones between marks, ``[-x-]`` or ``{+x+}``, as in git."""
    return "".join(f"{start}{of.text}{end}" if of.changed else of.text for of in pieces)


def _width(text: str) -> int:
    """Return the length of a mark: longer than any mark in the text, as with code fences."""
    # Complete runs with possessive quantifiers, because a run may be megabytes long.
    runs = re.findall(r"\[(-++)|(?<!-)(-++)\]|\{(\+++)|(?<!\+)(\+++)\}", text)
    return 1 + max((len("".join(run)) for run in runs), default=0)
