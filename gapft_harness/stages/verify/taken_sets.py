"""What ``gapft verify`` checks of training sets that were taken from another run.

Much needs that run. Where it is not here, a set is held to this run's pool, and what could not be
verified is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from gapft_harness.core.records import Arm, Example
from gapft_harness.hooks.manager import Plugins
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.facts import BudgetFacts, Manifest
from gapft_harness.run_directory.tables import read_problems
from gapft_harness.stages.differences import Differences
from gapft_harness.stages.foundation.sources import file_of, taken_arm
from gapft_harness.stages.search.rejudging import Rejudge
from gapft_harness.stages.selection.taking import Taking, differing_keys, with_response


class TakenSets:
    """Holds a run's taken sets to its recipe, to its pool, and to the runs they were taken from.

    Args:
        run: the run that has taken them.
        manifest: its manifest.
        plugins: those that are loaded.
        judge: judges their responses again.
    """

    def __init__(
        self, run: RunDirectory, manifest: Manifest, plugins: Plugins, judge: Rejudge
    ) -> None:
        self._run, self._manifest, self._judge = run, manifest, judge
        self._taking = Taking(run, plugins)
        self._prompts: dict[str, tuple[int, ...]] = {}

    def check(self, arm: Arm, examples: Sequence[Example], found: Differences) -> None:
        """One arm's sealed set; what holds of it is said only if nothing differs."""
        before, where = len(found.differences), layout.selection(arm)
        found.gather(where, partial(self._named, arm))
        found.gather(where, partial(self._of_pool, arm, examples))
        found.gather(where, partial(self._as_taken, arm, examples))
        if len(found.differences) == before:
            found.checked += self._told(arm)

    def _entry(self, arm: Arm) -> BudgetFacts:
        return self._manifest["budgets"].get(arm.name, {})

    def _named(self, arm: Arm) -> Iterable[str]:
        """The set was taken from the run and the arm that the recipe names."""
        taken = self._entry(arm).get("taken")
        if taken is None:
            yield (
                f"manifest.json: the budget of {arm.name} does not say where its set was taken from"
            )
            return
        condition = self._run.recipe.conditions[arm.condition]
        wanted = {"run": condition.run, "arm": taken_arm(arm, condition).name}
        for key, value in wanted.items():
            if taken.get(key) != value:
                yield (
                    f"manifest.json: the set of {arm.name} was taken from {key} "
                    f"{taken.get(key)}, the recipe's conditions.{arm.condition} gives {value}"
                )

    def _of_pool(self, arm: Arm, examples: Sequence[Example]) -> Iterable[str]:
        """Every example is a problem of this run's pool, with that problem's prompt."""
        where, known = layout.selection(arm), self._pool()
        for slot, example in enumerate(examples):
            who = f"{where}: slot {slot}, problem {example.problem_id}"
            if lacking := sorted({example.problem_id, example.origin} - known.keys()):
                yield f"{who}: {', '.join(lacking)} is no problem of this run's pool"
            elif not self._converses() and example.prompt_ids != known[example.problem_id]:
                yield f"{who}: has other prompt tokens than this run's pool has for it"

    def _pool(self) -> dict[str, tuple[int, ...]]:
        if not self._prompts:
            problems = read_problems(self._run.path / layout.problems("pool"))
            self._prompts = {problem.id: prompt_ids for problem, prompt_ids in problems}
        return self._prompts

    def _converses(self) -> bool:
        """Whether an example may follow earlier attempts, so that its prompt is no problem's."""
        episode = self._manifest["task"].get("episode")
        return episode is not None and episode["attempts"] > 1

    def _as_taken(self, arm: Arm, examples: Sequence[Example]) -> Iterable[str]:
        """It is the set that the other run has, and its responses pass when judged again."""
        entry, where = self._entry(arm), layout.selection(arm)
        file = file_of(entry)
        if file is None or not file.exists():
            return  # told for every command, see ``sources.source_states``
        source = RunDirectory.open(file.parent.parent)
        again = self._taking.take(arm, source)
        for key, value in again.said().items():
            if (found := entry.get(key)) != value:
                yield (
                    f"manifest.json: the budget of {arm.name} has {key} = {found}, and its "
                    f"set, taken again from {file}, gives {value}"
                )
        if len(examples) != len(again.examples):
            yield f"{where}: holds {len(examples)} examples, {file} holds {len(again.examples)}"
        for slot, (one, other) in enumerate(zip(examples, again.examples, strict=False)):
            if one != other:
                yield (
                    f"{where}: slot {slot}, problem {one.problem_id}: is not that of {file}; "
                    f"differing: {differing_keys(one, other)}"
                )
        condition = taken_arm(arm, self._run.recipe.conditions[arm.condition]).condition
        yield from self._passed(source, condition, again.examples)

    def _passed(
        self, source: RunDirectory, condition: str, examples: Sequence[Example]
    ) -> Iterable[str]:
        known = self._taking.known(source, condition)
        pairs = []
        for example in examples:  # each is this evidence, with a gold that this run has too
            lender = known[example.origin]
            response = with_response(lender, example.response_index).response
            assert response is not None
            pairs.append((lender.gold, response))
        yield from self._judge.passed(source.path / layout.responses("pool"), pairs)

    def _told(self, arm: Arm) -> Iterable[str]:
        entry = self._entry(arm)
        file = file_of(entry)
        if file is None or not file.exists():
            own = "" if entry.get("matched", True) else ", and that its budget is its own,"
            prompts = " (prompts after earlier attempts apart)" if self._converses() else ""
            yield (
                f"{arm.name}: each example is a problem of this run's pool with its prompt"
                f"{prompts}; that its responses passed{own} was not verified, for what it was "
                "taken from is not here"
            )
            return
        judged = (
            "and passed again" if self._judge.verifier else "by its record, not judged again here"
        )
        yield (
            f"{arm.name} was compared with the set that it was taken from, {file}: each a response "
            f"that passed there, {judged}, to a problem of this run's pool"
        )
