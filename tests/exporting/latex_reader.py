"""Read the text that LaTeX prints for a table; anything unknown is an error."""

from __future__ import annotations

import re

#: Commands that print one character.
PRINTS = {
    r"\textbackslash{}": "\\", r"\{": "{", r"\}": "}", r"\$": "$", r"\&": "&", r"\#": "#",
    r"\%": "%", r"\_": "_", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^",
    r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|", r"\textquotedbl{}": '"',
    r"\textasciigrave{}": "`", r"\textendash{}": "–", r"\textemdash{}": "—",
    r"\textellipsis{}": "…", r"\textdagger{}": "†", "$-$": "−", r"$\times$": "×",
    r"$\frac{1}{2}$": "½", r"$\leq$": "≤", r"$\geq$": "≥", r"$\rightarrow$": "→",
    r"$\Delta$": "Δ", r"$\alpha$": "α", r"$\kappa$": "κ", r"$\rho$": "ρ", "{}": "",
}  # fmt: skip
_PIECE = re.compile(
    "|".join(map(re.escape, sorted(PRINTS, key=len, reverse=True)))
    # neither a special character nor one that forms a ligature
    + r"|[^\\{}$&#%_~^`\n]"
)


def read_text(text: str) -> str:
    """Return the text that a piece of LaTeX prints."""
    characters, place = [], 0
    while place < len(text):
        piece = _PIECE.match(text, place)
        assert piece, f"LaTeX would not take {text[place : place + 20]!r}"
        assert not (piece[0] in "-'," and text[place + 1 : place + 2] == piece[0]), "two signs join"
        characters.append(PRINTS.get(piece[0], piece[0]))
        place = piece.end()
    return "".join(characters)


def read_row(line: str) -> list[str]:
    """Return the cells of a line of a tabular."""
    body = line.removesuffix(r" \\")
    assert body != line, f"no end of a row: {line!r}"
    assert line[0] not in "[*", "the line before would take it for an argument"
    return [read_text(cell) for cell in re.split(r"(?<!\\) ?& ?", body)]


def read_table(tex: str) -> list[list[str]]:
    """Return the head and the rows of a file's only table."""
    lines = tex.splitlines()
    (kind,) = {"tabular", "longtable"} & set(re.findall(r"\\begin\{(\w+)\}", tex))
    environments = [
        name if begins == "begin" else f"-{name}"
        for begins, name in re.findall(r"^\\(begin|end)\{(\w+)\}", tex, re.M)
    ]
    tabular = ["tabular", "-tabular"]
    assert environments == (
        ["table", *tabular, "-table"] if kind == "tabular" else [kind, f"-{kind}"]
    )
    columns = re.search(rf"\\begin\{{{kind}\}}\{{([lr]+)\}}", tex)
    assert columns
    tops = [number for number, line in enumerate(lines) if line == r"\toprule"]
    head = read_row(lines[tops[-1] + 1])
    assert len(tops) == (1 if kind == "tabular" else 2)
    assert all(lines[top + 2] == r"\midrule" for top in tops)
    start = tops[-1] + (3 if kind == "tabular" else 4)
    table_rows = [head, *map(read_row, lines[start : lines.index(r"\bottomrule")])]
    assert {len(cells) for cells in table_rows} == {len(columns[1])}
    return table_rows


def read_caption(tex: str) -> str:
    """Return the printed caption."""
    (line,) = (line for line in tex.splitlines() if line.startswith(r"\caption{"))
    inside = re.fullmatch(r"\\caption\{(.*)\}(?:\\label\{[\w:-]+\}\\\\)?", line)
    assert inside
    return read_text(inside[1])
