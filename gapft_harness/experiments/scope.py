"""The scope matrix: decompose the change of fixed models at several budgets of one search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gapft_harness import api
from gapft_harness.analysis.decomposition import by_state, find_unstable_states
from gapft_harness.analysis.redistribution import compute_null_rates
from gapft_harness.report.reading.adapters import find_tables, read_decided, stacked
from gapft_harness.report.reading.answers import Answers, NoAnswersError, read_answers
from gapft_harness.stages.experiment.comparable import OfAdapters
from gapft_harness.stages.search.states import Window

_NOTE = (
    "K: the first K samples of the search; the trained models are the same at every K. p_S: share "
    "of the audit that these samples recover. κ_S, κ_U and ρ_G: means over seeds. Net gain: Pass@1 "
    "minus the source's, in percentage points. Null S and null U: the expected κ_S and κ_U if the "
    "answers given after training are permuted among problems with the same state and the same "
    "answer of the source. Unstable: states with fewer than 30 audit problems, whose rates vary "
    "much."
)
_COLUMNS = (
    api.Column("condition", "condition"),
    api.Column("adapters", "adapters"),
    api.Column("K", "K", "count"),
    *(api.Column(state, state, "count") for state in "GSU"),
    api.Column("p_S", "p_S", "share"),
    api.Column("kappa_S", "κ_S", "share"),
    api.Column("kappa_U", "κ_U", "share"),
    api.Column("rho_G", "ρ_G", "share"),
    api.Column("net_gain", "net gain", "points"),
    api.Column("null_S", "null S", "share"),
    api.Column("null_U", "null U", "share"),
    api.Column("unstable", "unstable"),
)


class ScopeSettings(OfAdapters):
    """The settings ``experiments.scope``; the defaults are those of the paper."""

    k: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (4, 8), min_length=1, description="search budgets K: the first K samples of the search"
    )

    def list_windows(self) -> list[Window]:
        """List the windows, one for each K, ascending; all start with the first sample."""
        return [Window(0, k) for k in sorted({*self.k})]


class ScopeExperiment(api.Experiment):
    """Decomposes the change of every condition at several search budgets, from one search."""

    name = "scope"
    title = "Scope matrix"
    after = "Where the change comes from"
    section = ScopeSettings

    def check(self, recipe: api.Recipe, settings: ScopeSettings) -> None:
        """Require the scaled adapters and the samples that the settings ask for."""
        settings.require_scales(recipe, self.name)
        if max(settings.k) > recipe.search.k:
            raise api.UserError(
                f"recipe {recipe.name}: key 'experiments.{self.name}.k': needs {max(settings.k)} "
                f"samples of each problem, but search.k is {recipe.search.k}; lower k, or raise "
                f"search.k to {max(settings.k)} or more"
            )

    def steps(self, view: api.View) -> Iterator[Sequence[api.Step]]:
        """Compute the states of the audit by the first K samples."""
        yield [view.states(window) for window in self.settings(view.recipe).list_windows()]

    def cost(self, recipe: api.Recipe, counts: Mapping[str, int]) -> Sequence[str]:
        """Describe the tables of states."""
        windows = ", ".join(window.range_text for window in self.settings(recipe).list_windows())
        return [f"states by samples {windows} of the audit"]

    def read(self, run: api.RunDirectory, arms: Sequence[api.Arm]) -> ScopeRead:
        """Read the verdicts of the trained models, and answers if the task has them."""
        settings = self.settings(run.recipe)
        tables = find_tables(run.path, arms, settings.adapters)
        decisions = read_decided(run.path, arms, settings.adapters)
        try:
            answers = read_answers(run.path, run.task, tables)
        except NoAnswersError as error:
            return ScopeRead(settings, decisions, None, str(error))
        return ScopeRead(settings, decisions, answers)

    def tables(
        self, inputs: api.ReportInputs, findings: api.ReportFindings, read: ScopeRead
    ) -> Iterator[api.Table]:
        """Return the changes of each condition at each K, and the reason if there is no null."""
        settings = read.settings
        audit = inputs.audit.verdicts
        rows: list[api.Row] = []
        for name in inputs.conditions:
            passed = stacked(read.decisions, name)
            for window in settings.list_windows():
                states = audit.select_samples(window.offset, window.k).states
                sizes = {state: int((states == state).sum()) for state in "GSU"}
                change = by_state(states, passed)
                null = {}
                if read.answers is not None:
                    answers = stacked(read.answers.arms, name)
                    golds = read.answers.golds
                    source = read.answers.source
                    null = compute_null_rates(answers, golds, source, states)
                rows.append(
                    {
                        "condition": name,
                        "adapters": settings.adapters,
                        "K": window.k,
                        **sizes,
                        "p_S": Fraction(sizes["S"], len(states)),
                        "kappa_S": change.kappa_s,
                        "kappa_U": change.kappa_u,
                        "rho_G": change.rho_g,
                        "net_gain": change.terms.total,
                        "null_S": null.get("S"),
                        "null_U": null.get("U"),
                        "unstable": ", ".join(find_unstable_states(*sizes.values())),
                    }
                )
        yield api.Table(self.name, _COLUMNS, rows, _NOTE)
        if read.reason:
            columns = [api.Column("reason", "no null rates")]
            yield api.Table(f"{self.name}_no_null_rates", columns, [{"reason": read.reason}])


@dataclass(frozen=True, slots=True)
class ScopeRead:
    """The decisions of the trained models.

    Attributes:
        settings: the settings.
        decisions: by arm, shape (P,), whether its response to each audit problem passed.
        answers: the answers of the source and the arms; None: they cannot be redistributed.
        reason: the reason why not; empty: they can.
    """

    settings: ScopeSettings
    decisions: Mapping[api.Arm, NDArray[np.bool_]]
    answers: Answers | None
    reason: str = ""


@api.hookimpl
def register_experiments(register):  # type: ignore[no-untyped-def]
    """Register the experiment."""
    register("scope", ScopeExperiment)
