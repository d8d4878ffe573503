"""The training sets that a run's own selectors choose under another rule, beside those sealed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from gapft_harness.core.errors import PluginError, UserError
from gapft_harness.core.records import Arm, Example
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.registered import TrainerTraits
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.selection.stage import arms, select
from gapft_harness.stages.train.sharing import trained_on


@dataclass(frozen=True, slots=True)
class ArmSets:
    """One arm's training set as it is sealed, and as the new verdicts give it.

    Attributes:
        before: slots of the sealed set.
        after: slots of the new one.
        same: examples of both, each as often as both have it.
        trained_on: what tells each set from others: equal where equal adapters come of them.
    """

    before: int
    after: int
    same: int
    trained_on: tuple[Hashable, Hashable]

    @property
    def dropped(self) -> int:
        """Examples of the sealed set alone."""
        return self.before - self.same

    @property
    def new(self) -> int:
        """Examples of the new set alone."""
        return self.after - self.same

    @property
    def differs(self) -> bool:
        """Whether other sequences would have been trained on."""
        return self.trained_on[0] != self.trained_on[1]


@dataclass(frozen=True, slots=True)
class Sets:
    """Every arm's.

    Attributes:
        n: the budget's slots, sealed and new.
        arms: by arm, in the recipe's order; empty where either rule gives nothing to train on.
        refused: why ``gapft run`` would have stopped under the new rule; empty: it would not.
    """

    n: tuple[int, int]
    arms: Mapping[Arm, ArmSets] = field(default_factory=dict)
    refused: str = ""


def choose_again(
    run: RunDirectory, scratch: RunDirectory, plugins: Plugins, plugin_files: Sequence[str]
) -> Sets:
    """Has the run's selectors choose from the new states, by the stage that chose from the old.

    Raises:
        PluginError: a selector broke its contract.
    """
    n = run.manifest().get("n", 0)
    try:
        said = select(scratch, plugin_files)
    except PluginError:
        raise
    except UserError as error:
        return Sets((n, 0), refused=str(error))
    both = (n, said["n"])
    if not all(both):
        return Sets(both)
    found = {}
    for arm in arms(run.recipe):
        trainer = plugins.get("trainer", run.recipe.training_of(arm.condition).trainer)
        by_name = not trainer.declared(TrainerTraits).as_documented
        scratch.seal(layout.selection(arm))
        sets = [read_examples(of.path / layout.selection(arm)) for of in (run, scratch)]
        before, after = (Counter(map(_trained, examples)) for examples in sets)
        who = arm.name if by_name else arm.seed  # a trainer may go by the arm's name
        found[arm] = ArmSets(
            before=len(sets[0]),
            after=len(sets[1]),
            same=(before & after).total(),
            trained_on=((who, trained_on(run, arm)), (who, trained_on(scratch, arm))),
        )
    return Sets(both, found)


def _trained(example: Example) -> Hashable:
    """What of an example is trained on, and of which problem."""
    of = example
    return of.problem_id, of.origin, of.prompt_ids, of.response_ids, of.ended
