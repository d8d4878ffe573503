"""Would another rule say otherwise? So that a change of form does not pass for accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapft_harness.core.records import STATUSES
from gapft_harness.report.reading.columns import PASS
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Block, Table, Text
from gapft_harness.report.rendering.wording import condition_name, percent, points, whole

TITLE = "Would another rule say otherwise?"
_UNJUDGED = (STATUSES.index("error"), STATUSES.index("timeout"))


@dataclass(frozen=True, slots=True)
class Agreement:
    """One model's responses under both rules; of a condition all seeds together.

    Attributes:
        responses: how many were judged by both; all that follows is of these.
        unjudged: how many were not: an error or time-out of either rule.
        own: right under the run's rule.
        other: right under the other.
        only_own: right under the run's rule alone.
        only_other: right under the other alone.
    """

    responses: int
    unjudged: int
    own: int
    other: int
    only_own: int
    only_other: int

    def share(self, count: int) -> Fraction:
        """A count as a share of the responses."""
        return Fraction(count, self.responses)

    @property
    def disagreement(self) -> Fraction:
        """The share of responses that the rules do not agree on."""
        return self.share(self.only_own + self.only_other)


def agreements(inputs: ReportInputs) -> tuple[Agreement, dict[str, Agreement]]:
    """The source's, and every condition's."""
    found = inputs.other_rule
    assert found is not None
    by_condition = {
        name: _agreement(
            np.concatenate([arm.statuses for arm in inputs.of(name)]),
            np.concatenate([found.arms[arm.arm.name] for arm in inputs.of(name)]),
        )
        for name in inputs.conditions
    }
    return _agreement(inputs.audit.greedy, found.source), by_condition


def _agreement(own_codes: NDArray[np.uint8], other_codes: NDArray[np.uint8]) -> Agreement:
    judged = ~(np.isin(own_codes, _UNJUDGED) | np.isin(other_codes, _UNJUDGED))
    own, other = own_codes[judged] == PASS, other_codes[judged] == PASS
    counts = (judged, ~judged, own, other, own & ~other, other & ~own)
    return Agreement(*(int(of.sum()) for of in counts))


def _untold(inputs: ReportInputs) -> str:
    """Why nothing is told; empty: it is."""
    found = inputs.other_rule
    assert found is not None
    if found.why:
        return found.why
    source, conditions = agreements(inputs)
    if all(of.responses for of in (source, *conditions.values())):
        return ""
    return f"of some model no response was judged by both the run's rule and {found.name}"


def blocks(inputs: ReportInputs, lead: str) -> list[Block]:
    """The section: a table, and a sentence on the lead condition; or a line on why there is none.

    Args:
        inputs: the run, with the other rule.
        lead: the condition that the report is about; empty: none.
    """
    found = inputs.other_rule
    assert found is not None
    if why := _untold(inputs):
        return [Text(f"Not told: {why}.", "note")]
    source, conditions = agreements(inputs)
    rule = named(inputs.task["verifier"], inputs.task.get("verifier_params", {}))
    other = named(found.name, found.params)
    models = {"source, greedy": source, **{condition_name(n): a for n, a in conditions.items()}}
    rows = [
        [
            name,
            percent(of.share(of.own)),
            percent(of.share(of.other)),
            whole(of.only_own),
            whole(of.only_other),
            percent(of.disagreement),
            "" if of is source else points(of.disagreement - source.disagreement),
        ]
        for name, of in models.items()
    ]
    kind = "more" if found.permissive else "fewer"
    note = (
        f"Greedy responses to the audit, of a condition all seeds together. Run's rule: {rule}; "
        f"the other, {other}, takes {kind} forms of answers. Drift: by how many points more of its "
        "responses the rules disagree than of the source's."
    )
    if any(of.unjudged for of in models.values()):
        counts = ", ".join(f"{name} {whole(of.unjudged)}" for name, of in models.items())
        note += f" Left out, as a rule gave an error or ran out of time: {counts}."
    columns = [
        "model", "run's rule", "other rule", "right by the run's alone", "right by the other alone",
        "disagree", "drift (points)",
    ]  # fmt: skip
    return [*_sentence(source, conditions, lead), Table(columns, rows, note=note)]


def _sentence(source: Agreement, conditions: Mapping[str, Agreement], lead: str) -> Iterator[Block]:
    if lead not in conditions:
        return
    of = conditions[lead]
    own = of.share(of.own) - source.share(source.own)
    other = of.share(of.other) - source.share(source.other)
    said = (
        f"{condition_name(lead)} is {points(own)} points from the source under the run's rule, and "
        f"{points(other)} under the other."
    )
    if of.unjudged or source.unjudged:
        yield Text(f"{said} Responses that a rule could not judge are left out of both.")
    elif own == other:
        yield Text(f"{said} The change is the same under both.")
    else:
        yield Text(
            f"{said} The {points(own - other)} points between these two rest on the form of "
            "answers that a rule takes."
        )


def named(name: str, params: Mapping[str, Any]) -> str:
    """A verifier with its parameters."""
    told = ", ".join(f"{key}: {value}" for key, value in params.items())
    return f"{name} ({told})" if told else name


def content(inputs: ReportInputs) -> dict[str, Any]:
    """What results.json says of it."""
    found = inputs.other_rule
    assert found is not None
    if why := _untold(inputs):
        return {"none": why}
    source, conditions = agreements(inputs)

    def told(of: Agreement) -> dict[str, Any]:
        return {
            "run_rule": float(of.share(of.own)),
            "other_rule": float(of.share(of.other)),
            "only_run_rule": of.only_own,
            "only_other_rule": of.only_other,
            "unjudged": of.unjudged,
            "drift": float(of.disagreement - source.disagreement),
        }

    return {
        "verifier": found.name,
        "params": dict(found.params),
        "permissive": found.permissive,
        "source": told(source),
        "conditions": {name: told(of) for name, of in conditions.items()},
    }
