"""What an experiment is made of, from the rooms that have it; strangers get it by the api."""

from gapft_harness.core.files import replace_file, write_json
from gapft_harness.hooks.protocols import RegisterExperiment
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.recipe.sections import RecipeSection
from gapft_harness.report.figures.style import WIDTH as FIGURE_WIDTH
from gapft_harness.report.figures.style import rows_alone
from gapft_harness.report.findings.whole import Findings as ReportFindings
from gapft_harness.report.part import Opening, Part, Summary
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import (
    Bullets,
    Figure,
    Markdown,
    Section,
    Stat,
    Stats,
    Table,
    Text,
)
from gapft_harness.report.rendering.palette import MUTED, series
from gapft_harness.report.rendering.wording import condition_name, percent
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import Judged, read_examples, read_judged, read_problems
from gapft_harness.stages.audit.job import decode_arm
from gapft_harness.stages.context import Context
from gapft_harness.stages.experiment import Answered, Decodes, Experiment
from gapft_harness.stages.integrity.differences import Differences, unequal

__all__ = [
    "FIGURE_WIDTH",
    "MUTED",
    "Answered",
    "Bullets",
    "Context",
    "Decodes",
    "Differences",
    "Experiment",
    "Figure",
    "Judged",
    "Markdown",
    "Opening",
    "Part",
    "Recipe",
    "RecipeSection",
    "RegisterExperiment",
    "ReportFindings",
    "ReportInputs",
    "RunDirectory",
    "Section",
    "Stat",
    "Stats",
    "Summary",
    "Table",
    "Text",
    "condition_name",
    "decode_arm",
    "layout",
    "percent",
    "read_examples",
    "read_judged",
    "read_problems",
    "replace_file",
    "rows_alone",
    "series",
    "unequal",
    "write_json",
]
