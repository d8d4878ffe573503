"""Rules of a gate: margins by task and metric, and what an interval decides about them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gapft_harness.analysis.power import compute_data_factor
from gapft_harness.core.errors import UserError, refuse_unknown
from gapft_harness.recipe.reading import read_recipe

GateVerdict = Literal["PASS", "WARN", "INCONCLUSIVE", "BLOCK"]
#: The exit status of each verdict, the mildest verdict first; 2 is a user's mistake.
EXIT_STATUS: dict[GateVerdict, int] = {"PASS": 0, "WARN": 0, "INCONCLUSIVE": 3, "BLOCK": 1}

_EXPECTED = "expected 0 or more: by how much the model may be worse, e.g. 0.01 for one point"


@dataclass(frozen=True, slots=True)
class GateRule:
    """By how much a model may be worse than before, in the unit of the metric.

    Attributes:
        place: the option, or the policy's file and key, for messages.
        block: the margin of BLOCK and INCONCLUSIVE; None: the rule never blocks.
        warn: the margin of WARN, below ``block``; None: no warning.
        task: the task, or lm_eval's group of tasks; "": all documents.
        metric: the metric; "": the compared one.
        filter: lm_eval's filter; None: the compared one.
    """

    place: str
    block: float | None = None
    warn: float | None = None
    task: str = ""
    metric: str = ""
    filter: str | None = None

    @property
    def margins(self) -> list[float]:
        """The margins of the rule, the smallest first."""
        return [margin for margin in (self.warn, self.block) if margin is not None]


def build_margin_rule(margin: float) -> GateRule:
    """Build the rule of ``--fail-if-worse``: one margin for all documents.

    Raises:
        UserError: the margin is negative or not finite.
    """
    place = f"--fail-if-worse {margin:g}"
    return GateRule(place, block=_check_number(margin, place))


def read_policy(path: Path) -> list[GateRule]:
    """Read a policy: ``overall: MARGIN`` and ``tasks: {TASK: {METRIC: MARGIN}}``.

    A margin is a number, or ``{block: NUMBER, warn: NUMBER}`` with one or both keys. METRIC may end
    with a comma and lm_eval's filter, as in lm_eval's results.

    Raises:
        UserError: the file cannot be read, has no rule, or a key or margin is wrong.
    """
    place = f"policy {path}"
    content = read_recipe(path, "policy")
    refuse_unknown(content, ("overall", "tasks"), place)
    rules = []
    if "overall" in content:
        rules.append(_build_rule(f"{place}: key 'overall'", content["overall"]))
    if "tasks" in content:
        by_task = _require_mapping(
            content["tasks"], f"{place}: key 'tasks'", "TASK: {METRIC: 0.01}"
        )
        for task, by_metric in by_task.items():
            key = f"{place}: key 'tasks.{task}'"
            for name, margins in _require_mapping(by_metric, key, "METRIC: 0.01").items():
                metric, has_filter, filter_name = name.partition(",")
                rules.append(
                    _build_rule(
                        f"{place}: key 'tasks.{task}.{name}'",
                        margins,
                        task=task,
                        metric=metric,
                        filter=filter_name if has_filter else None,
                    )
                )
    if not rules:
        raise UserError(f"{place}: found no margin; expected at least one, e.g. overall: 0.01")
    return rules


def _build_rule(place: str, content: Any, **names: Any) -> GateRule:
    if not isinstance(content, dict):
        return GateRule(place, block=_check_number(content, place), **names)
    refuse_unknown(content, ("block", "warn"), place)
    margins = {key: _check_number(value, f"{place}, {key}") for key, value in content.items()}
    if not margins:
        raise UserError(f"{place}: found no margin; expected 0.01, or {{block: 0.02, warn: 0.01}}")
    if len(margins) == 2 and margins["warn"] >= margins["block"]:
        raise UserError(
            f"{place}: found warn {margins['warn']:g} and block {margins['block']:g}; expected a "
            "smaller margin for warn"
        )
    return GateRule(place, margins.get("block"), margins.get("warn"), **names)


def _check_number(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{place}: found {value!r}; {_EXPECTED}")
    if not 0 <= value <= sys.float_info.max:
        raise UserError(f"{place}: found {value!r}; {_EXPECTED}")
    return float(value)


def _require_mapping(value: Any, place: str, example: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise UserError(f"{place}: found {value!r}; expected {{{example}}}")
    for key in value:
        if not isinstance(key, str):
            raise UserError(f"{place}: found the key {key!r}; expected a name; quote it: '{key}'")
    return value


@dataclass(frozen=True, slots=True)
class Decision:
    """What an interval decides about a rule.

    Attributes:
        verdict: BLOCK if the complete interval is below minus ``block``, INCONCLUSIVE if it
            contains that limit, WARN if it reaches below minus ``warn``, else PASS.
        undecided: the margin of the verdict, if the interval contains it.
        factor: how much more data would decide about that margin; None if no amount would.
    """

    verdict: GateVerdict
    undecided: float | None = None
    factor: float | None = None


def decide(rule: GateRule, difference: float, low: float, high: float) -> Decision:
    """Decide about a rule from a difference and its interval.

    Args:
        rule: the rule.
        difference: after minus before, negated if lower is better.
        low: the lower end of the interval of ``difference``.
        high: the upper end.
    """

    def measure_undecided(margin: float) -> tuple[float, float | None]:
        factor = compute_data_factor(difference + margin, high - low)
        # a skewed interval contains margins that a symmetric one of its width would not
        return margin, None if factor is None else max(factor, 1.0)

    if rule.block is not None and high < -rule.block:
        return Decision("BLOCK")
    if rule.block is not None and low < -rule.block:
        return Decision("INCONCLUSIVE", *measure_undecided(rule.block))
    if rule.warn is not None and high < -rule.warn:
        return Decision("WARN")
    if rule.warn is not None and low < -rule.warn:
        return Decision("WARN", *measure_undecided(rule.warn))
    return Decision("PASS")


def find_worst(verdicts: Sequence[GateVerdict]) -> GateVerdict:
    """Find the verdict of a gate: BLOCK before INCONCLUSIVE before WARN before PASS."""
    severity = list(EXIT_STATUS)
    return max(verdicts, key=severity.index)
