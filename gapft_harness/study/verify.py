"""``gapft verify`` of a study: verify every cell as a run, and the study's report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.protocols import Progress
from gapft_harness.stages.verify import run as verification
from gapft_harness.stages.verify.differences import Differences, compare_files
from gapft_harness.study.cells import read_cells
from gapft_harness.study.findings import compute_study
from gapft_harness.study.page import build_page
from gapft_harness.study.recipe import REPORT, STUDY, StudyRecipe, read_study


def is_study(path: Path) -> bool:
    """Return whether a folder is a study's."""
    return (path / STUDY).is_file()


def verify_study(
    path: Path, plugin_files: Sequence[str] = (), progress: Progress = lambda *_: None
) -> Differences:
    """Verify every cell as ``gapft verify RUN`` does, then the study's report.

    The report is recomputed from the cells' tables and compared file by file.

    Raises:
        UserError: the folder is not a study, or a plugin of a cell is not available.
    """
    study = read_study(str(path / STUDY))
    result = Differences()
    for name in study.cells:
        run_path = study.find_run_path(name, path)
        if not run_path.exists():
            result.missing.append(f"{name}: not run yet")
            continue
        try:
            cell_result = verification.verify(run_path, plugin_files, progress)
        except UserError as error:
            raise UserError(f"cell {name!r}: {error}") from error
        for kind in ("checked", "differences", "missing"):
            lines = getattr(cell_result, kind)
            getattr(result, kind).extend(f"{name}: {line}" for line in lines)
        result.remark = result.remark or cell_result.remark
    if not (path / REPORT).is_dir():
        result.missing.append("the study's report was not written yet")
        return result
    count_before = len(result.differences)
    result.collect(REPORT, lambda: _compare_report(study, path))
    if result.checked and len(result.differences) == count_before:
        result.checked.append("the study's report is equal to one recomputed from its cells")
    return result


def _compare_report(study: StudyRecipe, path: Path) -> Iterator[str]:
    """Compare the files of a study's report with those that its cells give now."""
    expected = build_page(compute_study(study, read_cells(study, path))).build_files()
    return compare_files(path / REPORT, expected)
