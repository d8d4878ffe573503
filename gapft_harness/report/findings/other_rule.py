"""Count where the verifier's other rule decides differently: form or accuracy? (Table 13)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from gapft_harness.core.records import SOURCE, STATUSES
from gapft_harness.report.reading.audits import OPENS_RIGHT, VALID, OtherRule
from gapft_harness.report.reading.columns import PASS
from gapft_harness.report.reading.inputs import ReportInputs

_UNJUDGED = (STATUSES.index("error"), STATUSES.index("timeout"))


@dataclass(frozen=True, slots=True)
class RuleAgreement:
    """One model's deployment decodes under both rules; all seeds of a condition together.

    Attributes:
        name: the condition, or ``SOURCE``.
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
    def total(self) -> int:
        """The number of responses, judged or not."""
        return self.responses + self.unjudged

    def compute_share(self, count: int) -> Fraction:
        """Return a count as a share of the judged responses."""
        return Fraction(count, self.responses)

    @property
    def disagreement(self) -> Fraction:
        """The share of responses on which the rules disagree."""
        return self.compute_share(self.only_own + self.only_other)


def count_agreements(inputs: ReportInputs, rule: OtherRule) -> list[RuleAgreement]:
    """Count the deployment decodes of the audit on which the two rules agree and disagree.

    Args:
        inputs: the inputs of the report.
        rule: the same responses under the other rule (``inputs.other_rule``), which has a verifier.

    Returns:
        The counts of the source, then of every condition, all seeds together.
    """
    agreements = []
    for name in (SOURCE, *inputs.conditions):
        arms = inputs.find_arms(name)
        if name == SOURCE:
            own_codes, other_codes, keys = inputs.audit.deployed.statuses, rule.source, [""]
        else:
            keys = [item.arm.name for item in arms]
            own_codes = np.concatenate([item.deployed.statuses for item in arms])
            other_codes = np.concatenate([rule.arms[key] for key in keys])
        judged = ~(np.isin(own_codes, _UNJUDGED) | np.isin(other_codes, _UNJUDGED))
        own, other = own_codes[judged] == PASS, other_codes[judged] == PASS
        counts = (judged, ~judged, own, other, own & ~other, other & ~own)
        invalid = right = None
        if rule.answer_codes:
            answers = np.concatenate([rule.answer_codes[key] for key in keys])
            invalid = int((answers != VALID).sum())
            right = int((answers == OPENS_RIGHT).sum()) if rule.reads_openings else None
        numbers = (int(mask.sum()) for mask in counts)
        agreements.append(RuleAgreement(name, invalid, right, *numbers))
    return agreements


def find_missing_reason(rule: OtherRule, agreements: list[RuleAgreement]) -> str:
    """Return the reason why the rules cannot be compared; empty: they can be."""
    if rule.reason or all(model.responses for model in agreements):
        return rule.reason
    return f"for some model, no response was judged by both the run's rule and {rule.name}"
