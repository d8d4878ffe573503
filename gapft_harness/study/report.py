"""Computes and writes a study's report: the same files as a run's, of its cells' sealed tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gapft_harness.core.errors import UserError
from gapft_harness.report import replace_folder
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.study import figures
from gapft_harness.study.cells import Collected, collect, require_different
from gapft_harness.study.document import document, sections
from gapft_harness.study.findings import StudyFindings, compute_study
from gapft_harness.study.protocol import require_comparable, require_one_protocol
from gapft_harness.study.recipe import REPORT, STUDY, StudyRecipe, read_study


def write_study(study: StudyRecipe, collected: Sequence[Collected], folder: Path) -> StudyFindings:
    """Computes and writes a study's report.

    Raises:
        UserError: cells cannot stand in one comparison; an earlier report stays.
        GapftError: the folder cannot be written.
    """
    found = checked(study, collected)
    replace_folder(folder / REPORT, document(found, figures.draw_all(found)).files())
    return found


def checked(study: StudyRecipe, collected: Sequence[Collected]) -> StudyFindings:
    """A study's findings, of cells that may be compared.

    Raises:
        UserError: they may not.
    """
    require_different(collected)
    require_one_protocol(study, {of.name: of.recipe for of in collected if of.recipe is not None})
    require_comparable(study, collected)
    return compute_study(study, collected)


def read_sections(folder: Path) -> list[Section]:
    """The sections of a study's report, computed again from its cells' sealed tables.

    Raises:
        UserError: it is no study, or a cell is not whole.
    """
    study = read_study(str(folder / STUDY))
    found = checked(study, collect(study, folder))
    if found.lacking:
        told = [f"{name}: {'; '.join(lacks)}" for name, lacks in found.lacking.items()]
        raise UserError("\n".join([f"{folder}: cells are not whole:", *told]))
    return sections(found)
