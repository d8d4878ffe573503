"""The verifier audit: the audit's greedy responses judged by another rule, for the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gapft_harness.core.records import Gold
from gapft_harness.hooks.checked import answers_of
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import Verifier
from gapft_harness.stages.generation.sealing import closing_verifier
from gapft_harness.verification.judging import verify_unique

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
    names = [of.arm.name for of in inputs.arms]
    arms = dict(zip(names, said[1:], strict=True))
    with closing_verifier(plugins.verifier(name, params)) as verifier:
        read, opens = _read(verifier, texts, golds * len(decodes))
    by_model = read.reshape(len(decodes), -1) if len(read) else ()
    return OtherRule(
        other.name,
        other.params,
        other.permissive,
        "",
        said[0],
        arms,
        dict(zip(["", *names], by_model, strict=True)) if len(read) else {},
        opens,
    )


def _read(
    verifier: Verifier, texts: Sequence[str], golds: Sequence[Gold]
) -> tuple[NDArray[np.uint8], bool]:
    """What the run's own rule reads in responses, and whether it says what they open with."""
    import numpy as np

    from gapft_harness.report.reading.other_rule import INVALID, OPENS_RIGHT, VALID

    answers = answers_of(verifier)
    if answers is None:
        return np.zeros(0, dtype=np.uint8), False
    opening = getattr(verifier, "opening", None)
    seen: dict[tuple[str, int], int] = {}
    distinct = {(text, id(gold)): gold for text, gold in zip(texts, golds, strict=True)}
    given = answers.read([text for text, _ in distinct], list(distinct.values()))
    for (key, gold), answer in zip(distinct.items(), given, strict=True):
        right = gold.get("answer") if isinstance(gold, Mapping) else gold
        if answer is not None:
            seen[key] = VALID
        elif callable(opening) and opening(key[0], gold) == right:
            seen[key] = OPENS_RIGHT
        else:
            seen[key] = INVALID
    of_each = [seen[text, id(gold)] for text, gold in zip(texts, golds, strict=True)]
    return np.array(of_each, dtype=np.uint8), callable(opening)
