"""Would another rule say otherwise? So that a change of form does not pass for accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from gapft_harness.core.records import SOURCE, STATUSES
from gapft_harness.report.figures.contrasts import named as contrast_name
from gapft_harness.report.figures.contrasts import principal
from gapft_harness.report.findings.whole import Contrast, Findings, compute
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.audits import OPENS_RIGHT, VALID, OtherRule
from gapft_harness.report.reading.columns import PASS
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Block, Text
from gapft_harness.report.rendering.wording import (
    condition_name,
    percent,
    points,
    points_interval,
    whole,
)

TITLE = "Would another rule say otherwise?"
_UNJUDGED = (STATUSES.index("error"), STATUSES.index("timeout"))


@dataclass(frozen=True, slots=True)
class Agreement:
    """One model's greedy responses under both rules; of a condition all seeds together.

    Attributes:
        name: the condition; empty: the source.
        invalid: responses in which the run's rule reads no answer; None: its verifier gives none.
        right: those of them that open with the right one; None: it does not say.
        responses: how many were judged by both; the last four are of these.
        unjudged: how many were not: an error or time-out of either rule.
        own: right under the run's rule.
        other: right under the other.
        only_own: right under the run's rule alone.
        only_other: right under the other alone.
    """

    name: str
    invalid: int | None
    right: int | None
    responses: int
    unjudged: int
    own: int
    other: int
    only_own: int
    only_other: int

    @property
    def all(self) -> int:
        """Responses, judged or not."""
        return self.responses + self.unjudged

    @property
    def label(self) -> str:
        """Its name for people."""
        return condition_name(self.name) if self.name else "source, greedy"

    def share(self, count: int) -> Fraction:
        """A count as a share of the responses."""
        return Fraction(count, self.responses)

    @property
    def disagreement(self) -> Fraction:
        """The share of responses that the rules do not agree on."""
        return self.share(self.only_own + self.only_other)


def agreements(inputs: ReportInputs, rule: OtherRule) -> list[Agreement]:
    """The source's, and every condition's."""
    found = []
    for name in ("", *inputs.conditions):
        arms = inputs.of(name)
        names = [of.arm.name for of in arms] if name else [""]
        own_codes = np.concatenate([of.statuses for of in arms] if name else [inputs.audit.greedy])
        other_codes = np.concatenate([rule.arms[of] for of in names] if name else [rule.source])
        judged = ~(np.isin(own_codes, _UNJUDGED) | np.isin(other_codes, _UNJUDGED))
        own, other = own_codes[judged] == PASS, other_codes[judged] == PASS
        counts = (judged, ~judged, own, other, own & ~other, other & ~own)
        read = [np.concatenate([rule.read[of] for of in names])] if rule.read else []
        invalid = next((int((of != VALID).sum()) for of in read), None)
        right = sum(int((of == OPENS_RIGHT).sum()) for of in read) if rule.opens and read else None
        found.append(Agreement(name, invalid, right, *(int(of.sum()) for of in counts)))
    return found


_MODEL = "whose responses; which difference"
_RULES = (
    "share right by the run's verifier and by "
    "[the other](report.md#would-another-rule-say-otherwise), or the difference of two"
)
_DISAGREE = "responses on which they differ, and their share"
#: A model, and the source.
AGREEMENT: tuple[Column[tuple[Agreement, Agreement]], ...] = (
    Column("", _MODEL, lambda row: row[0].label, "model"),
    Column("run_rule", _RULES, lambda row: row[0].share(row[0].own), "run's rule", percent),
    Column("other_rule", _RULES, lambda row: row[0].share(row[0].other), "other rule", percent),
    Column(
        "only_run_rule", _DISAGREE, lambda row: row[0].only_own, "right by the run's alone", whole
    ),
    Column(
        "only_other_rule",
        _DISAGREE,
        lambda row: row[0].only_other,
        "right by the other alone",
        whole,
    ),
    Column("unjudged", "", lambda row: row[0].unjudged),
    Column("", _DISAGREE, lambda row: row[0].disagreement, "disagree", percent),
    Column("drift", "", lambda row: row[0].disagreement - row[1].disagreement),
    Column(
        "",
        "this share minus the source's",
        lambda row: points(row[0].disagreement - row[1].disagreement) if row[0].name else "",
        "drift (points)",
    ),
)
_OF_RESPONSES = "greedy responses, those without an answer by the run's rule"
_OPEN = "invalid ones that do, and their share"


def _opening(row: tuple[Agreement, Agreement]) -> Fraction | None:
    right, invalid = row[0].right, row[0].invalid
    return Fraction(right, invalid) if right is not None and invalid else None


INVALID: tuple[Column[tuple[Agreement, Agreement]], ...] = (
    Column("", _MODEL, lambda row: row[0].label, "model"),
    Column("", _OF_RESPONSES, lambda row: row[0].all, "responses", whole),
    Column("invalid", _OF_RESPONSES, lambda row: row[0].invalid, "invalid", whole),
    Column(
        "", _OF_RESPONSES, lambda row: Fraction(row[0].invalid or 0, row[0].all), "share", percent
    ),
    Column(
        "invalid_opening_right",
        _OPEN,
        lambda row: row[0].right,
        "open with the right letter",
        whole,
    ),
    Column("", _OPEN, _opening, "of the invalid", percent),
)
#: A contrast, of the findings that name it, and the same under the other rule.
CONTRASTS: tuple[Column[tuple[Findings, Contrast, Contrast]], ...] = (
    Column("a", "", lambda row: row[1].a),
    Column("b", "", lambda row: row[1].b),
    Column("", _MODEL, lambda row: contrast_name(row[0], row[1]), "contrast"),
    Column("run_rule", _RULES, lambda row: row[1].delta, "run's rule", points),
    Column("", _MODEL, lambda row: row[1].interval, "95% interval", points_interval),
    Column("other_rule", _RULES, lambda row: row[2].delta, "other rule", points),
    Column("other_rule_ci95", _MODEL, lambda row: row[2].interval, "95% interval", points_interval),
)


def under_both(
    inputs: ReportInputs, findings: Findings, rule: OtherRule
) -> list[tuple[Findings, Contrast, Contrast]]:
    """Every contrast under both rules, from the same replicates: the same seeds and problems."""
    arms = tuple(replace(of, statuses=rule.arms[of.arm.name]) for of in inputs.arms)
    audit = replace(inputs.audit, greedy=rule.source)
    ordered = [of.a for of in findings.contrasts if of.b == SOURCE]
    other = compute(replace(inputs, audit=audit, arms=arms, parts=(), further=()), ordered)
    both = zip(findings.contrasts, other.contrasts, strict=True)
    return [(findings, was, now) for was, now in both]


def _untold(rule: OtherRule, models: Sequence[Agreement]) -> str:
    """Why nothing is told; empty: it is."""
    if all(of.responses for of in models):
        return ""
    return f"of some model no response was judged by both the run's rule and {rule.name}"


def blocks(inputs: ReportInputs, findings: Findings, rule: OtherRule) -> list[Block]:
    """The section: tables, and a sentence on the lead condition; or a line on why there is none."""
    models = [] if rule.why else agreements(inputs, rule)
    if why := rule.why or _untold(rule, models):
        return [Text(f"Not told: {why}.", "note")]
    own = named(inputs.task["verifier"], inputs.task.get("verifier_params", {}))
    rows = [(model, models[0]) for model in models]
    kind = "more" if rule.permissive else "fewer"
    note = (
        f"Greedy responses to the audit, of a condition all seeds together. Run's rule: {own}; "
        f"the other, {named(rule.name, rule.params)}, takes {kind} forms of answers. Drift: by how "
        "many points more of its responses the rules disagree than of the source's."
    )
    if any(of.unjudged for of in models):
        counts = ", ".join(f"{of.label} {whole(of.unjudged)}" for of in models)
        note += f" Left out, as a rule gave an error or ran out of time: {counts}."
    lead = [of for of in models if of.name and of.name == findings.lead]
    found: list[Block] = [*(_sentence(models[0], of) for of in lead)]
    found.append(Frame(AGREEMENT, rows).table(note))
    if first := principal(findings):
        both = [row for row in under_both(inputs, findings, rule) if row[1] in first]
        note = (
            "In percentage points of Pass@1, with the same replicates under both rules. What a "
            "rule could not judge is not passed here."
        )
        found.append(Frame(CONTRASTS, both).table(note))
    if rule.read:
        note = (
            "Invalid: the run's rule reads no answer in the response, so it counts as wrong "
            "whatever it says. Of these, those that open with the right letter are wrong by their "
            "form alone."
        )
        found.append(Frame(INVALID, rows).table(note))
    return found


def _sentence(source: Agreement, of: Agreement) -> Block:
    own = of.share(of.own) - source.share(source.own)
    other = of.share(of.other) - source.share(source.other)
    said = (
        f"{of.label} is {points(own)} points from the source under the run's rule, and "
        f"{points(other)} under the other."
    )
    if of.unjudged or source.unjudged:
        return Text(f"{said} Responses that a rule could not judge are left out of both.")
    if own == other:
        return Text(f"{said} The change is the same under both.")
    return Text(
        f"{said} The {points(own - other)} points between these two rest on the form of answers "
        "that a rule takes."
    )


def named(name: str, params: Mapping[str, Any]) -> str:
    """A verifier with its parameters."""
    told = ", ".join(f"{key}: {value}" for key, value in params.items())
    return f"{name} ({told})" if told else name


def content(inputs: ReportInputs, findings: Findings, rule: OtherRule) -> dict[str, Any]:
    """What results.json says of it."""
    models = [] if rule.why else agreements(inputs, rule)
    if why := rule.why or _untold(rule, models):
        return {"none": why}
    rows = [(model, models[0]) for model in models]
    source, *conditions = Frame([*AGREEMENT, *INVALID], rows).entries()
    both = under_both(inputs, findings, rule) if conditions else []
    return {
        "verifier": rule.name,
        "params": dict(rule.params),
        "permissive": rule.permissive,
        "source": source,
        "conditions": dict(zip(inputs.conditions, conditions, strict=True)),
        "contrasts": Frame(CONTRASTS, both).entries(),
    }
