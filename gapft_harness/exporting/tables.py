"""Export every table of a report as LaTeX (with booktabs) and as CSV, with the same cells."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import require_folder, write_text
from gapft_harness.executors.local import LocalExecutor
from gapft_harness.report.findings.computation import Findings, compute_findings
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Rank, Section, Table
from gapft_harness.report.rendering.document import format_csv
from gapft_harness.report.rendering.visible import make_visible
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.report import build_report_inputs

#: A document with every table.
DOCUMENT = "tables.tex"

#: From this number of rows, a table may break between pages.
_MIN_LONG_ROWS = 40

#: Characters that LaTeX would not print unchanged; the engine prints all others.
_LATEX_TEXT = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#",
    "%": r"\%", "_": r"\_", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}", "−": "$-$", "–": r"\textendash{}", "—": r"\textemdash{}",
    "…": r"\textellipsis{}", "×": r"$\times$", "½": r"$\frac{1}{2}$", "≤": r"$\leq$",
    "≥": r"$\geq$", "→": r"$\rightarrow$", "†": r"\textdagger{}", "Δ": r"$\Delta$",
    "α": r"$\alpha$", "κ": r"$\kappa$", "ρ": r"$\rho$",
}  # fmt: skip
#: The format of a cell, by its rank.
_RANKED: Mapping[Rank | None, str] = {
    None: "%s",
    "best": r"\textbf{%s}",
    "second": r"\underline{%s}",
}
_SPECIAL = re.compile("|".join(map(re.escape, _LATEX_TEXT)))
#: Repeated characters that fonts would join: ``--`` would become a dash.
_JOINED = re.compile(r"([-',])(?=\1)")

_PREAMBLE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[landscape,margin=1cm]{geometry}
\usepackage{booktabs,longtable}
\begin{document}
\small
"""


def compute_report(
    run: RunDirectory, plugin_files: Sequence[str] = ()
) -> tuple[ReportInputs, Findings]:
    """Read the inputs of a run's report, and recompute its findings from the sealed tables.

    Raises:
        UserError: a file of the report is missing, or was changed after it was sealed.
    """
    settings = run.recipe.executor.build_settings()
    with contextlib.closing(LocalExecutor(settings)) as executor:
        inputs = build_report_inputs(Context(run, executor, plugin_files))
    return inputs, compute_findings(inputs)


def require_new(out: Path, option: str = "--out") -> None:
    """Check that a folder is empty or missing, so that no file is overwritten.

    Raises:
        UserError: the folder is not empty, or the path is a file.
    """
    require_folder(out, option)
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{option} {out}: the folder is not empty; use another folder")


def write_tables(sections: Sequence[Section], out: Path) -> list[Path]:
    """Write each table as ``NAME.tex`` and ``NAME.csv``, and ``tables.tex`` with all tables.

    A name comes from the section's title; the name of a section's second table ends with ``-2``.

    Args:
        sections: the sections of a report.
        out: the folder to write.

    Returns:
        The paths of the files.
    """
    texts, names = {}, []
    for name, title, table in _name_tables(sections):
        names.append(f"{name}.tex")
        texts[f"{name}.tex"] = render_latex(table, title, name)
        texts[f"{name}.csv"] = format_csv(iter([table.columns, *table.rows]))
    inputs = "".join(f"\\input{{{name}}}\n" for name in names)
    texts[DOCUMENT] = f"{_PREAMBLE}{inputs}\\end{{document}}\n"
    for name, text in texts.items():
        write_text(out / name, text)
    return [out / name for name in texts]


def _name_tables(sections: Sequence[Section]) -> Iterator[tuple[str, str, Table]]:
    """Yield (name, the section's title, table); names are plain ASCII, for every engine."""
    used_names = {DOCUMENT.partition(".")[0]}
    for section in sections:
        stem = "-".join(re.findall("[a-z0-9]+", section.anchor)) or "report"
        for table in (block for block in section.blocks if isinstance(block, Table)):
            names = (stem, *(f"{stem}-{number}" for number in range(2, len(used_names) + 3)))
            name = next(name for name in names if name not in used_names)
            used_names.add(name)
            yield name, section.title, table


def render_latex(table: Table, title: str, label: str) -> str:
    r"""Render a table with title and note as caption; a long table breaks between pages.

    Args:
        table: the table.
        title: the beginning of the caption.
        label: the label for ``\ref``, without ``tab:``.
    """
    captions = [f"{part.rstrip('.:')}." for part in (title, table.summary) if part]
    caption = (
        f"\\caption{{{' '.join([*map(escape_latex, captions), escape_latex(table.note)]).strip()}}}"
    )
    columns = "l" * table.words + "r" * (len(table.columns) - table.words)
    head = f"\\toprule\n{_render_row(table.columns, 0, {})}\\midrule\n"
    body = "".join(_render_row(row, number, table.ranks) for number, row in enumerate(table.rows))
    if len(table.rows) >= _MIN_LONG_ROWS:
        return (
            f"\\begin{{longtable}}{{{columns}}}\n{caption}\\label{{tab:{label}}}\\\\\n{head}"
            f"\\endfirsthead\n{head}\\endhead\n{body}\\bottomrule\n\\end{{longtable}}\n"
        )
    return (
        f"\\begin{{table}}\n\\centering\n{caption}\n\\label{{tab:{label}}}\n"
        f"\\begin{{tabular}}{{{columns}}}\n{head}{body}\\bottomrule\n"
        "\\end{tabular}\n\\end{table}\n"
    )


def escape_latex(text: str) -> str:
    """Escape a text for LaTeX, on one line; other scripts need the engine's fonts.

    Control characters and invisible characters are made visible, as on the page.
    """
    one_line = " ".join(make_visible(text).split())
    escaped = _SPECIAL.sub(lambda match: _LATEX_TEXT[match[0]], one_line)
    return _JOINED.sub(r"\1{}", escaped)


def _render_row(cells: Sequence[str], number: int, ranks: Mapping[tuple[int, int], Rank]) -> str:
    r"""Render a row; ``{}`` keeps ``\\`` or ``\midrule`` from reading ``[`` or ``*`` after it."""
    marks = (_RANKED[ranks.get((number, place))] for place in range(len(cells)))
    line = " & ".join(mark % escape_latex(cell) for mark, cell in zip(marks, cells, strict=True))
    return f"{'{}' if line[:1] in '[*' else ''}{line} \\\\\n"
