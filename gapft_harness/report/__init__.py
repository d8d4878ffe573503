"""The report: results.json, tables, figures, report.md and one self-contained index.html.

``reading.inputs.read_inputs`` reads a run's sealed files; ``write_report`` computes the figures and
writes the folder. The same inputs give the same bytes, and a report is written completely or not at
all. Importing this package does not load numpy, because the command line imports words from it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import PluginError, UserError, did_you_mean
from gapft_harness.core.files import not_writable_error
from gapft_harness.report.rendering.blocks import Figure, Markdown, Section

if TYPE_CHECKING:
    from gapft_harness.report.reading.inputs import ReportInputs

__all__ = ["FILES", "replace_folder", "require_replaceable", "write_report"]

#: The pages and results of a report.
FILES = ("results.json", "report.md", "index.html")
#: All names that its folder may contain.
_REPORT_ENTRIES = {*FILES, "explorer.html", "tables", "figures", ".DS_Store"}

#: A plugin's report section: its name, and a function from results.json's content to Markdown.
ReportSection = tuple[str, Callable[[Mapping[str, Any]], str]]


def write_report(
    inputs: ReportInputs, folder: Path, sections: Sequence[ReportSection] = ()
) -> dict[str, Any]:
    """Write the folder of a report, and replace an earlier report.

    The files are first written to a temporary folder next to it, which is then renamed.

    Args:
        inputs: the result of ``read_inputs``.
        folder: gets index.html, explorer.html, report.md, results.json, tables/ and figures/.
        sections: sections of plugins, added at the end.

    Returns:
        The content of results.json.

    Raises:
        PluginError: a plugin's section returned something other than text.
        GapftError: the folder cannot be written.
    """
    from gapft_harness.report import document, figures, results, tables
    from gapft_harness.report.explorer import packing as explorer
    from gapft_harness.report.explorer.run_content import collect_audit
    from gapft_harness.report.findings import computation as findings
    from gapft_harness.report.rendering.document import Document
    from gapft_harness.report.rendering.wording import describe_days

    report_findings = findings.compute_findings(inputs)
    content = results.build_results(inputs, report_findings)
    title = f"{inputs.recipe['name']} on {inputs.task['name']}"
    document_parts = Document(
        title=title,
        subtitle=inputs.recipe.get("description", ""),
        date_note=describe_days(inputs.days),
        sections=[
            *document.build_sections(inputs, report_findings),
            *_build_plugin_sections(sections, content),
        ],
        names=FILES,
        results=content,
        tables={
            f"tables/{name}": rows for name, rows in tables.build_tables(inputs, report_findings)
        },
        drawings=figures.draw_figures(report_findings),
        explorer=explorer.render_explorer(collect_audit(inputs, title)),
    )
    _check_figures(document_parts.sections, [drawing.name for drawing in document_parts.drawings])
    replace_folder(folder, document_parts.build_files())
    return content


def _check_figures(sections: Sequence[Section], figure_names: Sequence[str]) -> None:
    """Check that every figure in the sections is drawn, and that figure names are unique."""
    if repeated := [name for name in figure_names if figure_names.count(name) > 1]:
        raise PluginError(f"two figures of the report are named {repeated[0]!r}: rename one")
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Figure) and block.name not in figure_names:
                raise PluginError(
                    f"report section {section.title!r} shows the figure {block.name!r}, but no "
                    f"part draws it; {did_you_mean(block.name, figure_names)}"
                )


def _build_plugin_sections(
    sections: Sequence[ReportSection], content: Mapping[str, Any]
) -> list[Any]:
    """Render the plugins' sections, in their order."""
    built = []
    for name, render in sections:
        # A copy, so that a plugin cannot change results.json or the input of another plugin.
        text = render(json.loads(json.dumps(content)))
        built.append(Section(name, [Markdown(text)]))
    return built


def require_replaceable(folder: Path) -> None:
    """Check that a folder may be replaced: it is missing, empty or an earlier report.

    Raises:
        UserError: the path is a file, or the folder contains other files than a report's.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: a file is in the place of the report's folder; move it")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if unknown_names := sorted(names - _REPORT_ENTRIES):
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
    """Write all files to a temporary folder, then exchange the folders.

    An interruption leaves the old folder as it was.
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
