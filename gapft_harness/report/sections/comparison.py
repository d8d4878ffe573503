"""Conditions and contrasts: Pass@1 on one audit, and the parts of the change by state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from statistics import fmean
from typing import Any

from gapft_harness.analysis.decomposition import STABLE_ITEMS, Decomposition, Terms
from gapft_harness.analysis.pass_at_k import format_k
from gapft_harness.core.records import SOURCE, Budget, State
from gapft_harness.report.figures.contrasts import format_contrast, select_principal
from gapft_harness.report.findings.computation import ConditionFindings, Contrast, Findings
from gapft_harness.report.frame import CI95, Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Table
from gapft_harness.report.rendering.wording import (
    UNSTABLE,
    format_count,
    format_rounded,
    percent,
    points,
)

#: Columns of a CSV file for a difference's parts by state.
TERMS = ("term_S", "term_U", "term_G")


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A row of the tables of conditions.

    Attributes:
        pass_at_1: of its deployment decodes, mean over seeds.
        k: samples that were drawn from the source.
        condition: the condition; None: the source.
        printed: the Pass@1 that a paper prints for it, as text; may be empty.
        source_name: the source's name for people.
    """

    pass_at_1: Fraction
    k: int
    condition: ConditionFindings | None = None
    printed: str = ""
    source_name: str = "source, greedy"

    @classmethod
    def from_condition(cls, condition: ConditionFindings, k: int, printed: str = "") -> ModelRow:
        """Create the row of a condition."""
        return cls(condition.mean.pass_at_1, k, condition, printed)

    @property
    def label(self) -> str:
        """The model's name for people; a star marks a condition with its own budget."""
        if self.condition is None:
            return self.source_name
        return self.condition.label + ("" if self.condition.matched else " *")


def _map_trained(*columns: Column[ConditionFindings]) -> Iterator[Column[ModelRow]]:
    """Convert columns of conditions to columns where the source has no value."""
    return (column.map_rows(lambda row: row.condition, missing="") for column in columns)


#: The most seeds whose figures are listed; with more seeds, only the lowest and the highest.
SEEDS_SHOWN = 16


def _format_seeds(condition: ConditionFindings) -> str:
    rates = [float(seed.decomposition.pass_at_1) for seed in condition.seeds.values()]
    if len(rates) > SEEDS_SHOWN:
        return " to ".join(f"{100 * bound:.1f}" for bound in (min(rates), max(rates)))
    return " ".join(f"{100 * rate:.1f}" for rate in rates)


def split_by_state(terms: Terms) -> Mapping[str, Fraction]:
    """Return the parts of a difference by the source's state (Equation 9)."""
    return {"S": terms.s, "U": terms.u, "G": terms.g}


def _first_budget(condition: ConditionFindings) -> Budget:
    """Return the budget of the first seed; n, N and J are the same for all seeds."""
    return condition.budgets[0]


_PASS_AT_1 = (
    "share of audit problems whose deployment decode passes; mean over seeds and by seed "
    "(Equation 1)"
)
_N_L = "exposures; processed tokens over all exposures, mean over seeds (Equation 7)"
_J = "optimizer steps (Equation 7)"

#: The first columns of conditions and the source; ``BUDGETS`` and ``RATES`` have more.
ACCURACY: tuple[Column[ModelRow], ...] = (
    Column(
        "",
        "the rule of selection; a star: it has its own budget; in parentheses its "
        "[own settings](recipes.md#settings-of-its-own)",
        lambda row: row.label,
        "condition",
    ),
    *_map_trained(
        Column("condition", "", lambda condition: condition.name),
        Column("matched_budget", "", lambda condition: condition.matched),
    ),
    Column("pass_at_1", _PASS_AT_1, lambda row: row.pass_at_1, "Pass@1", percent),
    *_map_trained(
        Column(
            "ci95",
            "of the figure to its left; for models over audit problems and seeds",
            lambda condition: condition.estimate,
            "95% interval",
            wording.percent_interval,
            names=CI95,
        ),
        Column("", _PASS_AT_1, _format_seeds, "each seed"),
        Column("K_eq", "", lambda condition: format_k(condition.k_eq)),
    ),
    Column(
        "",
        "the most source samples, with a verifier, that one decode matches (Appendix B, Table 12)",
        lambda row: "" if row.condition is None else wording.format_k_eq(row.condition.k_eq, row.k),
        "K_eq",
    ),
)
PRINTED: tuple[Column[ModelRow], ...] = (
    Column(
        "",
        "the Pass@1 or figure that the [paper prints](recipes.md#figures-that-a-paper-prints)",
        lambda row: row.printed,
        "paper",
    ),
)
BUDGETS: tuple[Column[ModelRow], ...] = tuple(
    _map_trained(
        Column(
            "",
            "examples in the training set (Section 3.3)",
            lambda condition: _first_budget(condition).n,
            "n",
            format_count,
        ),
        Column("", _N_L, lambda condition: _first_budget(condition).exposures, "N", format_count),
        Column(
            "",
            _N_L,
            lambda condition: fmean(of.tokens for of in condition.budgets),
            "L",
            format_rounded,
        ),
        Column("", _J, lambda condition: _first_budget(condition).steps, "J", format_count),
    )
)


def build_rate_column(
    state: State, key: str, title: str, meaning: str, value: Callable[[Decomposition], Any]
) -> Column[ModelRow]:
    """Build the column of the share of a state's problems that changed; marks small states."""
    condition_column: Column[ConditionFindings] = Column(
        key,
        meaning,
        lambda condition: value(condition.mean),
        title,
        percent,
        lambda condition: state in condition.unstable_states,
    )
    return condition_column.map_rows(lambda row: row.condition)


_CORRECTED = (
    "share of S and of U that is right after training, share of G that is wrong (Equation 8); "
    "with [sampled decodes](statistics.md#the-decomposition) the mean change of the success "
    "probability"
)
_TERMS = "p_S κ_S, p_U κ_U, −p_G ρ_G and their sum, Pass@1 minus the source's (Equation 9)"
_format_points = partial(points, digits=2)

#: The share of each state that changed, and its contribution to Pass@1.
RATES: tuple[Column[ModelRow], ...] = (
    build_rate_column("S", "kappa_S", "κ_S", _CORRECTED, lambda mean: mean.kappa_s),
    build_rate_column("U", "kappa_U", "κ_U", _CORRECTED, lambda mean: mean.kappa_u),
    build_rate_column("G", "rho_G", "ρ_G", _CORRECTED, lambda mean: mean.rho_g),
    *_map_trained(
        Column("terms", "", lambda condition: split_by_state(condition.mean.terms), names=TERMS),
        Column("", _TERMS, lambda condition: condition.mean.terms.s, "S term", _format_points),
        Column("", _TERMS, lambda condition: condition.mean.terms.u, "U term", _format_points),
        Column("", _TERMS, lambda condition: condition.mean.terms.g, "G term", _format_points),
        Column("", _TERMS, lambda condition: condition.mean.terms.total, "change", _format_points),
    ),
)


#: ``RATES`` without stars, for tables that do not explain them.
DECOMPOSITION = (
    *_map_trained(Column("", "", lambda condition: condition.label, "condition")),
    *RATES,
)


def list_models(
    findings: Findings, k: int, printed: Mapping[str, str] | None = None
) -> list[ModelRow]:
    """List the rows of the source and every condition.

    Args:
        findings: of one audit.
        k: samples that were drawn from the source.
        printed: the Pass@1 that a paper prints, by condition, and under ``source``.
    """
    printed_values = printed or {}
    return [
        ModelRow(
            findings.source.pass_at_1,
            k,
            printed=printed_values.get(SOURCE, ""),
            source_name=wording.name_source(findings.source.deployment),
        ),
        *(
            ModelRow.from_condition(condition, k, printed_values.get(name, ""))
            for name, condition in findings.conditions.items()
        ),
    ]


def build_contrast_tables(inputs: ReportInputs, findings: Findings) -> list[Table]:
    """Build tables of all contrasts; with many conditions, the secondary ones are folded.

    Args:
        inputs: the inputs of the report.
        findings: of one audit.
    """
    names = {SOURCE, *findings.distinct}
    all_contrasts = [pair for pair in findings.contrasts if {pair.a, pair.b} <= names]
    principal_contrasts = select_principal(findings)
    others = [contrast for contrast in all_contrasts if contrast not in principal_contrasts]
    statistics = inputs.recipe["statistics"]
    replicates = format_count(statistics["replicates"])
    nested = ", with new problems for each seed" * (statistics.get("items") == "nested")
    note = (
        "In percentage points of Pass@1. S, U and G: the parts of each difference on these states "
        f"of the source; they add up to it. Intervals are percentiles of {replicates} "
        "replicates that resample training seeds and audit problems, both jointly for all "
        f"conditions{nested}. p: two-sided, from the same replicates; it is below 0.05 exactly "
        "where the interval excludes zero. Intervals and p are not corrected for the number of "
        f"contrasts ({len(all_contrasts)})."
    )
    note += findings.describe_marks(all_contrasts)
    tables = [_build_contrast_table(findings, principal_contrasts, note)]
    if others:
        tables.append(
            _build_contrast_table(
                findings, others, "", f"The other {format_count(len(others))} contrasts"
            )
        )
    return tables


def _build_contrast_table(
    findings: Findings, rows: Sequence[Contrast], note: str, summary: str = ""
) -> Table:
    return Frame(CONTRASTS, [(findings, row) for row in rows]).table(note, summary=summary)


_OF_PASS_AT_1 = "of Pass@1 (Δ_b, Section 3.3), over audit problems and seeds; p: two-sided"
_PARTS = "the difference's parts by state (Equation 9)"

#: A contrast, with the findings that have its marks.
CONTRASTS: tuple[Column[tuple[Findings, Contrast]], ...] = (
    Column("a", "", lambda row: row[1].a),
    Column("b", "", lambda row: row[1].b),
    Column(
        "",
        "condition minus condition or source; a star: other budgets; ‡: other settings",
        lambda row: format_contrast(*row),
        "contrast",
    ),
    Column("delta", _OF_PASS_AT_1, lambda row: row[1].delta, "difference", points),
    Column(
        "ci95", _OF_PASS_AT_1, lambda row: row[1].estimate, "95% interval",
        wording.points_interval, names=CI95,
    ),
    Column("terms", "", lambda row: split_by_state(row[1].terms), names=TERMS),
    Column("", _PARTS, lambda row: row[1].terms.s, "S", points),
    Column("", _PARTS, lambda row: row[1].terms.u, "U", points),
    Column("", _PARTS, lambda row: row[1].terms.g, "G", points),
    Column(
        "test",
        "",
        lambda row: {"name": "bootstrap", "p": row[1].estimate.p},
        names=("test", "p"),
    ),
    Column("", _OF_PASS_AT_1, lambda row: row[1].estimate.p, "p", wording.format_p_value),
)  # fmt: skip


def build_decomposition_table(findings: Findings) -> Table:
    """Build the table of every condition's rates of correction and regression, and their terms."""
    unstable = findings.source.unstable_states
    note = (
        "κ_S: share of the failures recovered by search that are right after training. κ_U: the "
        "same share of the failures missed by search. ρ_G: share of the problems solved by the "
        "source that are wrong after training. The three terms are these rates times each state's "
        "share of the audit, in percentage points; they add up exactly to the change of Pass@1."
    )
    if unstable:
        unstable_counts = [f"{state} ({findings.source.states[state]})" for state in unstable]
        note += (
            f" {UNSTABLE} Unstable: the rate is based on fewer than {STABLE_ITEMS} audit problems: "
            f"{wording.listed(unstable_counts)}. A dash: the state is empty, so the rate is "
            "undefined and the term is 0."
        )
    rows = [ModelRow.from_condition(condition, 0) for condition in findings.conditions.values()]
    return Frame(DECOMPOSITION, rows).table(note)
