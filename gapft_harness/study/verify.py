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
from gapft_harness.study.cells import Collected, collect
from gapft_harness.study.document import checked, document
from gapft_harness.study.recipe import REPORT, STUDY, StudyRecipe, read_study

_DRAWN = "; or a different version of matplotlib drew it"


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
    study, found = read_study(str(path / STUDY)), Differences()
    for name in study.cells:
        folder = Path(study.place(name, path))
        if not os.path.exists(folder):
            found.missing.append(f"{name}: not run yet")
            continue
        try:
            of = verification.verify(folder, plugin_files, progress)
        except UserError as error:
            raise UserError(f"cell {name!r}: {error}") from error
        for kind in ("checked", "differences", "missing"):
            getattr(found, kind).extend(f"{name}: {line}" for line in getattr(of, kind))
        found.remark = found.remark or of.remark
    if (path / REPORT).is_dir():
        before = len(found.differences)
        found.gather(REPORT, lambda: _report(study, path))
        if found.checked and len(found.differences) == before:
            found.checked.append("the study's report is equal to one recomputed from its cells")
    else:
        found.missing.append("the study's report was not written yet")
    return found


def _report(study: StudyRecipe, path: Path) -> Iterator[str]:
    cells = collect(study, path)
    if failed := list(_left_out(path / REPORT / "results.json", cells)):
        yield from failed
        return
    found = checked(study, cells)
    drawings, folder = figures.draw_all(found), path / REPORT
    # the page is compared with the stored figures, which are compared separately
    beside = [Drawing(d.name, _text(folder / f"figures/{d.name}.svg"), d.png) for d in drawings]
    expected = document(found, beside).files()
    expected |= {f"figures/{drawing.name}.svg": drawing.svg.encode() for drawing in drawings}
    there = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    for name in sorted(expected.keys() | there.keys()):
        if name not in there:
            yield f"{REPORT}/{name}: is missing"
        elif name not in expected:
            yield f"{REPORT}/{name}: does not belong to a report"
        elif there[name].read_bytes() != expected[name]:
            drawn = _DRAWN if name.startswith("figures/") else ""
            yield f"{REPORT}/{name}: differs from the file recomputed from the cells{drawn}"


def _left_out(results: Path, cells: Sequence[Collected]) -> Iterator[str]:
    """Describe the cells that the report leaves out although their runs are complete."""
    try:
        told = json.loads(_text(results))["cells"]
        lacks = {name: "; ".join(of["lacks"]) for name, of in told.items() if "lacks" in of}
    except (AttributeError, KeyError, TypeError, ValueError):
        return  # damaged: the comparison of files reports it
    for cell in cells:
        if not cell.lacks and cell.name in lacks:
            yield (
                f"cell {cell.name!r}: the report leaves it out ({lacks[cell.name]}), but its run "
                f"{cell.place} is complete. Either its recipe differs from the study's, or it was "
                "finished later: run gapft study again to include it or to see the difference"
            )


def _text(path: Path) -> str:
    return path.read_text("utf-8", errors="replace") if path.is_file() else ""
