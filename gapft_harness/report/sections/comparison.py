"""Conditions and contrasts: Pass@1 on one audit, and the parts of the change by state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from statistics import fmean
from typing import Any

from gapft_harness.analysis.decomposition import STABLE_ITEMS, Decomposition, Terms
from gapft_harness.analysis.pass_at_k import k_label
from gapft_harness.core.records import SOURCE, Budget, State
from gapft_harness.report.figures.contrasts import named, principal
from gapft_harness.report.findings.whole import ConditionFindings, Contrast, Findings
from gapft_harness.report.frame import CI95, Column, Frame
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering import wording
from gapft_harness.report.rendering.blocks import Table
from gapft_harness.report.rendering.wording import UNSTABLE, percent, points, rounded, whole

#: Columns of a CSV file for a difference's parts by state.
TERMS = ("term_S", "term_U", "term_G")


@dataclass(frozen=True, slots=True)
class Model:
    """A row of the tables of conditions.

    Attributes:
        pass_at_1: of its greedy decodes, mean over seeds.
        k: samples that were drawn from the source.
        condition: the condition; None: the source.
        printed: the Pass@1 that a paper prints for it, as text; may be empty.
    """

    pass_at_1: Fraction
    k: int
    condition: ConditionFindings | None = None
    printed: str = ""

    @classmethod
    def of(cls, condition: ConditionFindings, k: int, printed: str = "") -> Model:
        """Create the row of a condition."""
        return cls(condition.mean.pass_at_1, k, condition, printed)

    @property
    def label(self) -> str:
        """The model's name for people; a star marks a condition with its own budget."""
        if self.condition is None:
            return "source, greedy"
        return self.condition.label + ("" if self.condition.matched else " *")


def _trained(*columns: Column[ConditionFindings]) -> Iterator[Column[Model]]:
    """Convert columns of conditions to columns where the source has no value."""
    return (column.of(lambda row: row.condition, missing="") for column in columns)


#: The most seeds whose figures are listed; with more seeds, only the lowest and the highest.
SEEDS_SHOWN = 16


def _each_seed(condition: ConditionFindings) -> str:
    rates = [float(seed.decomposition.pass_at_1) for seed in condition.seeds.values()]
    if len(rates) > SEEDS_SHOWN:
        return " to ".join(f"{100 * end:.1f}" for end in (min(rates), max(rates)))
    return " ".join(f"{100 * rate:.1f}" for rate in rates)


def by_state(terms: Terms) -> Mapping[str, Fraction]:
    """Return the parts of a difference by the source's state (Equation 9)."""
    return {"S": terms.s, "U": terms.u, "G": terms.g}


def _budget(condition: ConditionFindings) -> Budget:
    """Return the budget of the first seed; n, N and J are the same for all seeds."""
    return condition.budgets[0]


_PASS_AT_1 = (
    "share of audit problems whose greedy decode passes, mean over seeds and by seed (Equation 1)"
)
_N_L = "exposures; processed tokens over all exposures, mean over seeds (Equation 7)"
_J = "optimizer steps (Equation 7)"

#: The first columns of conditions and the source; ``BUDGETS`` and ``RATES`` have more.
ACCURACY: tuple[Column[Model], ...] = (
    Column(
        "",
        "the rule of selection; a star: it has its own budget; in parentheses its "
        "[own settings](recipes.md#settings-of-its-own)",
        lambda row: row.label,
        "condition",
    ),
    *_trained(
        Column("condition", "", lambda condition: condition.name),
        Column("matched_budget", "", lambda condition: condition.matched),
    ),
    Column("pass_at_1", _PASS_AT_1, lambda row: row.pass_at_1, "Pass@1", percent),
    *_trained(
        Column(
            "ci95",
            "of the figure to its left; for models over audit problems and seeds",
            lambda condition: condition.interval,
            "95% interval",
            wording.percent_interval,
            names=CI95,
        ),
        Column("", _PASS_AT_1, _each_seed, "each seed"),
        Column("K_eq", "", lambda condition: k_label(condition.k_eq)),
    ),
    Column(
        "",
        "the most source samples, with a verifier, that one decode matches (Appendix, "
        '"Source Pass@K Reached by One Decode")',
        lambda row: "" if row.condition is None else wording.k_eq(row.condition.k_eq, row.k),
        "K_eq",
    ),
)
PRINTED: tuple[Column[Model], ...] = (
    Column(
        "",
        "the Pass@1 or figure that the [paper prints](recipes.md#figures-that-a-paper-prints)",
        lambda row: row.printed,
        "paper",
    ),
)
BUDGETS: tuple[Column[Model], ...] = tuple(
    _trained(
        Column(
            "",
            "examples in the training set (Section 3.3)",
            lambda condition: _budget(condition).n,
            "n",
            whole,
        ),
        Column("", _N_L, lambda condition: _budget(condition).exposures, "N", whole),
        Column(
            "", _N_L, lambda condition: fmean(of.tokens for of in condition.budgets), "L", rounded
        ),
        Column("", _J, lambda condition: _budget(condition).steps, "J", whole),
    )
)


def rate(
    state: State, key: str, title: str, meaning: str, value: Callable[[Decomposition], Any]
) -> Column[Model]:
    """Build the column of the share of a state's problems that changed; marks small states."""
    of_condition: Column[ConditionFindings] = Column(
        key,
        meaning,
        lambda condition: value(condition.mean),
        title,
        percent,
        lambda condition: state in condition.unstable,
    )
    return of_condition.of(lambda row: row.condition)


_CORRECTED = (
    "share of S and of U that is right after training, share of G that is wrong (Equation 8)"
)
_TERMS = "p_S κ_S, p_U κ_U, −p_G ρ_G and their sum, Pass@1 minus the source's (Equation 9)"
_two = partial(points, digits=2)

#: The share of each state that changed, and its contribution to Pass@1.
RATES: tuple[Column[Model], ...] = (
    rate("S", "kappa_S", "κ_S", _CORRECTED, lambda mean: mean.kappa_s),
    rate("U", "kappa_U", "κ_U", _CORRECTED, lambda mean: mean.kappa_u),
    rate("G", "rho_G", "ρ_G", _CORRECTED, lambda mean: mean.rho_g),
    *_trained(
        Column("terms", "", lambda condition: by_state(condition.mean.terms), names=TERMS),
        Column("", _TERMS, lambda condition: condition.mean.terms.s, "S term", _two),
        Column("", _TERMS, lambda condition: condition.mean.terms.u, "U term", _two),
        Column("", _TERMS, lambda condition: condition.mean.terms.g, "G term", _two),
        Column("", _TERMS, lambda condition: condition.mean.terms.total, "change", _two),
    ),
)


#: ``RATES`` without stars, for tables that do not explain them.
DECOMPOSITION = (
    *_trained(Column("", "", lambda condition: condition.label, "condition")),
    *RATES,
)


def models(findings: Findings, k: int, printed: Mapping[str, str] | None = None) -> list[Model]:
    """List the rows of the source and every condition.

    Args:
        findings: of one audit.
        k: samples that were drawn from the source.
        printed: the Pass@1 that a paper prints, by condition, and under ``source``.
    """
    beside = printed or {}
    return [
        Model(findings.source.pass_at_1, k, printed=beside.get(SOURCE, "")),
        *(Model.of(of, k, beside.get(name, "")) for name, of in findings.conditions.items()),
    ]


def contrasts(inputs: ReportInputs, findings: Findings, *, explained: bool = True) -> list[Table]:
    """Build tables of all contrasts; with many conditions, the secondary ones are folded.

    Args:
        inputs: the inputs of the report.
        findings: of one audit.
        explain: whether the note explains the columns; False where an earlier table did.
    """
    own = {SOURCE, *findings.distinct}
    every = [of for of in findings.contrasts if {of.a, of.b} <= own]
    first = principal(findings)
    others = [contrast for contrast in every if contrast not in first]
    statistics = inputs.recipe["statistics"]
    replicates = whole(statistics["replicates"])
    nested = ", with new problems for each seed" * (statistics.get("items") == "nested")
    note = (
        "In percentage points of Pass@1. S, U and G: the parts of each difference on these states "
        f"of the source; they add up to it. Intervals are percentiles of {replicates} "
        "replicates that resample training seeds and audit problems, both jointly for all "
        f"conditions{nested}. p: two-sided, from the same replicates; it is below 0.05 exactly "
        "where the interval excludes zero. Intervals and p are not corrected for the number of "
        f"contrasts ({len(every)})."
    )
    if not explained:
        note = f"Columns: as above. p is not corrected for the number of contrasts ({len(every)})."
    note += findings.remark(every)
    tables = [_table(findings, first, note)]
    if others:
        tables.append(_table(findings, others, "", f"The other {whole(len(others))} contrasts"))
    return tables


def _table(findings: Findings, rows: Sequence[Contrast], note: str, summary: str = "") -> Table:
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
        lambda row: named(*row),
        "contrast",
    ),
    Column("delta", _OF_PASS_AT_1, lambda row: row[1].delta, "difference", points),
    Column(
        "ci95", _OF_PASS_AT_1, lambda row: row[1].interval, "95% interval",
        wording.points_interval, names=CI95,
    ),
    Column("terms", "", lambda row: by_state(row[1].terms), names=TERMS),
    Column("", _PARTS, lambda row: row[1].terms.s, "S", points),
    Column("", _PARTS, lambda row: row[1].terms.u, "U", points),
    Column("", _PARTS, lambda row: row[1].terms.g, "G", points),
    Column(
        "test",
        "",
        lambda row: {"name": "bootstrap", "p": row[1].resampled.p_value},
        names=("test", "p"),
    ),
    Column("", _OF_PASS_AT_1, lambda row: row[1].resampled.p_value, "p", wording.p_value),
)  # fmt: skip


def decomposition(findings: Findings, *, explained: bool = True) -> Table:
    """Build the table of every condition's rates of correction and regression, and their terms."""
    unstable = findings.source.unstable
    note = (
        "κ_S: share of the failures recovered by search that are right after training. κ_U: the "
        "same share of the failures missed by search. ρ_G: share of the problems solved by the "
        "source that are wrong after training. The three terms are these rates times each state's "
        "share of the audit, in percentage points; they add up exactly to the change of Pass@1."
    )
    if not explained:
        note = "Columns: as above."
    if unstable:
        few = [f"{state} ({findings.source.states[state]})" for state in unstable]
        note += (
            f" {UNSTABLE} Unstable: the rate is based on fewer than {STABLE_ITEMS} audit problems: "
            f"{wording.listed(few)}. A dash: the state is empty, so the rate is undefined and the "
            "term is 0."
        )
    rows = [Model.of(condition, 0) for condition in findings.conditions.values()]
    return Frame(DECOMPOSITION, rows).table(note)
