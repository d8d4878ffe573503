"""The report: results.json, tables, figures, report.md and one self-contained index.html.

``reading.inputs.read_inputs`` reads a run's sealed files; ``write_report`` computes and writes.
The same inputs give the same bytes, and a report is there whole or not at all. Importing this room
loads no numpy: the command line takes words from it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import FAULTS, GapftError, PluginError, UserError, did_you_mean
from gapft_harness.core.files import unwritable
from gapft_harness.report.rendering.blocks import Figure, Markdown, Section

if TYPE_CHECKING:
    from gapft_harness.report.reading.inputs import ReportInputs

__all__ = ["FILES", "replace_folder", "require_replaceable", "write_report"]

#: The pages and results of a report.
FILES = ("results.json", "report.md", "index.html")
#: What its folder holds, beside the explorer's pages.
_ENTRIES = {*FILES, "tables", "figures", ".DS_Store"}
_EXPLORER = re.compile(r"explorer(-.+)?\.html")

#: A plugin's report section: its name, and a function from results.json's content to Markdown.
ReportSection = tuple[str, Callable[[Mapping[str, Any]], str]]


def write_report(
    inputs: ReportInputs, folder: Path, sections: Sequence[ReportSection] = ()
) -> dict[str, Any]:
    """Writes a report's folder: beside first, then renamed over an earlier one.

    Args:
        inputs: what ``read_inputs`` gave.
        folder: becomes index.html, explorer.html, report.md, results.json, tables/ and figures/.
        sections: plugins' sections, put at the end.

    Returns:
        The content of results.json.

    Raises:
        PluginError: a plugin's section failed or gave something that is no text.
        GapftError: the folder cannot be written.
    """
    from gapft_harness.report import document, figures, results, tables
    from gapft_harness.report.explorer import packing as explorer
    from gapft_harness.report.explorer.of_run import of_audits
    from gapft_harness.report.findings import whole as findings
    from gapft_harness.report.rendering.document import Document
    from gapft_harness.report.rendering.wording import made_on

    found = findings.compute(inputs)
    content = results.results(inputs, found)
    title = f"{inputs.recipe['name']} on {inputs.task['name']}"
    told = Document(
        title=title,
        subtitle=inputs.recipe.get("description", ""),
        made=made_on(inputs.days),
        sections=[*document.build(inputs, found), *_plugin_sections(sections, content)],
        names=FILES,
        results=content,
        tables={f"tables/{name}": rows for name, rows in tables.all_tables(inputs, found)},
        drawings=figures.draw_all(found),
        explorers={name: explorer.render(of) for name, of in of_audits(inputs, title)},
    )
    _require_drawn(told.sections, [drawing.name for drawing in told.drawings])
    replace_folder(folder, told.files())
    return content


def _require_drawn(sections: Sequence[Section], drawn: Sequence[str]) -> None:
    """Holds sections to show what somebody drew, and once each."""
    if twice := [name for name in drawn if drawn.count(name) > 1]:
        raise PluginError(f"two figures of the report are named {twice[0]!r}: rename one")
    for section in sections:
        for block in section.blocks:
            if isinstance(block, Figure) and block.name not in drawn:
                raise PluginError(
                    f"the report's section {section.title!r} shows the figure {block.name!r}, "
                    f"which nobody draws; {did_you_mean(block.name, drawn)}"
                )


def _plugin_sections(sections: Sequence[ReportSection], content: Mapping[str, Any]) -> list[Any]:
    built = []
    for name, render in sections:
        try:
            # A copy: what one plugin does to it, neither results.json nor another plugin sees.
            text = render(json.loads(json.dumps(content)))
        except GapftError:
            raise
        except FAULTS as error:
            raise PluginError(
                f"report section {name!r} (hook register_report_sections) failed: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(text, str):
            raise PluginError(
                f"report section {name!r} (hook register_report_sections) gave "
                f"{type(text).__name__}, expected Markdown text"
            )
        built.append(Section(name, [Markdown(text)]))
    return built


def require_replaceable(folder: Path) -> None:
    """Holds a folder to be a report, if it is there: nobody else's files are taken away.

    Raises:
        UserError: it holds what no report has.
    """
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: is a file, and a report would replace it; move it elsewhere")
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if others := sorted(name for name in found - _ENTRIES if not _EXPLORER.fullmatch(name)):
        raise UserError(
            f"{folder}: holds {', '.join(others[:3])}, which is no part of a report, and a report "
            "would replace the folder; move it elsewhere"
        )
    if found and "results.json" not in found:
        raise UserError(
            f"{folder}: holds no results.json, so it is no report, and a report would replace it; "
            "move it elsewhere"
        )


def replace_folder(folder: Path, written: Mapping[str, bytes]) -> None:
    """Writes all files beside, then exchanges the folders; an interruption leaves the old one."""
    beside, earlier = (
        folder.with_name(f".{folder.name}.{suffix}") for suffix in ("partial", "earlier")
    )
    require_replaceable(folder)
    try:
        for leftover in (beside, earlier):
            if leftover.exists():
                shutil.rmtree(leftover)
        for name, content in written.items():
            path = beside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if folder.exists():
            folder.replace(earlier)
        beside.replace(folder)
        shutil.rmtree(earlier, ignore_errors=True)
    except OSError as error:
        shutil.rmtree(beside, ignore_errors=True)
        raise unwritable(folder, error) from error
