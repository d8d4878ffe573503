"""Compare a search's figures with those that a paper prints, as given in the recipe.

A wrong prompt, template or rule changes the source's figures, so a finished search is compared with
the paper before anything is trained.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gapft_harness.analysis.pass_at_k import format_k
from gapft_harness.core.records import SOURCE
from gapft_harness.outcomes.verdicts import Verdicts
from gapft_harness.recipe.recipe import MINUS
from gapft_harness.report.reading.audits import read_verdicts
from gapft_harness.report.rendering.blocks import Text
from gapft_harness.report.rendering.wording import points
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS

#: Counts of problems by state.
_COUNTS = ("solved", "recovered", "missed", "verified")
#: Counts of a condition: samples that one decode is worth, and decisions that a retraining changes.
_OTHER_COUNTS = ("k_eq", "changed")
#: Figures that the matrix of the experiment ``scope`` has at each K.
SCOPE = ("kappa_S", "kappa_U", "rho_G", "net_gain", "null_S", "null_U")
#: The beginning of a figure under the other rule of the verifier, such as its permissive one.
OTHER_RULE = "other_rule_"
#: A condition's budget (Equation 7) by the keys of the manifest.
BUDGET = {
    "n": "slots n",
    "exposures": "exposures N",
    "tokens": "processed tokens L",
    "supervised_tokens": "supervised tokens",
    "steps": "updates J",
}

#: Standard errors of a share beyond which chance does not explain a difference.
_FAR_ERRORS = 2


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """One figure that a paper prints, with this run's value.

    Attributes:
        table: the paper's table.
        subject: ``pool``, ``audit``, a condition's name, or two as in ``gapft minus uniform``.
        quantity: the quantity as in the recipe, such as ``recovered@8`` or ``kappa_S``.
        printed: a count, a rate in percent, or a difference in percentage points; a K_eq below 1
            is 0.
        measured: this run's value; None: unknown, or not drawn.
        n: the number of problems behind a share; 0 where chance is not tested.
        reason: the setting that makes the figure not comparable; empty: comparable.
    """

    table: str
    subject: str
    quantity: str
    printed: float
    measured: float | None = None
    n: int = 0
    reason: str = ""

    @property
    def is_count(self) -> bool:
        """Whether it is a count of problems, samples, tokens or steps; else it is in percent."""
        return self.name in (*_COUNTS, *BUDGET, *_OTHER_COUNTS)

    @property
    def name(self) -> str:
        """The quantity without K."""
        return self.quantity.partition("@")[0]

    @property
    def k(self) -> str:
        """The K of the quantity; empty: none."""
        return self.quantity.partition("@")[2]

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions of the figure, including the source; empty for a search's figure."""
        return () if self.subject in SPLITS else tuple(self.subject.split(MINUS))

    @property
    def is_difference(self) -> bool:
        """Whether it is about a difference of two conditions."""
        return len(self.conditions) > 1

    @property
    def digits(self) -> int:
        """The number of printed decimals, at least one."""
        return max(1, len(f"{self.printed}".partition(".")[2]))

    @property
    def standard_errors(self) -> float | None:
        """The run's distance in standard errors of a share; None: chance is not tested.

        Searches of the same model with the same prompt on the same problems differ by less than
        this error, so a distance above ``_FAR_ERRORS`` means a different source.
        """
        if self.measured is None or not self.n:
            return None
        whole = self.n if self.is_count else 100
        share = min(max(self.printed / whole, 1 / self.n), 1 - 1 / self.n)
        error = whole * math.sqrt(share * (1 - share) / self.n)
        return abs(self.measured - self.printed) / error

    @property
    def results_key(self) -> str:
        """The key of results.json with the run's value; ``*`` stands for a condition or seed."""
        name = self.name
        if self.subject == "pool":
            return f"pool.recovered_by_k.{self.k}" if name == "recovered" else "pool.states"
        if self.subject == "audit":
            rates = {"greedy": "source.pass_at_1", "pass": f"source.pass_at_k.{self.k}"}
            return rates.get(name, "source.states")
        if self.k:
            return f"scope.lines.*.{name}"
        keys = {
            "changed": "replicates.*.changed",
            "k_eq": "conditions.*.K_eq",
            "flat_solved_share": "online.drawn.*.flat_solved_share",
            "invalid": "verifier_audit.conditions.*.invalid",
            "delta": "contrasts.*.delta",
            "other_rule_delta": "verifier_audit.contrasts.*.other_rule",
            **dict.fromkeys(("ci95_low", "ci95_high"), "contrasts.*.ci95"),
            **dict.fromkeys(
                ("other_rule_ci95_low", "other_rule_ci95_high"),
                "verifier_audit.contrasts.*.other_rule_ci95",
            ),
            **dict.fromkeys("SUG", "contrasts.*.terms"),
            **dict.fromkeys(BUDGET, "conditions.*.seeds.*.budget"),
        }
        if name == "other_rule_pass_at_1":
            model = "source" if self.subject == SOURCE else "conditions.*"
            return f"verifier_audit.{model}.other_rule"
        return keys.get(name, f"conditions.*.{name}")

    @property
    def is_far(self) -> bool:
        """Whether chance does not explain the difference."""
        return self.standard_errors is not None and self.standard_errors > _FAR_ERRORS

    def format_value(self, value: float) -> str:
        """Format a value of this quantity: ``3,190``, ``50.33%``."""
        if self.name == "k_eq":
            return format_k(round(value))
        if self.is_count:
            return f"{value:,.0f}"
        if self.is_difference or self.name == "net_gain":
            return points(value / 100, self.digits)
        return f"{value:.{self.digits}f}%"

    @property
    def label(self) -> str:
        """The figure's name for people: ``pool: recovered within 8 samples``."""
        name, k = self.name.removeprefix(OTHER_RULE), self.k
        if name in ("greedy", "pass"):
            return f"{self.subject}: {'greedy Pass@1' if name == 'greedy' else f'Pass@{k}'}"
        if name in SCOPE:
            tail = f" at K = {k}" if k else ""
        else:
            within = {"recovered": " within {} sample", "missed": " by {} sample"}
            tail = within.get(name, " with {} sample").format(k) + "s" * (k != "1") if k else ""
        rule = " by the other rule" if self.name.startswith(OTHER_RULE) else ""
        return f"{self.subject}: {_NAMES.get(name, name)}{tail}{rule}"


#: Names of quantities for people, if they differ from their names in the recipe.
_NAMES = {
    "pass_at_1": "Pass@1",
    "kappa_S": "κ_S",
    "kappa_U": "κ_U",
    "rho_G": "ρ_G",
    "net_gain": "net gain",
    "null_S": "null κ_S",
    "null_U": "null κ_U",
    "k_eq": "K_eq",
    "G_of_GU": "share of G in G and U",
    "invalid": "invalid responses",
    "flat_solved_share": "share of G in flat groups",
    "changed": "changed decisions",
    "delta": "Pass@1",
    "ci95_low": "Pass@1, 95% interval from",
    "ci95_high": "Pass@1, 95% interval to",
    **BUDGET,
    **{state: f"its part on {state}" for state in "SUG"},
}


def parse_published(tables: Mapping[str, Mapping[str, float]]) -> list[PublishedValue]:
    """List the printed figures of a section ``paper``, in order."""
    figures = []
    for table, values in tables.items():
        for name, value in values.items():
            subject, _, quantity = name.rpartition(".")
            figures.append(PublishedValue(table, subject, quantity, value))
    return figures


def list_published(recipe: Mapping[str, Any]) -> list[PublishedValue]:
    """List the printed figures in a recipe, in order, with reasons for those not comparable."""
    return [
        replace(figure, reason=_find_different_setting(recipe, figure.subject, figure.quantity))
        for figure in parse_published(recipe.get("paper", {}))
    ]


def _find_different_setting(recipe: Mapping[str, Any], split: str, quantity: str) -> str:
    """Find the setting by which a split's problems or samples differ from the paper's."""
    calibration = recipe["experiments"].get("scaling", {}).get("calibration")
    k, k_text = recipe["search"]["k"], quantity.partition("@")[2]
    if recipe["data"].get(f"{split}_limit"):
        return f"data.{split}_limit selects other problems"
    if split == "pool" and isinstance(calibration, int):
        return f"experiments.scaling.calibration: {calibration} selects other problems"
    return f"search.k is {k}" if k_text and int(k_text) > k else ""


def measure_search(run_path: Path, recipe: Mapping[str, Any], split: str) -> list[PublishedValue]:
    """Return a split's printed figures with the values of its sealed search."""
    figures = [figure for figure in list_published(recipe) if figure.subject == split]
    if all(figure.reason for figure in figures):
        return figures
    table, k = run_path / layout.responses_path(split), recipe["search"]["k"]
    verdicts = read_verdicts(table, k)
    return [value if value.reason else _measure(value, verdicts) for value in figures]


def _measure(figure: PublishedValue, verdicts: Verdicts) -> PublishedValue:
    """Return a figure with its value in these verdicts, from at most the drawn samples."""
    k = int(figure.k or verdicts.k)
    sizes, n = verdicts.select_samples(0, k).sizes, len(verdicts.passing)
    if figure.name == "G_of_GU":
        n = sizes["G"] + sizes["U"]
        measured_share = 100 * sizes["G"] / n if n else None
        return replace(figure, measured=measured_share, n=n)
    measured = {
        "solved": sizes["G"],
        "recovered": sizes["S"],
        "missed": sizes["U"],
        "verified": sizes["G"] + sizes["S"],
        "greedy": float(100 * verdicts.pass_at_1),
        "pass": 100 * float(verdicts.compute_pass_at(k)),
    }[figure.name]
    return replace(figure, measured=float(measured), n=n)


def describe_differences(figures: list[PublishedValue]) -> list[Text]:
    """Return a line for each figure, and a warning where a figure is far off."""
    lines = [Text(f"{figure.label}: {_describe_difference(figure)}") for figure in figures]
    if any(figure.is_far for figure in figures):
        lines.append(
            Text(
                "the source differs from the paper's source by more than chance explains. Check "
                "prompt, chat template, start tokens, rule, data and weights before you train "
                '(docs/recipes.md, "Figures that a paper prints")',
                "warning",
            )
        )
    return lines


def _describe_difference(figure: PublishedValue) -> str:
    in_paper = f"{figure.format_value(figure.printed)} in the paper ({figure.table})"
    if figure.measured is None:
        why = f", {figure.reason}" if figure.reason else ""
        return f"{in_paper}; not comparable with this run{why}"
    off = f"; OFF by {figure.standard_errors:.1f} standard errors" if figure.is_far else ""
    return f"{figure.format_value(figure.measured)} in this run, {in_paper}{off}"
