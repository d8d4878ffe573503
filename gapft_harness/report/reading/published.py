"""Compare a search with the values that a paper prints, as given in the recipe.

A wrong prompt, template or rule changes the source's results, so a finished search is compared with
the paper before anything is trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from gapft_harness.analysis.pass_at_k import format_k
from gapft_harness.outcomes.verdicts import Verdicts
from gapft_harness.recipe.recipe import MINUS
from gapft_harness.report.reading.audits import read_verdicts
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import SPLITS

#: The sentence on a source that differs from the paper's.
DIFFERENT_SOURCE = (
    "the source differs from the paper's source by more than chance explains, so its prompt, chat "
    "template, start tokens, rule, data or weights are different, and later results are not "
    'comparable (docs/paper.md, "Printed numbers")'
)
#: Standard errors of a share beyond which chance does not explain a difference.
_FAR_ERRORS = 2


class QuantityDefinition(NamedTuple):
    """A quantity that a paper prints.

    Attributes:
        table: the table of results.json with this run's value.
        column: its column there; ``_low`` or ``_high`` after an estimate's column selects an end of
            its interval.
        title: its name for people.
        is_count: whether it is a count of problems, samples, tokens or steps; else it is in
            percent.
    """

    table: str
    column: str
    title: str
    is_count: bool = False


_QUANTITIES = {
    "solved": QuantityDefinition("states", "problems", "solved", True),
    "recovered": QuantityDefinition("recovered", "problems", "recovered", True),
    "missed": QuantityDefinition("states", "problems", "missed", True),
    "verified": QuantityDefinition("states", "problems", "verified", True),
    "G_of_GU": QuantityDefinition("states", "problems", "share of G in G and U"),
    "greedy": QuantityDefinition("curve", "rate", "greedy Pass@1"),
    "pass": QuantityDefinition("curve", "rate", "Pass@k"),
    "pass_at_1": QuantityDefinition("conditions", "pass_at_1", "Pass@1"),
    "k_eq": QuantityDefinition("conditions", "K_eq", "K_eq", True),
    "kappa_S": QuantityDefinition("decomposition", "kappa_S", "κ_S"),
    "kappa_U": QuantityDefinition("decomposition", "kappa_U", "κ_U"),
    "rho_G": QuantityDefinition("decomposition", "rho_G", "ρ_G"),
    "n": QuantityDefinition("seeds", "slots", "slots n", True),
    "exposures": QuantityDefinition("seeds", "exposures", "exposures N", True),
    "tokens": QuantityDefinition("seeds", "tokens", "processed tokens L", True),
    "supervised_tokens": QuantityDefinition(
        "seeds", "supervised_tokens", "supervised tokens", True
    ),
    "steps": QuantityDefinition("seeds", "steps", "updates J", True),
    "delta": QuantityDefinition("contrasts", "delta", "Pass@1"),
    "ci95_low": QuantityDefinition("contrasts", "delta_low", "Pass@1, 95% interval from"),
    "ci95_high": QuantityDefinition("contrasts", "delta_high", "Pass@1, 95% interval to"),
    "S": QuantityDefinition("contrasts", "term_S", "its part on S"),
    "U": QuantityDefinition("contrasts", "term_U", "its part on U"),
    "G": QuantityDefinition("contrasts", "term_G", "its part on G"),
    "changed": QuantityDefinition("replicates", "changed", "changed decisions", True),
    "invalid": QuantityDefinition("other_rule", "invalid_share", "invalid responses"),
    "other_rule_pass_at_1": QuantityDefinition(
        "other_rule", "other_rule", "Pass@1 by the other rule"
    ),
    "other_rule_delta": QuantityDefinition(
        "other_rule_contrasts", "other_rule", "Pass@1 by the other rule"
    ),
    "other_rule_ci95_low": QuantityDefinition(
        "other_rule_contrasts", "other_rule_low", "Pass@1 by the other rule, 95% interval from"
    ),
    "other_rule_ci95_high": QuantityDefinition(
        "other_rule_contrasts", "other_rule_high", "Pass@1 by the other rule, 95% interval to"
    ),
    "net_gain": QuantityDefinition("scope", "net_gain", "net gain"),
    "null_S": QuantityDefinition("scope", "null_S", "null κ_S"),
    "null_U": QuantityDefinition("scope", "null_U", "null κ_U"),
    "flat_solved_share": QuantityDefinition(
        "online", "flat_solved_share", "share of G in flat groups"
    ),
}


@dataclass(frozen=True, slots=True)
class PublishedValue:
    """One value that a paper prints, with this run's value.

    Attributes:
        table: the paper's table.
        subject: ``pool``, ``audit``, a condition's name, or two as in ``gapft minus uniform``.
        quantity: the quantity as in the recipe, such as ``recovered@8`` or ``kappa_S``.
        printed: a count, a rate in percent, or a difference in percentage points; a K_eq below 1
            is 0.
        measured: this run's value; None: unknown, or not drawn.
        n: the number of problems behind a share; 0 where chance is not tested.
        reason: the setting that makes the two not comparable; empty: comparable.
    """

    table: str
    subject: str
    quantity: str
    printed: float
    measured: float | None = None
    n: int = 0
    reason: str = ""

    @property
    def quantity_name(self) -> str:
        """The quantity without K."""
        return self.quantity.partition("@")[0]

    @property
    def k(self) -> str:
        """The K of the quantity; empty: none."""
        return self.quantity.partition("@")[2]

    @property
    def definition(self) -> QuantityDefinition:
        """The quantity's place in the results, and its name for people."""
        definition = _QUANTITIES[self.quantity_name]
        is_scope = bool(self.k) and self.subject not in SPLITS
        return definition._replace(table="scope") if is_scope else definition

    @property
    def is_count(self) -> bool:
        """Whether it is a count; else it is in percent or points."""
        return self.definition.is_count

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions that it is about, including the source; empty for a search."""
        return () if self.subject in SPLITS else tuple(self.subject.split(MINUS))

    @property
    def is_difference(self) -> bool:
        """Whether it is about a difference of two conditions."""
        return len(self.conditions) > 1

    @property
    def digits(self) -> int:
        """The decimals of the recipe's number, at least one; YAML drops trailing zeros."""
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
    def is_far(self) -> bool:
        """Whether chance does not explain the difference."""
        return self.standard_errors is not None and self.standard_errors > _FAR_ERRORS

    def format_value(self, value: float) -> str:
        """Format a value of this quantity: ``3,190``, ``50.33%``."""
        if self.quantity_name == "k_eq":
            return format_k(round(value))
        if self.is_count:
            return f"{value:,.0f}"
        if self.is_difference or self.quantity_name == "net_gain":
            return self.format_difference(value)
        return f"{value:.{self.digits}f}%"

    def format_difference(self, value: float) -> str:
        """Format a difference of two values, signed: ``+1,204``, ``−0.13``."""
        text = f"{value:+,.{0 if self.is_count else self.digits}f}"
        is_zero = not any(digit in text for digit in "123456789")
        return text[1:] if is_zero else text.replace("-", "\N{MINUS SIGN}")

    @property
    def label(self) -> str:
        """Its name for people: ``pool: recovered, K = 8``."""
        return f"{self.subject}: {self.definition.title}{f', K = {self.k}' if self.k else ''}"


def parse_published(tables: Mapping[str, Mapping[str, float]]) -> list[PublishedValue]:
    """List the printed values of a section ``paper``, in order."""
    values = []
    for table, printed_values in tables.items():
        for name, printed in printed_values.items():
            subject, _, quantity = name.rpartition(".")
            values.append(PublishedValue(table, subject, quantity, printed))
    return values


def list_published(recipe: Mapping[str, Any]) -> list[PublishedValue]:
    """List the printed values in a recipe, in order, with reasons for those not comparable."""
    return [
        replace(published, reason=_find_different_setting(recipe, published))
        for published in parse_published(recipe.get("paper", {}))
    ]


def format_printed(recipe: Mapping[str, Any], quantity: str) -> dict[str, str]:
    """Format the printed values of a quantity by their subject."""
    return {
        published.subject: published.format_value(published.printed)
        for published in parse_published(recipe.get("paper", {}))
        if published.quantity == quantity
    }


def _find_different_setting(recipe: Mapping[str, Any], published: PublishedValue) -> str:
    """Find the setting by which the problems or samples differ from the paper's.

    A value of conditions depends on both splits. The paper does not say where its calibration
    problems come from; its counts are those of the whole pool.
    """
    calibration = recipe["experiments"].get("scaling", {}).get("calibration")
    k = recipe["search"]["k"]
    for split in SPLITS if published.conditions else (published.subject,):
        if recipe["data"].get(f"{split}_limit"):
            return f"data.{split}_limit selects other problems"
    if published.subject == "pool" and isinstance(calibration, int):
        return f"experiments.scaling.calibration: {calibration} selects other problems"
    return f"search.k is {k}" if published.k and int(published.k) > k else ""


def measure_search(run_path: Path, recipe: Mapping[str, Any], split: str) -> list[PublishedValue]:
    """Return a split's printed values with those of its search."""
    values = [published for published in list_published(recipe) if published.subject == split]
    if all(published.reason for published in values):
        return values
    verdicts = read_verdicts(run_path / layout.responses_path(split), recipe["search"]["k"])
    return [
        published if published.reason else _measure(published, verdicts) for published in values
    ]


def _measure(published: PublishedValue, verdicts: Verdicts) -> PublishedValue:
    """Add the value in these verdicts, from at most the drawn samples."""
    k = int(published.k or verdicts.k)
    sizes = verdicts.select_samples(0, k).sizes
    n = len(verdicts.passing)
    if published.quantity_name == "G_of_GU":
        n = sizes["G"] + sizes["U"]
        measured_share = 100 * sizes["G"] / n if n else None
        return replace(published, measured=measured_share, n=n)
    measured = {
        "solved": sizes["G"],
        "recovered": sizes["S"],
        "missed": sizes["U"],
        "verified": sizes["G"] + sizes["S"],
        "greedy": float(100 * verdicts.pass_at_1),
        "pass": 100 * float(verdicts.compute_pass_at(k)),
    }[published.quantity_name]
    return replace(published, measured=float(measured), n=n)


def describe_differences(values: Sequence[PublishedValue]) -> Iterator[str]:
    """Yield a line for each value, and a warning where one is far off."""
    yield from (f"{published.label}: {_describe_difference(published)}" for published in values)
    if any(published.is_far for published in values):
        yield f"warning: {DIFFERENT_SOURCE}"


def _describe_difference(published: PublishedValue) -> str:
    printed = published.format_value(published.printed)
    in_paper = f"{printed} in the paper ({published.table})"
    if published.measured is None:
        why = f", {published.reason}" if published.reason else ""
        return f"{in_paper}; not comparable with this run{why}"
    measured = published.format_value(published.measured)
    errors = published.standard_errors
    off = f"; OFF by {errors:.1f} standard errors" if published.is_far else ""
    return f"{measured} in this run, {in_paper}{off}"
