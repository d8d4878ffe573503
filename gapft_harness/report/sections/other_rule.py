"""Would another rule decide differently? One table, as the paper's Table 13."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from gapft_harness.core.records import SOURCE, STATUSES
from gapft_harness.presentation.content import Column, Row, Section, Table, add_hidden
from gapft_harness.report.findings.computation import Findings
from gapft_harness.report.names import condition_name, name_source
from gapft_harness.report.reading.audits import OPENS_RIGHT, VALID, OtherVerdicts
from gapft_harness.report.reading.columns import PASS
from gapft_harness.report.reading.inputs import ReportInputs

_UNJUDGED = (STATUSES.index("error"), STATUSES.index("timeout"))
_TITLE = "Would another rule decide differently?"
_NOTE = (
    "Deployment decodes of the audit, all seeds of a condition together; responses that a rule "
    "could not judge are left out here, and count as wrong in contrasts. Only by: responses that "
    "are right by one rule alone. Drift: "
    "the share of responses on which the rules disagree, minus that of the source; it depends "
    "only on the forms of answers that the rules accept."
)
_INVALID_NOTE = " Invalid: the run's rule reads no answer in the response, so it counts as wrong."
_OPENING_NOTE = (
    " Opens right: invalid responses that begin with the right letter, which are wrong only "
    "because of their form."
)
_COLUMNS = (
    Column("label", "model"),
    Column("run_rule", "run's rule", "share"),
    Column("other_rule", "other rule", "share"),
    Column("only_run_rule", "only by run's", "count"),
    Column("only_other_rule", "only by other", "count"),
    Column("drift", "drift (points)", "points"),
)
_INVALID_COLUMN = Column("invalid", "invalid", "count")
_OPENING_COLUMN = Column("invalid_opening_right", "opens right", "count")


def build_other_rule(inputs: ReportInputs, findings: Findings, rule: OtherVerdicts) -> Section:
    """Build the section: models and contrasts under both rules, or the reason for its absence."""
    rows = [] if rule.reason else _list_agreements(inputs, rule)
    if not rows:
        reason = rule.reason or "of some model, no response was judged by both rules"
        return Section(_TITLE, [f"Not available: {reason}."])
    columns = list(_COLUMNS)
    note = _NOTE
    if rule.answer_codes:
        columns.append(_INVALID_COLUMN)
        note += _INVALID_NOTE
    if rule.reads_openings:
        columns.append(_OPENING_COLUMN)
        note += _OPENING_NOTE
    tables = [Table("other_rule", add_hidden(columns, rows), rows, note)]
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


def _list_agreements(inputs: ReportInputs, rule: OtherVerdicts) -> list[Row]:
    """Count on which responses of the source, and of every condition, the two rules agree.

    Returns:
        A row for each model; none if no response of some model was judged by both rules.
    """
    rows: list[Row] = []
    for model in (SOURCE, *inputs.conditions):
        # The responses that both rules judged
        arms = inputs.find_arms(model)
        decodes = [item.deployed for item in arms] or [inputs.audit.deployed]
        keys = [item.arm.name for item in arms] or [SOURCE]
        own_codes = np.concatenate([item.statuses for item in decodes])
        other_codes = np.concatenate([rule.statuses[key] for key in keys])
        judged = ~(np.isin(own_codes, _UNJUDGED) | np.isin(other_codes, _UNJUDGED))
        own = own_codes[judged] == PASS
        other = other_codes[judged] == PASS
        if not judged.any():
            return []
        # Responses in which the run's rule reads no answer
        invalid = right = None
        if rule.answer_codes:
            answers = np.concatenate([rule.answer_codes[key] for key in keys])
            invalid = int((answers != VALID).sum())
            right = int((answers == OPENS_RIGHT).sum()) if rule.reads_openings else None
        disagreement = Fraction(int((own != other).sum()), own.size)
        rows.append(
            {
                "label": name_source(inputs.deployment) if not rows else condition_name(model),
                "model": model,
                "run_rule": Fraction(int(own.sum()), own.size),
                "other_rule": Fraction(int(other.sum()), own.size),
                "only_run_rule": int((own & ~other).sum()),
                "only_other_rule": int((other & ~own).sum()),
                "unjudged": int((~judged).sum()),
                "disagreement": disagreement,
                "invalid": invalid,
                "invalid_share": None if invalid is None else Fraction(invalid, judged.size),
                "invalid_opening_right": right,
                "drift": disagreement - (rows[0]["disagreement"] if rows else disagreement),
            }
        )
    return rows


def _format_verifier(name: str, params: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{key}: {value}" for key, value in params.items())
    return f"{name} ({settings})" if settings else name
