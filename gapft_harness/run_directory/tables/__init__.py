"""The sealed tables of a run: one module owns a table, its columns, rows written and rows read."""

from gapft_harness.run_directory.tables.evidence import read_evidence as read_evidence
from gapft_harness.run_directory.tables.imports import import_warnings as import_warnings
from gapft_harness.run_directory.tables.imports import sealed_imports as sealed_imports
from gapft_harness.run_directory.tables.imports import warnings_of as warnings_of
from gapft_harness.run_directory.tables.items import read_items as read_items
from gapft_harness.run_directory.tables.items import write_items as write_items
from gapft_harness.run_directory.tables.parquet import read_facts as read_facts
from gapft_harness.run_directory.tables.parquet import read_ids as read_ids
from gapft_harness.run_directory.tables.problems import read_problems as read_problems
from gapft_harness.run_directory.tables.problems import read_prompts as read_prompts
from gapft_harness.run_directory.tables.responses import Judged as Judged
from gapft_harness.run_directory.tables.responses import read_judged as read_judged
from gapft_harness.run_directory.tables.responses import sealed_status as sealed_status
from gapft_harness.run_directory.tables.selections import read_examples as read_examples
from gapft_harness.run_directory.tables.states import read_states as read_states

__all__ = [
    "Judged",
    "import_warnings",
    "read_evidence",
    "read_examples",
    "read_facts",
    "read_ids",
    "read_items",
    "read_judged",
    "read_problems",
    "read_prompts",
    "read_states",
    "sealed_imports",
    "sealed_status",
    "warnings_of",
    "write_items",
]
