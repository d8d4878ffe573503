"""An experiment's part of a report: the interface that the report calls for every experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Arm
from gapft_harness.report.findings.computation import Findings
from gapft_harness.report.frame import Rows
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Section, Stat

#: Names of figures, each with a function that draws it with matplotlib.
Figures = Iterable[tuple[str, Callable[[Findings], Any]]]


@dataclass(frozen=True, slots=True)
class Opening:
    """A part's sentence at the top of the page.

    Attributes:
        sentence: the part's result.
        is_first: whether the sentence comes first, because the lead condition belongs to this part.
        stat: a highlighted number; shown only where ``is_first`` is true.
    """

    sentence: str
    is_first: bool = False
    stat: Stat | None = None


class Part:
    """An experiment's additions to a report. Methods that are not overridden add nothing.

    ``read`` loads data from a run and ``compute`` derives findings; the other methods receive these
    results as ``read`` and ``part_findings``. The same inputs must give the same bytes.

    Attributes:
        name: the key in results.json.
        after: the title of the section after which the part's sections are inserted; empty: at the
            end of the report.
    """

    name: str = ""
    after: str = ""

    def read(self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]) -> Any:
        """Read the part's sealed files; return None where the run has none.

        The caller has checked the hashes of the files.

        Args:
            run_path: the run directory.
            manifest: the run's manifest.
            arms: the trained arms of the report.
        """
        return None

    def leads(self, read: Any) -> Sequence[str]:
        """Return conditions to put first in the report, after GapFT.

        The first of them is the lead condition of a run without GapFT.
        """
        return ()

    def compute(self, inputs: ReportInputs, read: Any) -> Any:
        """Compute the findings; called only where the run has trained arms."""
        return None

    def opening(self, findings: Findings, part_findings: Any) -> Opening | None:
        """Return a sentence for the top of the page."""
        return None

    def sections(
        self, inputs: ReportInputs, findings: Findings, part_findings: Any
    ) -> Iterable[Section]:
        """Return the part's sections of the page."""
        return ()

    def figures(self, findings: Findings, part_findings: Any) -> Figures:
        """Return figures by name; a section shows one with a ``blocks.Figure`` of that name."""
        return ()

    def tables(
        self, inputs: ReportInputs, findings: Findings, part_findings: Any
    ) -> Iterable[tuple[str, Rows]]:
        """Return the rows of CSV files by file name, unrounded."""
        return ()

    def results(self, part_findings: Any) -> Mapping[str, Any] | None:
        """Return the content for results.json under the part's name; None: no entry."""
        return None

    def verdicts(self, inputs: ReportInputs, read: Any) -> Mapping[str, Mapping[str, int]]:
        """Return more rows for the table of verdicts: label -> status -> number of responses."""
        return {}

    def summary(self, content: Mapping[str, Any]) -> Summary | None:
        """Return a line for the terminal, given the part's content in results.json."""
        return None


@dataclass(frozen=True, slots=True)
class Summary:
    """A part's line on the terminal.

    Attributes:
        line: the part's result.
        problems: the smallest number of problems behind any figure in the line; the line is marked
            as unstable where this number is small.
    """

    line: str
    problems: int
