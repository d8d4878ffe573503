"""``gapft verify`` of a study: verify every cell as a run, and the study's report."""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterator, Sequence
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.protocols import Progress
from gapft_harness.report.rendering.blocks import Drawing
from gapft_harness.stages.integrity.differences import Differences
from gapft_harness.stages.verify import run as verification
from gapft_harness.study import figures
from gapft_harness.study.cells import CollectedCell, collect_cells
from gapft_harness.study.document import build_document, compute_checked
from gapft_harness.study.recipe import REPORT, STUDY, StudyRecipe, read_study

_DRAWN_HINT = "; or a different version of matplotlib drew it"


def is_study(path: Path) -> bool:
    """Return whether a folder is a study's."""
    return (path / STUDY).is_file()


def verify_study(
    path: Path, plugin_files: Sequence[str] = (), progress: Progress = lambda *_: None
) -> Differences:
    """Verify every cell as ``gapft verify RUN`` does, then the study's report.

    The report is recomputed from the cells' sealed tables and compared file by file.

    Raises:
        UserError: the folder is not a study, or a plugin of a cell is not available.
    """
    study, study_differences = read_study(str(path / STUDY)), Differences()
    for name in study.cells:
        folder = Path(study.find_place(name, path))
        if not os.path.exists(folder):
            study_differences.missing.append(f"{name}: not run yet")
            continue
        try:
            cell_differences = verification.verify(folder, plugin_files, progress)
        except UserError as error:
            raise UserError(f"cell {name!r}: {error}") from error
        for kind in ("checked", "differences", "missing"):
            getattr(study_differences, kind).extend(
                f"{name}: {line}" for line in getattr(cell_differences, kind)
            )
        study_differences.remark = study_differences.remark or cell_differences.remark
    if (path / REPORT).is_dir():
        count_before = len(study_differences.differences)
        study_differences.collect(REPORT, lambda: _compare_report(study, path))
        if study_differences.checked and len(study_differences.differences) == count_before:
            study_differences.checked.append(
                "the study's report is equal to one recomputed from its cells"
            )
    else:
        study_differences.missing.append("the study's report was not written yet")
    return study_differences


def _compare_report(study: StudyRecipe, path: Path) -> Iterator[str]:
    cells = collect_cells(study, path)
    if omitted := list(_find_omitted_cells(path / REPORT / "results.json", cells)):
        yield from omitted
        return
    findings = compute_checked(study, cells)
    drawings, folder = figures.draw_study_figures(findings), path / REPORT
    # the page is compared with the stored figures, which are compared separately
    stored_drawings = [
        Drawing(figure.name, _read_text(folder / f"figures/{figure.name}.svg"), figure.png)
        for figure in drawings
    ]
    expected = build_document(findings, stored_drawings).build_files()
    expected |= {f"figures/{drawing.name}.svg": drawing.svg.encode() for drawing in drawings}
    stored_files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    for name in sorted(expected.keys() | stored_files.keys()):
        if name not in stored_files:
            yield f"{REPORT}/{name}: is missing"
        elif name not in expected:
            yield f"{REPORT}/{name}: does not belong to a report"
        elif stored_files[name].read_bytes() != expected[name]:
            hint = _DRAWN_HINT if name.startswith("figures/") else ""
            yield f"{REPORT}/{name}: differs from the file recomputed from the cells{hint}"


def _find_omitted_cells(results: Path, cells: Sequence[CollectedCell]) -> Iterator[str]:
    """Describe the cells that the report leaves out although their runs are complete."""
    try:
        entries = json.loads(_read_text(results))["cells"]
        reasons = {
            name: "; ".join(entry["lacks"]) for name, entry in entries.items() if "lacks" in entry
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return  # damaged: the comparison of files reports it
    for cell in cells:
        if not cell.missing and cell.name in reasons:
            yield (
                f"cell {cell.name!r}: the report leaves it out ({reasons[cell.name]}), but its run "
                f"{cell.place} is complete. Either its recipe differs from the study's, or it was "
                "finished later: run the study again to include it or to see the difference"
            )


def _read_text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace") if path.is_file() else ""
