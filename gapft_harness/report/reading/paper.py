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
from gapft_harness.report.reading.audits import read_verdicts
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
_FAR = 2


@dataclass(frozen=True, slots=True)
class Figure:
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

    where: str
    of: str
    what: str
    printed: float
    here: float | None = None
    n: int = 0
    why: str = ""

    @property
    def is_count(self) -> bool:
        """Whether it is a count of problems, tokens or steps; else it is in percent."""
        return self.what.partition("@")[0] in (*_COUNTS, *BUDGET)

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions of the figure, including the source; empty for a search's figure."""
        return () if self.of in SPLITS else tuple(self.of.split(MINUS))

    @property
    def is_difference(self) -> bool:
        """Whether it is a difference of two conditions, in percentage points."""
        return len(self.conditions) > 1

    @property
    def digits(self) -> int:
        """The number of printed decimals, at least one."""
        return max(1, len(f"{self.printed}".partition(".")[2]))

    @property
    def apart(self) -> float | None:
        """The run's distance in standard errors of a share; None: chance is not tested.

        Searches of the same model with the same prompt on the same problems differ by less than
        this error, so a distance above ``_FAR_ERRORS`` means a different source.
        """
        if self.here is None or not self.n:
            return None
        whole = self.n if self.is_count else 100
        share = min(max(self.printed / whole, 1 / self.n), 1 - 1 / self.n)
        error = whole * math.sqrt(share * (1 - share) / self.n)
        return abs(self.here - self.printed) / error

    @property
    def result(self) -> str:
        """The key of results.json with the run's value; ``*`` stands for a condition or seed."""
        name, _, k = self.what.partition("@")
        if self.of == "pool":
            return f"pool.recovered_by_k.{k}" if name == "recovered" else "pool.states"
        if self.of == "audit":
            rates = {"greedy": "source.pass_at_1", "pass": f"source.pass_at_k.{k}"}
            return rates.get(name, "source.states")
        if self.is_difference:
            return f"contrasts.*.{self.what if self.what == 'delta' else 'terms'}"
        return f"conditions.*.{'seeds.*.budget' if self.what in BUDGET else self.what}"

    @property
    def is_far(self) -> bool:
        """Whether chance does not explain the difference."""
        return self.apart is not None and self.apart > _FAR

    def shown(self, value: float) -> str:
        """Format a value of this quantity: ``3,190``, ``50.33%``."""
        if self.is_count:
            return f"{value:,.0f}"
        return (
            points(value / 100, self.digits) if self.is_difference else f"{value:.{self.digits}f}%"
        )

    @property
    def label(self) -> str:
        """The figure's name for people: ``pool: recovered within 8 samples``."""
        name, _, k = self.what.partition("@")
        within = {"recovered": " within {} sample", "missed": " by {} sample"}
        tail = within.get(name, " with {} sample").format(k) + "s" * (k != "1") if k else ""
        rates = {"pass_at_1": "Pass@1", "kappa_S": "κ_S", "kappa_U": "κ_U", "rho_G": "ρ_G"}
        rates |= {"delta": "Pass@1", **BUDGET, **{state: f"its part on {state}" for state in "SUG"}}
        said = {"greedy": "greedy Pass@1", "pass": f"Pass@{k}", **rates}.get(name, name + tail)
        return f"{self.of}: {said}"


def printed(recipe: Mapping[str, Any]) -> list[Figure]:
    """List the printed figures in a recipe, in order, with reasons for those not comparable."""
    figures = []
    for where, values in recipe.get("paper", {}).items():
        for name, value in values.items():
            split, _, what = name.rpartition(".")
            figures.append(Figure(where, split, what, value, why=_apart(recipe, split, what)))
    return figures


def _apart(recipe: Mapping[str, Any], split: str, what: str) -> str:
    """Find the setting by which a split's problems or samples differ from the paper's."""
    calibration = recipe["experiments"].get("scaling", {}).get("calibration")
    k, at = recipe["search"]["k"], what.partition("@")[2]
    if recipe["data"].get(f"{split}_limit"):
        return f"data.{split}_limit selects other problems"
    if split == "pool" and isinstance(calibration, int):
        return f"experiments.scaling.calibration: {calibration} selects other problems"
    return f"search.k is {k}" if at and int(at) > k else ""


def searched(run_path: Path, recipe: Mapping[str, Any], split: str) -> list[Figure]:
    """Return a split's printed figures with the values of its sealed search."""
    asked = [figure for figure in printed(recipe) if figure.of == split]
    if all(figure.why for figure in asked):
        return asked
    verdicts = read_verdicts(run_path / layout.responses(split), recipe["search"]["k"])
    return [of if of.why else _held(of, verdicts) for of in asked]


def _held(figure: Figure, verdicts: Verdicts) -> Figure:
    """Return a figure with its value in these verdicts, from at most the drawn samples."""
    name, _, at = figure.what.partition("@")
    k = int(at or verdicts.k)
    sizes, n = verdicts.window(0, k).sizes, len(verdicts.greedy)
    here = {
        "solved": sizes["G"],
        "recovered": sizes["S"],
        "missed": sizes["U"],
        "verified": sizes["G"] + sizes["S"],
        "greedy": 100 * sizes["G"] / n,
        "pass": 100 * float(verdicts.pass_at(k)),
    }[name]
    return replace(figure, here=float(here), n=n)


def told(figures: list[Figure]) -> list[Text]:
    """Return a line for each figure, and a warning where a figure is far off."""
    lines = [Text(f"{of.label}: {_beside(of)}") for of in figures]
    if any(of.is_far for of in figures):
        lines.append(
            Text(
                "the source differs from the paper's source by more than chance explains. Check "
                "prompt, chat template, start tokens, rule, data and weights before you train "
                '(docs/recipes.md, "Figures that a paper prints")',
                "warning",
            )
        )
    return lines


def _beside(of: Figure) -> str:
    if of.here is None:
        why = f", {of.why}" if of.why else ""
        return (
            f"{of.shown(of.printed)} in the paper ({of.where}); not comparable with this run{why}"
        )
    off = f"; OFF by {of.apart:.1f} standard errors" if of.is_far else ""
    return f"{of.shown(of.here)} in this run, {of.shown(of.printed)} in the paper ({of.where}){off}"
