"""Count where the verifier's other rule decides differently: form or accuracy? (Table 13)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gapft_harness.core.records import SOURCE, STATUSES
from gapft_harness.report.reading.audits import OPENS_RIGHT, VALID, OtherVerdicts
from gapft_harness.report.reading.columns import PASS
from gapft_harness.report.reading.inputs import ReportInputs

_UNJUDGED = (STATUSES.index("error"), STATUSES.index("timeout"))


@dataclass(frozen=True, slots=True)
class RuleAgreement:
    """One model's deployment decodes under both rules; all seeds of a condition together.

    Attributes:
        model: the condition, or ``SOURCE``.
        run_rule: the share of the judged responses that is right by the run's rule.
        other_rule: the same by the other rule.
        only_run_rule: responses that are right only by the run's rule.
        only_other_rule: responses that are right only by the other rule.
        unjudged: responses with an error or timeout of either rule.
        disagreement: the share of the judged responses on which the rules disagree.
        invalid: responses in which the run's rule reads no answer; None: its verifier gives no
            answers.
        invalid_share: these as a share of all responses.
        invalid_opening_right: the invalid responses that begin with the right answer; None: not
            known.
    """

    model: str
    run_rule: Fraction
    other_rule: Fraction
    only_run_rule: int
    only_other_rule: int
    unjudged: int
    disagreement: Fraction
    invalid: int | None = None
    invalid_share: Fraction | None = None
    invalid_opening_right: int | None = None


def count_agreements(inputs: ReportInputs, rule: OtherVerdicts) -> list[RuleAgreement]:
    """Count the deployment decodes of the audit on which the two rules agree and disagree.

    Args:
        inputs: the inputs of the report.
        rule: the same responses under the other rule (``inputs.other_rule``), which has a verifier.

    Returns:
        The counts of the source, then of every condition, all seeds together; empty if no response
        of some model was judged by both rules.
    """
    agreements = []
    for model in (SOURCE, *inputs.conditions):
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
        invalid = right = None
        if rule.answer_codes:
            answers = np.concatenate([rule.answer_codes[key] for key in keys])
            invalid = int((answers != VALID).sum())
            right = int((answers == OPENS_RIGHT).sum()) if rule.reads_openings else None
        agreements.append(
            RuleAgreement(
                model,
                run_rule=Fraction(int(own.sum()), own.size),
                other_rule=Fraction(int(other.sum()), own.size),
                only_run_rule=int((own & ~other).sum()),
                only_other_rule=int((other & ~own).sum()),
                unjudged=int((~judged).sum()),
                disagreement=Fraction(int((own != other).sum()), own.size),
                invalid=invalid,
                invalid_share=None if invalid is None else Fraction(invalid, judged.size),
                invalid_opening_right=right,
            )
        )
    return agreements
