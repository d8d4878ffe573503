"""The verifier audit: the audit's greedy responses judged by another rule, for the report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gapft_harness.hooks.manager import Plugins
from gapft_harness.stages.generation.sealing import closing_verifier
from gapft_harness.verification.judging import verify_unique

if TYPE_CHECKING:
    from gapft_harness.report.reading.inputs import ReportInputs
    from gapft_harness.report.reading.other_rule import OtherRule


def judge_by_other_rule(inputs: ReportInputs, plugins: Plugins) -> OtherRule:
    """Judges each distinct response to the audit once by the rule that the run's verifier declares.

    Args:
        inputs: the run as the report reads it.
        plugins: those that are loaded; the run's own verifier need not be among them.
    """
    from gapft_harness.report.reading.columns import codes
    from gapft_harness.report.reading.other_rule import OtherRule

    name, params = inputs.task["verifier"], inputs.task.get("verifier_params", {})
    if not plugins.has("verifier", name):
        return OtherRule(why=f"the verifier {name} is not loaded here (--plugin FILE)")
    other = plugins.other_rule(name, params)
    if other is None:
        return OtherRule(why=f"the verifier {name} declares no other rule for these parameters")
    decodes = [inputs.audit.greedy_texts, *(arm.texts for arm in inputs.arms)]
    golds = [json.loads(gold) for gold in inputs.audit.golds]
    texts = [text for of in decodes for text in of]
    with closing_verifier(plugins.verifier(other.name, other.params)) as verifier:
        verdicts = verify_unique(verifier, texts, golds * len(decodes))
    said = codes([v.status for v in verdicts]).reshape(len(decodes), -1)
    arms = {of.arm.name: row for of, row in zip(inputs.arms, said[1:], strict=True)}
    return OtherRule(other.name, other.params, other.permissive, "", said[0], arms)
