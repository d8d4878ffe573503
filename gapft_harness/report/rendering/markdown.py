"""Render blocks as Markdown that is also readable as plain text, for report.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from gapft_harness.presentation.visible import make_visible, shorten
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
from gapft_harness.report.rendering.differences import Piece, find_differences

_SPECIAL = re.compile(r"[\\`*|~]|<(?!\d)|(?<!\w)_|_(?!\w)|(?<=\])[(:\[]|^[#>+-](?=[\s#>]|$)")


def render_markdown(
    title: str, subtitle: str, sections: Sequence[Section], date_note: str = ""
) -> str:
    """Render title, subtitle, dates (``date_note``, a sentence) and sections as Markdown."""
    parts = [
        f"# {escape_markdown(title)}",
        *(escape_markdown(text) for text in (subtitle, date_note) if text),
    ]
    for section in sections:
        if section.title:
            parts.append(f"## {escape_markdown(section.title)}")
        parts += [part for block in section.blocks for part in _render_block(block)]
    return "\n\n".join(parts) + "\n"


def escape_markdown(text: str) -> str:
    """Escape a text so that Markdown shows it unchanged, on one line, with few backslashes.

    Underscores inside a word, and brackets without a following parenthesis or colon, are not
    special in Markdown and stay.
    """
    one_line = " ".join(make_visible(text).split())
    return _SPECIAL.sub(lambda match: "\\" + match[0], one_line)


def fence_text(text: str) -> str:
    """Put a text into a code fence that is longer than any run of backticks in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _render_block(block: Block) -> Iterable[str]:
    match block:
        case Text(role="warning"):
            yield f"> **Warning.** {escape_markdown(block.full_text)}"
        case Text():
            yield escape_markdown(block.full_text)
        case Bullets(items):
            yield "\n".join(f"- {escape_markdown(item)}" for item in items)
        case Stats(stats):
            yield "\n".join(
                f"- {escape_markdown(s.label)}: **{escape_markdown(s.value)}** "
                f"{escape_markdown(s.detail)}"
                for s in stats
            )
        case Table():
            if block.summary:
                yield f"{escape_markdown(block.summary)}:"
            yield _render_table(block)
            if block.note:
                yield escape_markdown(block.note)
        case Figure(name, alt, caption):
            yield f"![{escape_markdown(alt)}](figures/{name}.svg)"
            yield escape_markdown(caption)
        case Cases(cases, summary):
            if summary:
                yield f"{escape_markdown(summary)}:"
            for case in cases:
                yield from _render_case(case)
        case Code(text):
            yield fence_text(text)
        case Markdown(text):
            yield text.strip()


#: The format of a cell, by its rank.
_RANKED: Mapping[Rank | None, str] = {None: "{}", "best": "**{}**", "second": "<u>{}</u>"}


def _render_table(table: Table) -> str:
    rule = [":--" if column < table.words else "--:" for column in range(len(table.columns))]
    rows = []
    for number, row in enumerate(table.rows):
        marks = (_RANKED[table.ranks.get((number, place))] for place in range(len(row)))
        cells = [mark.format(escape_markdown(cell)) for mark, cell in zip(marks, row, strict=True)]
        rows.append([_link_text(row[0], table.links), *cells[1:]])
    lines = [[*map(escape_markdown, table.columns)], rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _link_text(text: str, links: Mapping[str, str]) -> str:
    return f"[{escape_markdown(text)}](<{links[text]}>)" if text in links else escape_markdown(text)


def _render_case(case: Case) -> Iterable[str]:
    before, after = find_differences(make_visible(case.before), make_visible(case.after))
    width = _find_mark_width(case.before + case.after)
    yield f"### {escape_markdown(f'{case.name} · {case.heading}' if case.name else case.heading)}"
    yield fence_text(make_visible(case.prompt))
    yield f"Gold: {escape_markdown(shorten(case.gold))}"
    if case.others:
        yield escape_markdown(case.others)
    old, new = (f" ({outcome})" if outcome else "" for outcome in case.outcomes)
    yield f"Before{old}:"
    yield fence_text(_mark_pieces(before, "[" + "-" * width, "-" * width + "]"))
    yield f"After{new}:"
    yield fence_text(_mark_pieces(after, "{" + "+" * width, "+" * width + "}"))


def _mark_pieces(pieces: Sequence[Piece], start: str, end: str) -> str:
    """Join pieces, with changed ones between marks, ``[-x-]`` or ``{+x+}``, as in git."""
    return "".join(f"{start}{piece.text}{end}" if piece.changed else piece.text for piece in pieces)


def _find_mark_width(text: str) -> int:
    """Return the length of a mark: longer than any mark in the text, as with code fences."""
    # Complete runs with possessive quantifiers, because a run may be megabytes long.
    runs = re.findall(r"\[(-++)|(?<!-)(-++)\]|\{(\+++)|(?<!\+)(\+++)\}", text)
    return 1 + max((len("".join(run)) for run in runs), default=0)
