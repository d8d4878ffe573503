"""What the scope matrix adds to the report: findings, a section, an entry in results.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.analysis.partition.redistribution import null_rates
from gapft_harness.analysis.partition.stability import scope_row
from gapft_harness.core.records import Arm, State
from gapft_harness.experiments.scope import section
from gapft_harness.experiments.scope.figure import scope
from gapft_harness.experiments.scope.findings import ScopeFindings, ScopeLine, ScopeRead
from gapft_harness.experiments.scope.settings import ScopeSettings
from gapft_harness.report.findings.whole import Findings
from gapft_harness.report.part import Part, Rows
from gapft_harness.report.reading.adapters import read_decided, tables
from gapft_harness.report.reading.answers import answers_or_why
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.reading.windows import read_windows
from gapft_harness.report.rendering.blocks import Section
from gapft_harness.report.results import number
from gapft_harness.run_directory.directory import require
from gapft_harness.stages.search.windows import window_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ScopePart(Part):
    """The scope matrix."""

    name = "scope"
    after = "Where the change comes from"

    def read(self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[Arm]) -> ScopeRead:
        """The states at every K, and answers where there are any."""
        settings = ScopeSettings.model_validate(manifest["recipe"]["experiments"][self.name] or {})
        windows = settings.windows()
        states = read_windows(run_path, [window_table(window) for window in windows])
        decided = read_decided(run_path, arms, settings.adapters)
        given = tables(run_path, arms, settings.adapters)
        answers, why = answers_or_why(run_path, manifest["task"], given)
        return ScopeRead(tuple(window.k for window in windows), states, decided, answers, why)

    def in_order(self, read: ScopeRead, seeds: Sequence[int]) -> ScopeRead:
        """The same with problems by id."""
        answers = read.answers and read.answers.in_order()
        windows, decided = read.windows.in_order(), read.decided.in_order()
        return replace(read, windows=windows, decided=decided, answers=answers)

    def compute(self, inputs: ReportInputs, read: ScopeRead) -> ScopeFindings:
        """A line for each condition and K."""
        require(
            bool((read.windows.ids == inputs.audit.ids).all()),
            "scope: the states are of other problems than the audit's",
        )
        answers, lines = read.answers, []
        for name in inputs.conditions:
            passed = read.decided.of(name)
            for k, states in zip(read.budgets, read.windows.states, strict=True):
                null: dict[State, Fraction] = {}
                if answers is not None:
                    null = null_rates(answers.of(name), answers.golds, answers.source, states)
                lines.append(ScopeLine(name, scope_row(k, states, passed), null))
        return ScopeFindings(tuple(lines), read.why, read.decided.adapters)

    def sections(
        self, inputs: ReportInputs, findings: Findings, found: ScopeFindings
    ) -> Iterator[Section]:
        """The scope matrix."""
        yield Section("Scope matrix", section.blocks(found))

    def figures(
        self, findings: Findings, found: ScopeFindings
    ) -> Iterator[tuple[str, Callable[[Findings], Figure]]]:
        """The states and the rates at every K."""
        yield self.name, partial(scope, found=found)

    def tables(
        self, inputs: ReportInputs, findings: Findings, found: ScopeFindings
    ) -> Iterator[tuple[str, Rows]]:
        """The matrix, unrounded."""
        yield "scope.csv", section.rows(found)

    def results(self, found: ScopeFindings) -> dict[str, Any]:
        """For results.json."""
        lines = [
            {
                "condition": line.condition,
                "K": line.row.k,
                "states": dict(zip("GSU", line.row.sizes, strict=True)),
                "p_S": float(line.row.p_s),
                "kappa_S": number(line.row.mean.kappa_s),
                "kappa_U": number(line.row.mean.kappa_u),
                "rho_G": number(line.row.mean.rho_g),
                "net_gain": float(line.row.net_gain),
                "null_S": number(line.null.get("S")),
                "null_U": number(line.null.get("U")),
                "unstable": list(line.row.unstable),
            }
            for line in found.lines
        ]
        return {
            "adapters": found.adapters,
            "lines": lines,
            "no_null_rates": found.why or None,
        }
