"""Would another rule decide differently? Separates changes of form from changes of accuracy."""

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

TITLE = "Would another rule decide differently?"
_UNJUDGED = (STATUSES.index("error"), STATUSES.index("timeout"))


@dataclass(frozen=True, slots=True)
class Agreement:
    """One model's greedy responses under both rules; all seeds of a condition together.

    Attributes:
        name: the condition; empty: the source.
        invalid: responses in which the run's rule reads no answer; None: its verifier gives no
            answers.
        right: the invalid responses that begin with the right answer; None: not known.
        responses: responses judged by both rules; the last four counts are among these.
        unjudged: responses with an error or timeout of either rule.
        own: right under the run's rule.
        other: right under the other rule.
        only_own: right only under the run's rule.
        only_other: right only under the other rule.
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
        """The number of responses, judged or not."""
        return self.responses + self.unjudged

    @property
    def label(self) -> str:
        """The model's name for people."""
        return condition_name(self.name) if self.name else "source, greedy"

    def share(self, count: int) -> Fraction:
        """Return a count as a share of the judged responses."""
        return Fraction(count, self.responses)

    @property
    def disagreement(self) -> Fraction:
        """The share of responses on which the rules disagree."""
        return self.share(self.only_own + self.only_other)


def agreements(inputs: ReportInputs, rule: OtherRule) -> list[Agreement]:
    """Count the greedy responses to the audit on which the two rules agree and disagree.

    Args:
        inputs: the inputs of the report.
        rule: the same responses under the other rule (``inputs.other_rule``).

    Returns:
        The counts of the source, then of every condition, all seeds together.
    """
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


_MODEL = "the model, or the difference of two"
_RULES = (
    "share right by the run's verifier and by "
    "[the other](report.md#would-another-rule-decide-differently), or the difference of two models"
)
_DISAGREE = "responses on which the rules disagree, and their share"
#: Rows are pairs of a model and the source.
AGREEMENT: tuple[Column[tuple[Agreement, Agreement]], ...] = (
    Column("", _MODEL, lambda row: row[0].label, "model"),
    Column("run_rule", _RULES, lambda row: row[0].share(row[0].own), "run's rule", percent),
    Column("other_rule", _RULES, lambda row: row[0].share(row[0].other), "other rule", percent),
    Column(
        "only_run_rule", _DISAGREE, lambda row: row[0].only_own, "right only by run's rule", whole
    ),
    Column(
        "only_other_rule",
        _DISAGREE,
        lambda row: row[0].only_other,
        "right only by other rule",
        whole,
    ),
    Column("unjudged", "", lambda row: row[0].unjudged),
    Column("", _DISAGREE, lambda row: row[0].disagreement, "disagree", percent),
    Column("drift", "", lambda row: row[0].disagreement - row[1].disagreement),
    Column(
        "",
        "the share of disagreements minus the source's",
        lambda row: points(row[0].disagreement - row[1].disagreement) if row[0].name else "",
        "drift (points)",
    ),
)
_OF_RESPONSES = "greedy responses, and those in which the run's rule reads no answer"
_OPEN = "invalid responses that begin so, and their share"


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
        "begin with the right letter",
        whole,
    ),
    Column("", _OPEN, _opening, "of the invalid", percent),
)
#: Rows are findings, a contrast of them, and the same contrast under the other rule.
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
    """Compute every contrast under both rules, from the same replicates.

    Args:
        inputs: the inputs of the report.
        findings: the report's findings, under the run's rule.
        rule: the same responses under the other rule (``inputs.other_rule``).

    Returns:
        For each contrast: the findings, the contrast under the run's rule, and under the other.
    """
    arms = tuple(replace(of, statuses=rule.arms[of.arm.name]) for of in inputs.arms)
    audit = replace(inputs.audit, greedy=rule.source)
    ordered = [of.a for of in findings.contrasts if of.b == SOURCE]
    other = compute(replace(inputs, audit=audit, arms=arms, parts=(), further=()), ordered)
    both = zip(findings.contrasts, other.contrasts, strict=True)
    return [(findings, was, now) for was, now in both]


def _untold(rule: OtherRule, models: Sequence[Agreement]) -> str:
    """Return the reason why the rules cannot be compared; empty: they can be."""
    if all(of.responses for of in models):
        return ""
    return f"for some model, no response was judged by both the run's rule and {rule.name}"


def blocks(inputs: ReportInputs, findings: Findings, rule: OtherRule) -> list[Block]:
    """Build the section: tables and a sentence on the lead condition, or the missing reason."""
    models = [] if rule.why else agreements(inputs, rule)
    if why := rule.why or _untold(rule, models):
        return [Text(f"Not available: {why}.", "note")]
    own = named(inputs.task["verifier"], inputs.task.get("verifier_params", {}))
    rows = [(model, models[0]) for model in models]
    kind = "more" if rule.permissive else "fewer"
    note = (
        f"Greedy responses to the audit, all seeds of a condition together. Run's rule: {own}. "
        f"Other rule: {named(rule.name, rule.params)}, which accepts {kind} forms of answers. "
        "Drift: the share of a model's responses on which the rules disagree, minus the same share "
        "of the source, in percentage points."
    )
    if any(of.unjudged for of in models):
        counts = ", ".join(f"{of.label} {whole(of.unjudged)}" for of in models)
        note += f" Left out because of an error or timeout of a rule: {counts}."
    lead = [of for of in models if of.name and of.name == findings.lead]
    found: list[Block] = [*(_sentence(models[0], of) for of in lead)]
    found.append(Frame(AGREEMENT, rows).table(note))
    if first := principal(findings):
        both = [row for row in under_both(inputs, findings, rule) if row[1] in first]
        note = (
            "In percentage points of Pass@1, with the same replicates under both rules. Responses "
            "that a rule could not judge count as not passed here."
        )
        found.append(Frame(CONTRASTS, both).table(note))
    if rule.read:
        note = (
            "Invalid: the run's rule reads no answer in the response, so it counts as wrong. An "
            "invalid response that begins with the right letter is wrong only because of its form."
        )
        found.append(Frame(INVALID, rows).table(note))
    return found


def _sentence(source: Agreement, of: Agreement) -> Block:
    own = of.share(of.own) - source.share(source.own)
    other = of.share(of.other) - source.share(source.other)
    said = (
        f"{of.label} is {points(own)} points from the source under the run's rule, and "
        f"{points(other)} points under the other."
    )
    if of.unjudged or source.unjudged:
        return Text(f"{said} Responses that a rule could not judge are left out of both figures.")
    if own == other:
        return Text(f"{said} The change is the same under both rules.")
    return Text(
        f"{said} The difference of {points(own - other)} points depends only on the forms of "
        "answers that the rules accept."
    )


def named(name: str, params: Mapping[str, Any]) -> str:
    """Format a verifier with its parameters."""
    told = ", ".join(f"{key}: {value}" for key, value in params.items())
    return f"{name} ({told})" if told else name


def content(inputs: ReportInputs, findings: Findings, rule: OtherRule) -> dict[str, Any]:
    """Build the entry for results.json."""
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
