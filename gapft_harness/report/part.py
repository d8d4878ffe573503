"""What an experiment adds to a report; the report goes through the parts and names none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Arm
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.frame import Rows
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Section, Stat

#: Figures by name, each with what draws it with matplotlib.
Figures = Iterable[tuple[str, Callable[[Findings], Any]]]


@dataclass(frozen=True, slots=True)
class Opening:
    """What a part says at the top of the page.

    Attributes:
        sentence: its result.
        first: whether the report's lead condition is this part's, so that it comes first.
        stat: a number that stands out, shown where ``first``.
    """

    sentence: str
    first: bool = False
    stat: Stat | None = None


class Part:
    """What an experiment adds to a report. Every method adds nothing unless it is overridden.

    ``read`` gives what the part reads of a run, ``compute`` its findings; both come back as
    ``read`` and ``found`` to the other methods. The same inputs must give the same bytes.

    Attributes:
        name: its key in results.json.
        after: the title of the section that its sections follow; empty: the report's end.
    """

    name: str = ""
    after: str = ""

    def read(self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]) -> Any:
        """Reads sealed files, whose hashes the caller has checked; None: nothing of it here.

        Args:
            run_path: the run directory.
            manifest: its manifest.
            arms: the report's trained arms.
        """
        return None

    def leads(self, read: Any) -> Sequence[str]:
        """Conditions that the report is about, after GapFT; the first leads where GapFT is not."""
        return ()

    def compute(self, inputs: ReportInputs, read: Any) -> Any:
        """The findings; asked only where there are trained arms."""
        return None

    def opening(self, findings: Findings, found: Any) -> Opening | None:
        """A sentence for the top of the page."""
        return None

    def sections(self, inputs: ReportInputs, findings: Findings, found: Any) -> Iterable[Section]:
        """Sections of the page."""
        return ()

    def figures(self, findings: Findings, found: Any) -> Figures:
        """Figures by name; a section shows one by ``blocks.Figure`` of that name."""
        return ()

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: Any
    ) -> Iterable[tuple[str, Rows]]:
        """CSV files by name, unrounded."""
        return ()

    def results(self, found: Any) -> Mapping[str, Any] | None:
        """What results.json has under the part's name."""
        return None

    def verdicts(self, inputs: ReportInputs, read: Any) -> Mapping[str, Mapping[str, int]]:
        """Further rows of the table of verdicts: label -> status -> responses."""
        return {}

    def summary(self, content: Mapping[str, Any]) -> Summary | None:
        """A line for the terminal, from what results.json has under the part's name."""
        return None


@dataclass(frozen=True, slots=True)
class Summary:
    """A part's line on the terminal.

    Attributes:
        line: its result.
        problems: on the fewest of how many problems it rests, to be marked where they are few.
    """

    line: str
    problems: int
