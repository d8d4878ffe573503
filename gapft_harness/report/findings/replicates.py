"""Compare repeated trainings: the audit decisions that differ though data and settings do not.

"Retraining one gold-label seed with byte-identical data and settings" moved Pass@1 by 0.07 points
on LogiQA and changed 331 of 1,367 decisions (the paper's Appendix A).
"""

from __future__ import annotations

from fractions import Fraction

from gapft_harness.presentation.content import Row
from gapft_harness.recipe.conditions import find_replicates
from gapft_harness.report.reading.audits import TrainedArm
from gapft_harness.report.reading.inputs import ReportInputs


def compare_replicates(inputs: ReportInputs) -> list[Row]:
    """Compare each replicate with the condition that it repeats, seed by seed.

    Returns:
        Rows of an arm of ``condition`` and that of ``original`` with the same ``seed``: of ``n``
        decisions, how many ``changed``, and were ``lost`` or ``gained`` by the first of them; the
        difference ``delta`` of Pass@1; ``reworded`` responses; and whether both adapters have the
        ``same_weights``, None where a trainer gave no hash.
    """
    return [
        _compare_arms(inputs, first, second)
        for name, original in find_replicates(inputs.recipe).items()
        if {name, original} <= {*inputs.conditions}
        for first, second in zip(inputs.find_arms(original), inputs.find_arms(name), strict=True)
    ]


def _compare_arms(inputs: ReportInputs, first: TrainedArm, second: TrainedArm) -> Row:
    hashes = [
        inputs.training.get(trained.arm.name, {}).get("adapter_sha256")
        for trained in (first, second)
    ]
    before = first.deployed.passed
    after = second.deployed.passed
    lost = int((before & ~after).sum())
    gained = int((~before & after).sum())
    texts = zip(first.deployed.texts, second.deployed.texts, strict=True)
    return {
        "condition": second.arm.condition,
        "original": first.arm.condition,
        "seed": second.arm.seed,
        "n": before.size,
        "changed": lost + gained,
        "lost": lost,
        "gained": gained,
        "delta": Fraction(gained - lost, before.size),
        "reworded": sum(before != after for before, after in texts),
        "same_weights": None if None in hashes else hashes[0] == hashes[1],
    }
