"""Rules of a gate: margins by task and metric, and what an interval decides about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from gapft_harness.analysis.power import compute_data_factor
from gapft_harness.core.errors import UserError
from gapft_harness.recipe.messages import build_recipe_error
from gapft_harness.recipe.reading import read_recipe
from gapft_harness.recipe.sections import RecipeSection

GateVerdict = Literal["PASS", "WARN", "INCONCLUSIVE", "BLOCK"]
#: The exit status of each verdict, the mildest verdict first; 2 is a user's mistake.
EXIT_STATUS: dict[GateVerdict, int] = {"PASS": 0, "WARN": 0, "INCONCLUSIVE": 3, "BLOCK": 1}

Margin = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]


class Margins(RecipeSection):
    """By how much a model may be worse than before, in the unit of the metric.

    A number is the margin ``block``.
    """

    block: Margin | None = Field(None, description="margin of BLOCK and INCONCLUSIVE")
    warn: Margin | None = Field(None, description="margin of WARN, below block")

    @model_validator(mode="before")
    @classmethod
    def _convert_number(cls, value: Any) -> Any:
        return {"block": value} if isinstance(value, int | float) else value

    @model_validator(mode="after")
    def _check_margins(self) -> Margins:
        if self.block is None and self.warn is None:
            raise ValueError("expected a margin, such as 0.01 or {block: 0.02, warn: 0.01}")
        if self.block is not None and self.warn is not None and self.warn >= self.block:
            raise ValueError("expected a smaller margin for warn than for block")
        return self

    def __str__(self) -> str:
        margins = {"block": self.block, "warn": self.warn}
        return ", ".join(
            f"{name} {value:g}" for name, value in margins.items() if value is not None
        )


class Policy(RecipeSection):
    """A policy: margins for all documents, and by task and metric."""

    overall: Margins | None = Field(None, description="margins for all documents")
    tasks: dict[str, dict[str, Margins]] = Field({}, description="TASK: {METRIC: margins}")


@dataclass(frozen=True, slots=True)
class GateRule:
    """Margins for some documents.

    Attributes:
        place: the option, or the policy's file and key, for messages.
        margins: the margins.
        task: the task, or lm_eval's group of tasks; "": all documents.
        metric: the metric; "": the compared one.
        filter: lm_eval's filter; None: the compared one.
    """

    place: str
    margins: Margins
    task: str = ""
    metric: str = ""
    filter: str | None = None


def build_margin_rule(margin: float) -> GateRule:
    """Build the rule of ``--fail-if-worse``: one margin for all documents.

    Raises:
        UserError: the margin is negative or not finite.
    """
    place = f"--fail-if-worse {margin:g}"
    (rule,) = _build_rules({"overall": margin}, place)
    return GateRule(place, rule.margins)


def read_policy(path: Path) -> list[GateRule]:
    """Read a policy: ``overall: MARGIN`` and ``tasks: {TASK: {METRIC: MARGIN}}``.

    METRIC may end with a comma and lm_eval's filter, as in lm_eval's results.

    Raises:
        UserError: the file cannot be read, has no rule, or a key or margin is wrong.
    """
    place = f"policy {path}"
    rules = [*_build_rules(read_recipe(path, "policy"), place)]
    if not rules:
        raise UserError(f"{place}: found no margin; expected at least one, e.g. overall: 0.01")
    return rules


def _build_rules(content: Mapping[str, Any], place: str) -> Iterator[GateRule]:
    try:
        policy = Policy.model_validate(content)
    except ValidationError as error:
        raise build_recipe_error(error, content, Policy, place, {}) from error
    if policy.overall is not None:
        yield GateRule(f"{place}: key 'overall'", policy.overall)
    for task, by_metric in policy.tasks.items():
        for name, margins in by_metric.items():
            metric, comma, filter_name = name.partition(",")
            key = f"{place}: key 'tasks.{task}.{name}'"
            yield GateRule(key, margins, task, metric, filter_name if comma else None)


@dataclass(frozen=True, slots=True)
class Decision:
    """What an interval decides about margins.

    Attributes:
        verdict: BLOCK if the complete interval is below minus ``block``, INCONCLUSIVE if it
            contains that limit, WARN if it reaches below minus ``warn``, else PASS.
        undecided: the margin of the verdict, if the interval contains it.
        factor: how much more data would decide about that margin; None if no amount would.
    """

    verdict: GateVerdict
    undecided: float | None = None
    factor: float | None = None


def decide(margins: Margins, difference: float, low: float, high: float) -> Decision:
    """Decide about margins from a difference and its interval.

    Args:
        margins: the margins.
        difference: after minus before, negated if lower is better.
        low: the lower end of the interval of ``difference``.
        high: the upper end.
    """
    undecided: GateVerdict
    decided: GateVerdict
    for margin, decided, undecided in (
        (margins.block, "BLOCK", "INCONCLUSIVE"),
        (margins.warn, "WARN", "WARN"),
    ):
        if margin is None or low >= -margin:
            continue
        if high < -margin:
            return Decision(decided)
        factor = compute_data_factor(difference + margin, high - low)
        # a skewed interval contains margins that a symmetric one of its width would not
        return Decision(undecided, margin, None if factor is None else max(factor, 1.0))
    return Decision("PASS")


def find_worst(verdicts: Sequence[GateVerdict]) -> GateVerdict:
    """Find the verdict of a gate: BLOCK before INCONCLUSIVE before WARN before PASS."""
    severity = list(EXIT_STATUS)
    return max(verdicts, key=severity.index)
