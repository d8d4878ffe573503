"""Would another rule decide differently? One table, as the paper's Table 13."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from gapft_harness.core.records import SOURCE
from gapft_harness.presentation.content import Column, Row, Section, Table
from gapft_harness.report.findings.computation import Findings
from gapft_harness.report.findings.other_rule import (
    RuleAgreement,
    count_agreements,
    find_missing_reason,
)
from gapft_harness.report.names import condition_name, name_source
from gapft_harness.report.reading.audits import OtherRule
from gapft_harness.report.reading.inputs import ReportInputs

_TITLE = "Would another rule decide differently?"
_NOTE = (
    "Deployment decodes of the audit, all seeds of a condition together; responses that a rule "
    "could not judge are left out. Only by: responses that are right by one rule alone. Drift: "
    "the share of responses on which the rules disagree, minus that of the source; it depends "
    "only on the forms of answers that the rules accept. Invalid: the run's rule reads no answer "
    "in the response, so it counts as wrong. Opens right: invalid responses that begin with the "
    "right letter, which are wrong only because of their form."
)
_COLUMNS = (
    Column("label", "model"),
    Column("model"),
    Column("run_rule", "run's rule", "share"),
    Column("other_rule", "other rule", "share"),
    Column("only_run_rule", "only by run's", "count"),
    Column("only_other_rule", "only by other", "count"),
    Column("unjudged"),
    Column("drift", "drift (points)", "points"),
)
_ANSWER_COLUMNS = (
    Column("invalid", "invalid", "count"),
    Column("invalid_share", "of all", "share"),
    Column("invalid_opening_right", "opens right", "count"),
)
_CONTRAST_COLUMNS = (Column("a"), Column("b"), Column("run_rule"), Column("other_rule"))


def build_other_rule(inputs: ReportInputs, findings: Findings, rule: OtherRule) -> Section:
    """Build the section: models and contrasts under both rules, or the reason for its absence."""
    agreements = [] if rule.reason else count_agreements(inputs, rule)
    if reason := find_missing_reason(rule, agreements):
        return Section(_TITLE, [f"Not available: {reason}."])
    source = agreements[0]
    columns = [*_COLUMNS, *(_ANSWER_COLUMNS if rule.answer_codes else ())]
    rows = [_build_row(model, source, inputs) for model in agreements]
    own = format_verifier(inputs.task["verifier"], inputs.task.get("verifier_params", {}))
    other = format_verifier(rule.name, rule.params)
    kind = "more" if rule.permissive else "fewer"
    text = [f"Run's rule: {own}. Other rule: {other}, which accepts {kind} forms of answers."]
    tables = [Table("other_rule", columns, rows, _NOTE)]
    if (judged := findings.other_rule) is not None:
        contrasts = [
            {
                "a": contrast.a,
                "b": contrast.b,
                "run_rule": contrast.estimate,
                "other_rule": judged.find_contrast(contrast.a, contrast.b).estimate,
            }
            for contrast in findings.contrasts
        ]
        tables.append(Table("other_rule_contrasts", _CONTRAST_COLUMNS, contrasts))
    return Section(_TITLE, text, tables)


def _build_row(model: RuleAgreement, source: RuleAgreement, inputs: ReportInputs) -> Row:
    is_source = model.name == SOURCE
    row = {
        "label": name_source(inputs.deployment) if is_source else condition_name(model.name),
        "model": model.name,
        "run_rule": model.compute_share(model.own),
        "other_rule": model.compute_share(model.other),
        "only_run_rule": model.only_own,
        "only_other_rule": model.only_other,
        "unjudged": model.unjudged,
        "drift": model.disagreement - source.disagreement,
        "invalid": model.invalid,
        "invalid_opening_right": model.right,
    }
    if model.invalid is not None:
        row["invalid_share"] = Fraction(model.invalid, model.total)
    return row


def format_verifier(name: str, params: Mapping[str, Any]) -> str:
    """Format a verifier with its parameters."""
    settings = ", ".join(f"{key}: {value}" for key, value in params.items())
    return f"{name} ({settings})" if settings else name
