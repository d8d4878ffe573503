"""Would another rule decide differently? One table, as the paper's Table 13."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gapft_harness.core.records import SOURCE
from gapft_harness.presentation.content import Column, Section, Table, add_hidden
from gapft_harness.report.findings.computation import Findings
from gapft_harness.report.findings.other_rule import count_agreements
from gapft_harness.report.names import condition_name, name_source
from gapft_harness.report.reading.audits import OtherVerdicts
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
    Column("run_rule", "run's rule", "share"),
    Column("other_rule", "other rule", "share"),
    Column("only_run_rule", "only by run's", "count"),
    Column("only_other_rule", "only by other", "count"),
    Column("drift", "drift (points)", "points"),
)
_ANSWER_COLUMNS = (
    Column("invalid", "invalid", "count"),
    Column("invalid_opening_right", "opens right", "count"),
)


def build_other_rule(inputs: ReportInputs, findings: Findings, rule: OtherVerdicts) -> Section:
    """Build the section: models and contrasts under both rules, or the reason for its absence."""
    agreements = [] if rule.reason else count_agreements(inputs, rule)
    if not agreements:
        reason = rule.reason or "of some model, no response was judged by both rules"
        return Section(_TITLE, [f"Not available: {reason}."])
    names = {name: condition_name(name) for name in inputs.conditions}
    names[SOURCE] = name_source(inputs.deployment)
    rows = [
        {
            "label": names[model.model],
            **asdict(model),
            "drift": model.disagreement - agreements[0].disagreement,
        }
        for model in agreements
    ]
    columns = [*_COLUMNS, *(_ANSWER_COLUMNS if rule.answer_codes else ())]
    tables = [Table("other_rule", add_hidden(columns, rows), rows, _NOTE)]
    if findings.other_rule is not None:
        contrasts = [
            {
                "a": own.a,
                "b": own.b,
                "run_rule": own.estimate,
                "other_rule": findings.other_rule.find_contrast(own.a, own.b).estimate,
            }
            for own in findings.contrasts
        ]
        tables.append(Table("other_rule_contrasts", add_hidden((), contrasts), contrasts))
    own = _format_verifier(inputs.task["verifier"], inputs.task.get("verifier_params", {}))
    other = _format_verifier(rule.name, rule.params)
    kind = "more" if rule.permissive else "fewer"
    text = f"Run's rule: {own}. Other rule: {other}, which accepts {kind} forms of answers."
    return Section(_TITLE, [text], tables)


def _format_verifier(name: str, params: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{key}: {value}" for key, value in params.items())
    return f"{name} ({settings})" if settings else name
