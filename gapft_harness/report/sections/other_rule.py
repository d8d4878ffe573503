"""Would another rule decide differently? Separates changes of form from changes of accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from gapft_harness.core.records import SOURCE, STATUSES
from gapft_harness.report.figures.contrasts import format_contrast as contrast_name
from gapft_harness.report.figures.contrasts import select_principal
from gapft_harness.report.findings.computation import Contrast, Findings, compute_findings
from gapft_harness.report.frame import Column, Frame
from gapft_harness.report.reading.audits import OPENS_RIGHT, VALID, OtherRule
from gapft_harness.report.reading.columns import PASS
from gapft_harness.report.reading.inputs import ReportInputs
from gapft_harness.report.rendering.blocks import Block, Text
from gapft_harness.report.rendering.wording import (
    condition_name,
    format_count,
    name_source,
    percent,
    points,
    points_interval,
)

TITLE = "Would another rule decide differently?"
_UNJUDGED = (STATUSES.index("error"), STATUSES.index("timeout"))


@dataclass(frozen=True, slots=True)
class RuleAgreement:
    """One model's deployment decodes under both rules; all seeds of a condition together.

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
        source_name: the source's name for people.
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
    source_name: str = field(default="source, greedy", kw_only=True)

    @property
    def total(self) -> int:
        """The number of responses, judged or not."""
        return self.responses + self.unjudged

    @property
    def label(self) -> str:
        """The model's name for people."""
        return condition_name(self.name) if self.name else self.source_name

    def compute_share(self, count: int) -> Fraction:
        """Return a count as a share of the judged responses."""
        return Fraction(count, self.responses)

    @property
    def disagreement(self) -> Fraction:
        """The share of responses on which the rules disagree."""
        return self.compute_share(self.only_own + self.only_other)


def agreements(inputs: ReportInputs, rule: OtherRule) -> list[RuleAgreement]:
    """Count the deployment decodes of the audit on which the two rules agree and disagree.

    Args:
        inputs: the inputs of the report.
        rule: the same responses under the other rule (``inputs.other_rule``).

    Returns:
        The counts of the source, then of every condition, all seeds together.
    """
    rows = []
    for name in ("", *inputs.conditions):
        arms = inputs.find_arms(name)
        names = [item.arm.name for item in arms] if name else [""]
        own_codes = np.concatenate(
            [item.deployed.statuses for item in arms] if name else [inputs.audit.deployed.statuses]
        )
        other_codes = np.concatenate([rule.arms[item] for item in names] if name else [rule.source])
        judged = ~(np.isin(own_codes, _UNJUDGED) | np.isin(other_codes, _UNJUDGED))
        own, other = own_codes[judged] == PASS, other_codes[judged] == PASS
        counts = (judged, ~judged, own, other, own & ~other, other & ~own)
        answer_codes = (
            [np.concatenate([rule.answer_codes[item] for item in names])]
            if rule.answer_codes
            else []
        )
        invalid = next((int((item != VALID).sum()) for item in answer_codes), None)
        right = (
            sum(int((item == OPENS_RIGHT).sum()) for item in answer_codes)
            if rule.reads_openings and answer_codes
            else None
        )
        numbers = (int(item.sum()) for item in counts)
        source_name = name_source(inputs.deployment)
        rows.append(RuleAgreement(name, invalid, right, *numbers, source_name=source_name))
    return rows


_MODEL = "the model, or the difference of two"
_RULES = (
    "share right by the run's verifier and by "
    "[the other](report.md#would-another-rule-decide-differently), or the difference of two models"
)
_DISAGREE = "responses on which the rules disagree, and their share"
#: Rows are pairs of a model and the source.
AGREEMENT: tuple[Column[tuple[RuleAgreement, RuleAgreement]], ...] = (
    Column("", _MODEL, lambda row: row[0].label, "model"),
    Column("run_rule", _RULES, lambda row: row[0].compute_share(row[0].own), "run's rule", percent),
    Column(
        "other_rule", _RULES, lambda row: row[0].compute_share(row[0].other), "other rule", percent
    ),
    Column(
        "only_run_rule",
        _DISAGREE,
        lambda row: row[0].only_own,
        "right only by run's rule",
        format_count,
    ),
    Column(
        "only_other_rule",
        _DISAGREE,
        lambda row: row[0].only_other,
        "right only by other rule",
        format_count,
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
_RESPONSES = "decodes of the audit, and those in which the run's rule reads no answer"
_OPENINGS = "invalid responses that begin so, and their share"


def _share_opening_right(row: tuple[RuleAgreement, RuleAgreement]) -> Fraction | None:
    right, invalid = row[0].right, row[0].invalid
    return Fraction(right, invalid) if right is not None and invalid else None


INVALID: tuple[Column[tuple[RuleAgreement, RuleAgreement]], ...] = (
    Column("", _MODEL, lambda row: row[0].label, "model"),
    Column("", _RESPONSES, lambda row: row[0].total, "responses", format_count),
    Column("invalid", _RESPONSES, lambda row: row[0].invalid, "invalid", format_count),
    Column(
        "", _RESPONSES, lambda row: Fraction(row[0].invalid or 0, row[0].total), "share", percent
    ),
    Column(
        "invalid_opening_right",
        _OPENINGS,
        lambda row: row[0].right,
        "begin with the right letter",
        format_count,
    ),
    Column("", _OPENINGS, _share_opening_right, "of the invalid", percent),
)
#: Rows are findings, a contrast of them, and the same contrast under the other rule.
CONTRASTS: tuple[Column[tuple[Findings, Contrast, Contrast]], ...] = (
    Column("a", "", lambda row: row[1].a),
    Column("b", "", lambda row: row[1].b),
    Column("", _MODEL, lambda row: contrast_name(row[0], row[1]), "contrast"),
    Column("run_rule", _RULES, lambda row: row[1].delta, "run's rule", points),
    Column("", _MODEL, lambda row: row[1].estimate, "95% interval", points_interval),
    Column("other_rule", _RULES, lambda row: row[2].delta, "other rule", points),
    Column("other_rule_ci95", _MODEL, lambda row: row[2].estimate, "95% interval", points_interval),
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
    other = compute_other_findings(inputs, findings, rule)
    both = zip(findings.contrasts, other.contrasts, strict=True)
    return [(findings, own_contrast, other_contrast) for own_contrast, other_contrast in both]


def compute_other_findings(inputs: ReportInputs, findings: Findings, rule: OtherRule) -> Findings:
    """Compute the findings under the other rule, from the same replicates; see ``under_both``."""
    arms = tuple(
        replace(item, deployed=replace(item.deployed, statuses=rule.arms[item.arm.name]))
        for item in inputs.arms
    )
    deployed = replace(inputs.audit.deployed, statuses=rule.source)
    audit = replace(inputs.audit, deployed=deployed)
    ordered = [item.a for item in findings.contrasts if item.b == SOURCE]
    return compute_findings(replace(inputs, audit=audit, arms=arms, parts=()), ordered)


def _find_missing_reason(rule: OtherRule, models: Sequence[RuleAgreement]) -> str:
    """Return the reason why the rules cannot be compared; empty: they can be."""
    if all(model.responses for model in models):
        return ""
    return f"for some model, no response was judged by both the run's rule and {rule.name}"


def build_blocks(inputs: ReportInputs, findings: Findings, rule: OtherRule) -> list[Block]:
    """Build the section: tables and a sentence on the lead condition, or the missing reason."""
    models = [] if rule.reason else agreements(inputs, rule)
    if reason := rule.reason or _find_missing_reason(rule, models):
        return [Text(f"Not available: {reason}.", "note")]
    own_rule = format_verifier(inputs.task["verifier"], inputs.task.get("verifier_params", {}))
    rows = [(model, models[0]) for model in models]
    kind = "more" if rule.permissive else "fewer"
    responses = "Deployment decodes of" if inputs.deployment else "Greedy responses to"
    note = (
        f"{responses} the audit, all seeds of a condition together. Run's rule: "
        f"{own_rule}. Other rule: {format_verifier(rule.name, rule.params)}, which accepts {kind} "
        "forms of answers. Drift: the share of a model's responses on which the rules disagree, "
        "minus the same share of the source, in percentage points."
    )
    if any(agreement.unjudged for agreement in models):
        counts = ", ".join(
            f"{agreement.label} {format_count(agreement.unjudged)}" for agreement in models
        )
        note += f" Left out because of an error or timeout of a rule: {counts}."
    lead = [agreement for agreement in models if agreement.name and agreement.name == findings.lead]
    section_blocks: list[Block] = [*(_describe_lead(models[0], agreement) for agreement in lead)]
    section_blocks.append(Frame(AGREEMENT, rows).table(note))
    if principal_contrasts := select_principal(findings):
        both = [row for row in under_both(inputs, findings, rule) if row[1] in principal_contrasts]
        note = (
            "In percentage points of Pass@1, with the same replicates under both rules. Responses "
            "that a rule could not judge count as not passed here."
        )
        section_blocks.append(Frame(CONTRASTS, both).table(note))
    if rule.answer_codes:
        note = (
            "Invalid: the run's rule reads no answer in the response, so it counts as wrong. An "
            "invalid response that begins with the right letter is wrong only because of its form."
        )
        section_blocks.append(Frame(INVALID, rows).table(note))
    return section_blocks


def _describe_lead(source: RuleAgreement, model: RuleAgreement) -> Block:
    own = model.compute_share(model.own) - source.compute_share(source.own)
    other = model.compute_share(model.other) - source.compute_share(source.other)
    text = (
        f"{model.label} is {points(own)} points from the source under the run's rule, and "
        f"{points(other)} points under the other."
    )
    if model.unjudged or source.unjudged:
        return Text(f"{text} Responses that a rule could not judge are left out of both figures.")
    if own == other:
        return Text(f"{text} The change is the same under both rules.")
    return Text(
        f"{text} The difference of {points(own - other)} points depends only on the forms of "
        "answers that the rules accept."
    )


def format_verifier(name: str, params: Mapping[str, Any]) -> str:
    """Format a verifier with its parameters."""
    settings = ", ".join(f"{key}: {value}" for key, value in params.items())
    return f"{name} ({settings})" if settings else name


def build_content(inputs: ReportInputs, findings: Findings, rule: OtherRule) -> dict[str, Any]:
    """Build the entry for results.json."""
    models = [] if rule.reason else agreements(inputs, rule)
    if reason := rule.reason or _find_missing_reason(rule, models):
        return {"none": reason}
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
