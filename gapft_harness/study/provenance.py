"""The last sections of a study's page: cells, what they have in common, how to make it again."""

from __future__ import annotations

import json

from gapft_harness.report.rendering.blocks import Block, Bullets, Code, Section, Table, Text
from gapft_harness.report.rendering.wording import whole
from gapft_harness.report.sections.provenance import flat
from gapft_harness.study.findings import StudyFindings
from gapft_harness.study.protocol import OWN, SECTIONS
from gapft_harness.study.recipe import CELLS, STUDY, folder_of


def provenance(of: StudyFindings) -> list[Section]:
    """Cells, settings, and the commands."""
    return [
        Section("Cells", _cells(of)),
        Section("Settings", _settings(of)),
        Section("Reproduce", _reproduce(of)),
    ]


def _cells(of: StudyFindings) -> list[Block]:
    whole_cells = {cell.name: cell.inputs for cell in of.cells}
    rows = []
    for cell in of.collected:
        choice, inputs = of.study.cells[cell.name], whole_cells.get(cell.name)
        place = choice.run or f"{CELLS}/{folder_of(cell.name)}"
        said = ["–"] * 4
        if inputs is not None:
            model = str(inputs.recipe["model"]["args"]["pretrained"])
            params = json.dumps(inputs.task.get("verifier_params", {}), ensure_ascii=False)
            verifier = f"{inputs.task['verifier']} {params}"
            if inputs.taken:
                verifier += f" (not {' and '.join(inputs.taken)}: verdicts of imported files)"
            said = [model, inputs.task["name"], verifier, whole(len(inputs.audit.ids))]
        rows.append([cell.name, "; ".join(cell.lacks) or "whole", *said, place])
    columns = ["cell", "state", "model", "task", "verifier", "audit problems", "run"]
    note = (
        "Each run has a report of its own (report/index.html in its folder; a cell's name leads "
        "there), with everything that this page leaves out: every seed as counts, problems gained "
        "and lost, verdicts, warnings."
    )
    lines = [f"{cell.name}: {line}" for cell in of.collected for line in cell.warnings]
    return [
        Table(columns, rows, words=7, note=note, links=pages(of)),
        *([Bullets(lines)] if lines else []),
    ]


def pages(of: StudyFindings) -> dict[str, str]:
    """Of the cells that have a report, where it is."""
    return {cell.name: cell.page for cell in of.collected if cell.page}


def _settings(of: StudyFindings) -> list[Block]:
    blocks: list[Block] = [
        Text(
            "Compared before anything was run, and the same in every cell: the sections "
            f"{', '.join(SECTIONS)} of the recipe, but for {', '.join(OWN)}; the conditions with "
            "their selectors; and the seeds. Model, task, verifier and the numbers of a budget are "
            "each cell's own. Cells of one task have one audit."
        )
    ]
    if of.cells:
        recipe = of.cells[0].inputs.recipe
        kept = {name: recipe[name] for name in ("conditions", "seeds", *SECTIONS)}
        own = {*OWN, *(f"{name}.run" for name in of.study.conditions)}
        rows = [[key, value] for key, value in flat(kept) if key not in own]
        blocks.append(Table(["key", "value"], rows, words=2, summary="What the cells share"))
    return blocks


def _reproduce(of: StudyFindings) -> list[Block]:
    said = (
        f"The study's folder holds {STUDY} and a run for each cell that names a recipe. In that "
        "folder, to go on or write this page again, and to verify every cell and this report:"
    )
    return [Text(said), Code(f"gapft study {STUDY} --run-dir .\ngapft verify .")]
