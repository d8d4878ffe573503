"""Compare repeated trainings: the audit decisions that differ though data and settings do not.

"Retraining one gold-label seed with byte-identical data and settings" moved Pass@1 by 0.07 points
on LogiQA and changed 331 of 1,367 decisions (the paper's Appendix A).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gapft_harness.analysis.paired import DecisionChanges, count_changes
from gapft_harness.recipe.conditions import find_replicates
from gapft_harness.report.reading.audits import TrainedArm
from gapft_harness.report.reading.inputs import ReportInputs


@dataclass(frozen=True, slots=True)
class Retraining:
    """One arm compared with the arm whose training it repeats.

    Attributes:
        seed: the training seed.
        changes: changes of the audit decisions, from the repeated arm to this one.
        reworded: responses with a different text, right or wrong.
        same_weights: whether the two adapters have the same bytes; None where a trainer gave no
            hash.
    """

    seed: int
    changes: DecisionChanges
    reworded: int
    same_weights: bool | None


@dataclass(frozen=True, slots=True)
class RepeatedCondition:
    """A condition that repeats the training of another.

    Attributes:
        condition: the condition.
        original: the condition that it repeats.
        retrainings: one for each seed, ascending.
    """

    condition: str
    original: str
    retrainings: tuple[Retraining, ...]

    @property
    def changes(self) -> DecisionChanges:
        """The changes of decisions over all its seeds."""
        parts = [retraining.changes for retraining in self.retrainings]
        return DecisionChanges(
            sum(part.n for part in parts),
            sum(part.lost for part in parts),
            sum(part.gained for part in parts),
        )


def compare_replicates(inputs: ReportInputs) -> tuple[RepeatedCondition, ...]:
    """Compare each replicate with the condition that it repeats, seed by seed."""
    hashes = {name: facts.get("adapter_sha256") for name, facts in inputs.training.items()}
    return tuple(
        RepeatedCondition(
            name,
            original,
            tuple(
                _compare_arms(first, second, hashes)
                for first, second in zip(
                    inputs.find_arms(original), inputs.find_arms(name), strict=True
                )
            ),
        )
        for name, original in find_replicates(inputs.recipe).items()
        if {name, original} <= {*inputs.conditions}
    )


def _compare_arms(
    first: TrainedArm, second: TrainedArm, hashes: Mapping[str, str | None]
) -> Retraining:
    first_hash, second_hash = (hashes.get(trained.arm.name) for trained in (first, second))
    texts = zip(first.deployed.texts, second.deployed.texts, strict=True)
    return Retraining(
        seed=second.arm.seed,
        changes=count_changes(first.deployed.passed, second.deployed.passed),
        reworded=sum(before != after for before, after in texts),
        same_weights=None
        if first_hash is None or second_hash is None
        else first_hash == second_hash,
    )
