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

from gapft_harness.recipe.recipe import MINUS
from gapft_harness.report.reading.audits import find_deployment, read_verdicts
from gapft_harness.report.rendering.blocks import Text
from gapft_harness.report.rendering.wording import points
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS
from gapft_harness.verdicts.table import Verdicts

#: Counts of problems by state.
_COUNTS = ("solved", "recovered", "missed", "verified")
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
        printed: a count, a rate in percent, or a difference in percentage points.
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
        """Whether it is a count of problems, tokens or steps; else it is in percent."""
        return self.quantity.partition("@")[0] in (*_COUNTS, *BUDGET)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions of the figure, including the source; empty for a search's figure."""
        return () if self.subject in SPLITS else tuple(self.subject.split(MINUS))

    @property
    def is_difference(self) -> bool:
        """Whether it is a difference of two conditions, in percentage points."""
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
        name, _, k = self.quantity.partition("@")
        if self.subject == "pool":
            return f"pool.recovered_by_k.{k}" if name == "recovered" else "pool.states"
        if self.subject == "audit":
            rates = {"greedy": "source.pass_at_1", "pass": f"source.pass_at_k.{k}"}
            return rates.get(name, "source.states")
        if self.is_difference:
            return f"contrasts.*.{self.quantity if self.quantity == 'delta' else 'terms'}"
        return f"conditions.*.{'seeds.*.budget' if self.quantity in BUDGET else self.quantity}"

    @property
    def is_far(self) -> bool:
        """Whether chance does not explain the difference."""
        return self.standard_errors is not None and self.standard_errors > _FAR_ERRORS

    def format_value(self, value: float) -> str:
        """Format a value of this quantity: ``3,190``, ``50.33%``."""
        if self.is_count:
            return f"{value:,.0f}"
        return (
            points(value / 100, self.digits) if self.is_difference else f"{value:.{self.digits}f}%"
        )

    @property
    def label(self) -> str:
        """The figure's name for people: ``pool: recovered within 8 samples``."""
        name, _, k = self.quantity.partition("@")
        within = {"recovered": " within {} sample", "missed": " by {} sample"}
        tail = within.get(name, " with {} sample").format(k) + "s" * (k != "1") if k else ""
        rates = {"pass_at_1": "Pass@1", "kappa_S": "κ_S", "kappa_U": "κ_U", "rho_G": "ρ_G"}
        rates |= {"delta": "Pass@1", **BUDGET, **{state: f"its part on {state}" for state in "SUG"}}
        name_text = {"greedy": "greedy Pass@1", "pass": f"Pass@{k}", **rates}.get(name, name + tail)
        return f"{self.subject}: {name_text}"


def list_published(recipe: Mapping[str, Any]) -> list[PublishedValue]:
    """List the printed figures in a recipe, in order, with reasons for those not comparable."""
    figures = []
    for table, values in recipe.get("paper", {}).items():
        for name, value in values.items():
            split, _, quantity = name.rpartition(".")
            figures.append(
                PublishedValue(
                    table,
                    split,
                    quantity,
                    value,
                    reason=_find_different_setting(recipe, split, quantity),
                )
            )
    return figures


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
    verdicts = read_verdicts(table, k, find_deployment(recipe))
    return [value if value.reason else _measure(value, verdicts) for value in figures]


def _measure(figure: PublishedValue, verdicts: Verdicts) -> PublishedValue:
    """Return a figure with its value in these verdicts, from at most the drawn samples."""
    name, _, k_text = figure.quantity.partition("@")
    k = int(k_text or verdicts.k)
    sizes, n = verdicts.select_samples(0, k).sizes, len(verdicts.passing)
    measured = {
        "solved": sizes["G"],
        "recovered": sizes["S"],
        "missed": sizes["U"],
        "verified": sizes["G"] + sizes["S"],
        "greedy": float(100 * verdicts.pass_at_1),
        "pass": 100 * float(verdicts.compute_pass_at(k)),
    }[name]
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
