"""Every table that a report shows, as LaTeX and as CSV."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gapft_harness.compare.files import write_text
from gapft_harness.core.errors import UserError
from gapft_harness.core.files import require_folder
from gapft_harness.executors.local import LocalExecutor
from gapft_harness.report.findings.whole import Findings, compute
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import latex
from gapft_harness.report.rendering.blocks import Section, Table
from gapft_harness.report.tables import as_csv
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.report import report_inputs

#: A document with every table.
DOCUMENT = "tables.tex"


def reported(run: RunDirectory, plugin_files: Sequence[str] = ()) -> tuple[ReportInputs, Findings]:
    """What a run's report is made of, and its findings, computed again from the sealed tables.

    Raises:
        UserError: something that a report reads is not there yet, or was changed.
    """
    settings = run.recipe.executor.model_dump()
    with contextlib.closing(LocalExecutor(settings)) as executor:
        inputs = report_inputs(Context(run, executor, plugin_files)).in_order()
    return inputs, compute(inputs)


def require_new(out: Path, option: str = "--out") -> None:
    """Holds a folder to be empty or not there, so that nothing of anybody's is overwritten.

    Raises:
        UserError: it holds something, or is a file.
    """
    require_folder(out, option)
    if out.exists() and any(out.iterdir()):
        raise UserError(f"{option} {out}: is there already and not empty; give another folder")


def write_tables(sections: Sequence[Section], out: Path) -> list[Path]:
    """Writes each table as ``NAME.tex`` and ``NAME.csv``, and ``tables.tex``, which has them all.

    A name is made of the section's title; of a section's second table it ends with ``-2``.

    Args:
        sections: of a report.
        out: the folder.

    Returns:
        The files.
    """
    texts, names = {}, []
    for name, title, table in _named(sections):
        names.append(f"{name}.tex")
        texts[f"{name}.tex"] = latex.table(table, title, name)
        texts[f"{name}.csv"] = as_csv(iter([table.columns, *table.rows]))
    texts[DOCUMENT] = latex.document(names)
    for name, text in texts.items():
        write_text(out / name, text)
    return [out / name for name in texts]


def _named(sections: Sequence[Section]) -> Iterator[tuple[str, str, Table]]:
    """Yields (name, the section's title, table); names are plain ASCII, for every engine."""
    used = {DOCUMENT.partition(".")[0]}
    for section in sections:
        stem = "-".join(re.findall("[a-z0-9]+", section.anchor)) or "report"
        for table in (block for block in section.blocks if isinstance(block, Table)):
            names = (stem, *(f"{stem}-{number}" for number in range(2, len(used) + 3)))
            name = next(name for name in names if name not in used)
            used.add(name)
            yield name, section.title, table
