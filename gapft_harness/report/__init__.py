"""The report: one page with its tables, from a run's finalized files.

``reading.inputs.read_inputs`` reads a run, ``findings.computation.compute_findings`` computes all
numbers, and ``document.build_page`` builds the page. The same inputs give the same bytes, and a
report is written completely or not at all. Importing this package does not load numpy.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gapft_harness.core.errors import UserError
from gapft_harness.core.files import not_writable_error

if TYPE_CHECKING:
    from gapft_harness.presentation.page import Page
    from gapft_harness.report.reading.inputs import ReportInputs

__all__ = ["build_report", "replace_folder", "require_replaceable", "write_report"]

#: The names that a report's folder may contain.
_ENTRIES = {
    *("index.html", "index.md", "results.json", "explorer.html", "tables", "figures"),
    ".DS_Store",
}


def write_report(inputs: ReportInputs, folder: Path) -> Page:
    """Write the folder of a report, and replace an earlier report.

    Args:
        inputs: the result of ``read_inputs``.
        folder: gets index.html, index.md, explorer.html, results.json, tables/ and figures/.

    Raises:
        PluginError: two tables have the same name.
        GapftError: the folder cannot be written.
    """
    page = build_report(inputs)
    replace_folder(folder, page.build_files())
    return page


def build_report(inputs: ReportInputs) -> Page:
    """Build the page of a report with its tables and its explorer; see ``write_report``."""
    from gapft_harness.presentation.explorer import render_explorer
    from gapft_harness.report.document import build_page
    from gapft_harness.report.explored import explore_audit
    from gapft_harness.report.findings.computation import compute_findings

    page = build_page(inputs, compute_findings(inputs))
    if inputs.run_path:
        explored = explore_audit(inputs, inputs.run_path, page.title)
        page = replace(page, explorer=render_explorer(explored))
    return page


def require_replaceable(folder: Path) -> None:
    """Check that a folder may be replaced: it is missing, empty or an earlier report.

    Raises:
        UserError: the path is a file, or the folder contains other files than a report's.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: a file is in the place of the report's folder; move it")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if unknown_names := sorted(names - _ENTRIES):
        raise UserError(
            f"{folder}: the report would replace this folder, but it contains files that do not "
            f"belong to a report: {', '.join(unknown_names[:3])}; move them elsewhere"
        )
    if names and "results.json" not in names:
        raise UserError(
            f"{folder}: the report would replace this folder, but it is not a report: it does not "
            "contain results.json; move it elsewhere"
        )


def replace_folder(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write all files to a temporary folder next to it, then exchange the folders.

    An interruption leaves the old folder; between both exchanges, only as ``.NAME.earlier``.
    """
    partial_folder, earlier_folder = (
        folder.with_name(f".{folder.name}.{suffix}") for suffix in ("partial", "earlier")
    )
    require_replaceable(folder)
    try:
        for leftover in (partial_folder, earlier_folder):
            if leftover.exists():
                shutil.rmtree(leftover)
        for name, content in contents.items():
            path = partial_folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if folder.exists():
            folder.replace(earlier_folder)
        partial_folder.replace(folder)
        shutil.rmtree(earlier_folder, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(partial_folder, ignore_errors=True)
        raise not_writable_error(folder, error) from error
