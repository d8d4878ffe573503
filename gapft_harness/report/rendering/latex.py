"""The report's tables as LaTeX, set with booktabs: the same cells, character by character."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gapft_harness.report.rendering.blocks import Table
from gapft_harness.report.rendering.visible import visible

#: Rows from which a table may break between pages.
_LONG = 40

#: What LaTeX would not print as it stands; all else is left to the engine.
_WRITTEN = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}", "−": "$-$", "–": r"\textendash{}", "—": r"\textemdash{}",
    "…": r"\textellipsis{}", "×": r"$\times$", "½": r"$\frac{1}{2}$", "≤": r"$\leq$",
    "≥": r"$\geq$", "→": r"$\rightarrow$", "†": r"\textdagger{}", "Δ": r"$\Delta$",
    "α": r"$\alpha$", "κ": r"$\kappa$", "ρ": r"$\rho$",
}  # fmt: skip
_SPECIAL = re.compile("|".join(map(re.escape, _WRITTEN)))
#: Signs that fonts draw as one if they stand together: ``--`` would be a dash.
_JOINED = re.compile(r"([-',])(?=\1)")

_DOCUMENT = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[landscape,margin=1cm]{geometry}
\usepackage{booktabs,longtable}
\begin{document}
\small
"""


def document(names: Sequence[str]) -> str:
    """A document that shows tables, files beside it, one after another."""
    return _DOCUMENT + "".join(f"\\input{{{name}}}\n" for name in names) + "\\end{document}\n"


def table(of: Table, title: str, label: str) -> str:
    r"""A table with its title and note as caption; a long one breaks between pages.

    Args:
        of: the table.
        title: begins the caption.
        label: what ``\ref`` takes, after ``tab:``.
    """
    said = [f"{part.rstrip('.:')}." for part in (title, of.summary) if part]
    caption = f"\\caption{{{' '.join([*map(escape, said), escape(of.note)]).strip()}}}"
    columns = "l" * of.words + "r" * (len(of.columns) - of.words)
    head = f"\\toprule\n{_row(of.columns)}\\midrule\n"
    body = "".join(map(_row, of.rows))
    if len(of.rows) >= _LONG:
        return (
            f"\\begin{{longtable}}{{{columns}}}\n{caption}\\label{{tab:{label}}}\\\\\n{head}"
            f"\\endfirsthead\n{head}\\endhead\n{body}\\bottomrule\n\\end{{longtable}}\n"
        )
    return (
        f"\\begin{{table}}\n\\centering\n{caption}\n\\label{{tab:{label}}}\n"
        f"\\begin{{tabular}}{{{columns}}}\n{head}{body}\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def escape(text: str) -> str:
    """Text that LaTeX prints as it is, on one line; other scripts are left to the engine's fonts.

    Control characters and unseen ones are made visible, as on the page.
    """
    one_line = " ".join(visible(text).split())
    written = _SPECIAL.sub(lambda found: _WRITTEN[found[0]], one_line)
    return _JOINED.sub(r"\1{}", written)


def _row(cells: Sequence[str]) -> str:
    r"""A line; ``\\`` and ``\midrule`` before it would take ``[`` or ``*`` for an argument."""
    line = " & ".join(map(escape, cells))
    return f"{'{}' if line[:1] in '[*' else ''}{line} \\\\\n"
