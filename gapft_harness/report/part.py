"""An experiment's part of a report: the interface that the report calls for every experiment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gapft_harness.core.records import Arm
    from gapft_harness.presentation.content import Table
    from gapft_harness.report.findings.computation import Findings
    from gapft_harness.report.reading.inputs import ReportInputs
    from gapft_harness.run_directory.directory import RunDirectory


class Part:
    """An experiment's section of a report. Methods that are not overridden add nothing.

    ``read`` loads data from a run, and the other methods receive it. The same inputs must give the
    same bytes.

    Attributes:
        name: the experiment's name, with which the names of its tables begin.
        title: the heading of its section.
        after: the title of the section after which it is inserted; empty: at the end.
    """

    name: str = ""
    title: str = ""
    after: str = ""

    def read(self, run: RunDirectory, arms: Sequence[Arm]) -> Any:
        """Read the part's files; return None where the run has none.

        The caller has checked their contents.

        Args:
            run: the run, with the recipe of the report.
            arms: the trained arms of the report.
        """
        return None

    def leads(self, read: Any) -> Sequence[str]:
        """Return conditions to put first in the report, after GapFT.

        The first of them is the lead condition of a run without GapFT.
        """
        return ()

    def tables(self, inputs: ReportInputs, findings: Findings, read: Any) -> Iterable[Table]:
        """Return the tables of the section; called only where the run has trained arms."""
        return ()

    def verdicts(self, inputs: ReportInputs, read: Any) -> Mapping[str, Mapping[str, int]]:
        """Return more rows for the table of verdicts: label -> status -> number of responses."""
        return {}
