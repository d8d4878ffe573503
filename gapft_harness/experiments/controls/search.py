"""The three panels of Table 2: search depth, randomized inclusion, gold labels."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from gapft_harness import api
from gapft_harness.analysis.decomposition import compute_gain_share
from gapft_harness.api import layout, listed, percent, wording
from gapft_harness.experiments.controls.control import (
    Control,
    ControlPart,
    ControlStep,
    compare_with_first,
    compute_seed_differences,
    find_steps_by_parameter,
    find_steps_with_gapft,
)
from gapft_harness.experiments.controls.tested import PermutationSettings, TestedPart


class SearchDepth(Control):
    """Measures what each sample of the search adds in place of replay (Table 2, panel A)."""

    name = "search_depth"
    section: type[api.RecipeSection] = PermutationSettings
    requirement = (
        "two conditions or more of the selector search_depth, such as depth_0: {selector: "
        "search_depth, params: {k: 0}} and depth_8: {selector: search_depth, params: {k: 8}}"
    )

    title = "Search depth"
    axis = "samples that search may use"

    def part(self) -> ControlPart:
        """Return the part of the report."""
        return DepthPart(self)

    def find_steps(self, conditions: Mapping[str, api.Condition]) -> Sequence[ControlStep]:
        """Return the steps by ascending k."""
        return find_steps_by_parameter(conditions, self.name, "k", lambda k: f"K = {k}")

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Control.settings``.

        Raises:
            UserError: also if a k is larger than the number of samples of the search.
        """
        settings = super().settings(recipe, options)
        for step in self.find_steps(recipe.conditions) if settings is not None else ():
            if step.value is not None and step.value > recipe.search.k:
                raise api.UserError(
                    f"recipe {recipe.name}: key 'conditions.{step.condition}.params.k': "
                    f"{step.value}: expected at most search.k, {recipe.search.k} samples"
                )
        return settings


class DepthPart(TestedPart):
    """The part of the report: each depth minus the first, and its share of the deepest gain."""

    def write_remark(self, findings: api.ReportFindings, part_findings: Any) -> str:
        """Describe the shares of gain and of slots (Section 5, "Replacing replay ...")."""
        return describe_shares(findings, self.list_steps(part_findings)) + super().write_remark(
            findings, part_findings
        )


def describe_shares(findings: api.ReportFindings, steps: Sequence[ControlStep]) -> str:
    """Describe each depth's share of the deepest one's gain, and of slots with recovered failures.

    Args:
        findings: the findings of the report.
        steps: the depths, the reference first.

    Returns:
        A sentence after a space; empty: no share is defined.
    """
    *others, last = zip(steps[1:], compare_with_first(findings, steps), strict=True)
    share_texts = []
    for step, contrast in others:
        gain = compute_gain_share(contrast.delta, last[1].delta)
        slots = [
            Fraction(slot_counts["S"], sum(slot_counts.values()))
            for slot_counts in step.slots.values()
            if any(slot_counts.values())
        ]
        if gain is not None and slots:
            filled_share = percent(sum(slots, Fraction(0)) / len(slots))
            share_texts.append(
                f"{step.label} has {percent(gain)} of that gain, with {filled_share} of the slots"
            )
    return f" {listed(share_texts)}; the other slots are replay." if share_texts else ""


class RandomizedInclusion(Control):
    """Measures the value of failures that only deep search recovers (Table 2, panel B)."""

    name = "randomized_inclusion"
    section = PermutationSettings
    requirement = (
        "two conditions or more of the selector randomized_inclusion, such as late_0: {selector: "
        "randomized_inclusion, params: {share: 0}} and late_100: {selector: randomized_inclusion, "
        "params: {share: 1}}"
    )

    title = "Randomized inclusion"
    axis = "share of the failures that late samples recover first"

    def part(self) -> ControlPart:
        """Return the part of the report."""
        return TestedPart(self)

    def find_steps(self, conditions: Mapping[str, api.Condition]) -> Sequence[ControlStep]:
        """Return the steps by ascending share."""
        return find_steps_by_parameter(
            conditions, self.name, "share", lambda share: f"{100 * share:g}%"
        )

    def settings(self, recipe: api.Recipe, options: Mapping[str, str] | None = None) -> Any:
        """See ``Control.settings``.

        Raises:
            UserError: also if conditions differ in the parameter ``within``.
        """
        settings = super().settings(recipe, options)
        if settings is not None:
            self._check_within(recipe)
        return settings

    def _check_within(self, recipe: api.Recipe) -> None:
        names: Sequence[str] = self.conditions(recipe)
        within = {name: recipe.conditions[name].params.get("within", 4) for name in names}
        if len({*map(str, within.values())}) > 1:
            value_texts = ", ".join(f"{name} {value}" for name, value in within.items())
            raise api.UserError(
                f"recipe {recipe.name}: key 'experiments.{self.name}': expected the same parameter "
                f"within in all compared conditions, found {value_texts}"
            )


class GoldLabels(Control):
    """Compares failures selected by gold answers with GapFT, on the same targets (Table 2, C)."""

    name = "gold_labels"
    section = PermutationSettings
    requirement = (
        "a condition of the selector gapft and one of gold_labels, such as gapft: {} and gold: "
        "{selector: gold_labels}"
    )

    title = "Gold-label selection"

    def part(self) -> GoldPart:
        """Return the part of the report."""
        return GoldPart(self)

    def find_steps(self, conditions: Mapping[str, api.Condition]) -> Sequence[ControlStep]:
        """Return GapFT, then the selections by gold answers; none without GapFT."""
        return find_steps_with_gapft(conditions, self.name)

    def find_mismatches(self, run: api.RunDirectory, arms: Sequence[api.Arm]) -> Iterator[str]:
        """Report properties that GapFT and gold-label selection must share but do not."""
        for gapft, gold in self._list_pairs(run, arms):
            yield from compare_training_sets(run, gapft, gold)

    def warnings(self, view: api.View) -> Iterator[str]:
        """Report how many slots gold-label selection keeps from GapFT."""
        for gapft, gold in self._list_pairs(view.run, view.arms()):
            yield from find_kept_slots(view.run, gapft, gold)

    def _list_pairs(
        self, run: api.RunDirectory, arms: Sequence[api.Arm]
    ) -> Iterator[tuple[api.Arm, api.Arm]]:
        first, *others = self.conditions(run.recipe)
        for arm in arms:
            if arm.condition in others and api.Arm(first, arm.seed) in arms:
                yield api.Arm(first, arm.seed), arm


def count_kept_slots(
    run_path: Path, conditions: Mapping[str, Any], search: api.Arm, gold: str
) -> int:
    """Count targets of a search that contain more than the answer; gold labels keep their slots.

    Args:
        run_path: the run directory.
        conditions: the conditions of the run by name.
        search: the arm whose targets gold-label selection uses.
        gold: the condition of gold-label selection.
    """
    if not conditions[gold].params.get("answer_only", True):
        return 0
    golds = {p.id: p.gold for p, _ in api.read_problems(run_path / layout.problems_path("pool"))}
    chosen_responses = {
        (e.problem_id, e.response_index)
        for e in api.read_examples(run_path / layout.selection_path(search))
        if e.state == "S"
    }
    names = ("problem_id", "index", "text")
    columns = api.read_columns(run_path / layout.responses_path("pool"), names)
    return sum(
        (problem, index) in chosen_responses and not api.is_answer_alone(text, golds[problem])
        for problem, index, text in zip(*(columns[name] for name in names), strict=True)
    )


def find_kept_slots(run: api.RunDirectory, search: api.Arm, gold: api.Arm) -> Iterator[str]:
    """Describe how many slots gold-label selection keeps from a search; nothing if none."""
    if count := count_kept_slots(run.path, run.recipe.conditions, search, gold.condition):
        yield (
            f"{gold.name}: {count:,} slots keep the example of {search.name}, because its target "
            "contains more than the answer"
        )


def add_kept_slots(
    run_path: Path, conditions: Mapping[str, api.Condition], search: ControlStep, gold: ControlStep
) -> ControlStep:
    """Add to a step of gold labels how many slots it keeps from the step of a search."""
    arms = {seed: api.Arm(search.condition, seed) for seed in gold.slots if seed in search.slots}
    kept_by_seed = {
        s: count_kept_slots(run_path, conditions, arm, gold.condition) for s, arm in arms.items()
    }
    return replace(gold, kept=kept_by_seed)


def describe_kept_slots(steps: Sequence[ControlStep]) -> str:
    """Describe kept slots for the report, after a space; empty if none."""
    slot_texts = [
        f"{wording.format_count(count)} of {wording.format_count(sum(step.slots[seed].values()))} "
        f"slots of {step.label} under seed {seed}"
        for step in steps
        for seed, count in step.kept.items()
        if count
    ]
    if not slot_texts:
        return ""
    return (
        f" Not exchanged: {listed(slot_texts)}, which keep the example of the search, because its "
        "target contains more than the answer."
    )


def compare_training_sets(run: api.RunDirectory, gapft: api.Arm, gold: api.Arm) -> Iterator[str]:
    """Report properties that two sealed training sets must share but do not.

    Args:
        run: the run.
        gapft: the arm whose targets are used.
        gold: the arm of gold-label selection.
    """
    golds = {p.id: p.gold for p, _ in api.read_problems(run.path / layout.problems_path("pool"))}
    gapft_examples, gold_examples = (
        api.read_examples(run.path / layout.selection_path(arm)) for arm in (gapft, gold)
    )
    for fault in find_differences(
        gapft_examples, gold_examples, golds, run.recipe.resolve_training(gapft.condition)
    ):
        yield (
            f"arms {gapft.name} and {gold.name} {fault}; expected the same targets and as many "
            "problems of each gold answer. If sequences are truncated, raise training.max_length"
        )


def find_differences(
    gapft: Sequence[api.Example],
    gold: Sequence[api.Example],
    golds: Mapping[str, Any],
    training: api.Training,
) -> Iterator[str]:
    """Find properties that two training sets must share but do not.

    Args:
        gapft: the examples whose targets are used.
        gold: the examples of gold-label selection.
        golds: gold answers by problem id.
        training: the training settings, which decide the budget.

    Yields:
        Ends of sentences, such as ``differ in ...``.
    """
    targets = [Counter((e.response_ids, e.ended) for e in examples) for examples in (gapft, gold)]
    if targets[0] != targets[1]:
        n_more = sum((targets[1] - targets[0]).values())
        yield f"differ in {n_more} of {len(gold)} target strings"
    classes = [Counter(_read_answer(golds[e.problem_id]) for e in es) for es in (gapft, gold)]
    for answer in sorted({*classes[0], *classes[1]}):
        if classes[0][answer] != classes[1][answer]:
            yield (
                f"have {classes[0][answer]} and {classes[1][answer]} problems of the gold answer "
                f"{answer}"
            )
            break
    gapft_budget, gold_budget = (api.budget(examples, training) for examples in (gapft, gold))
    for key in ("supervised_tokens", "exposures", "steps"):
        a, b = getattr(gapft_budget, key), getattr(gold_budget, key)
        if a != b:
            yield f"differ in {key}: {a} and {b}"
    example_by_problem = {e.problem_id: e for e in gapft}
    for e in gold:
        source_example = example_by_problem.get(e.origin)
        if e.state == "G" and e.origin == e.problem_id:
            continue  # replay that both share
        if source_example is None or (
            source_example.response_ids, source_example.response_index,
        ) != (e.response_ids, e.response_index):  # fmt: skip
            yield (
                f"have a target that GapFT does not have: problem {e.problem_id}, origin {e.origin}"
            )
            break


def _read_answer(gold: Any) -> str:
    """Return the gold answer as a text, without the options of its problem."""
    answer = gold.get("answer", gold) if isinstance(gold, Mapping) else gold
    return answer if isinstance(answer, str) else json.dumps(answer, sort_keys=True)


class GoldPart(TestedPart):
    """The part of the report: gold-label selection minus GapFT, with signs of all seeds."""

    def read(
        self, run_path: Path, manifest: Mapping[str, Any], arms: Sequence[api.Arm]
    ) -> tuple[ControlStep, ...] | None:
        """Read the steps, and how many slots gold-label selection keeps from GapFT."""
        steps = super().read(run_path, manifest, arms)
        if steps is None:
            return None
        conditions = api.conditions_of(manifest["recipe"])
        return (
            steps[0],
            *(add_kept_slots(run_path, conditions, steps[0], step) for step in steps[1:]),
        )

    def write_remark(self, findings: api.ReportFindings, part_findings: Any) -> str:
        """Describe the signs of all seeds, and what the two conditions share."""
        steps = self.list_steps(part_findings)
        sign_texts = []
        for step, contrast in zip(steps[1:], compare_with_first(findings, steps), strict=True):
            deltas = compute_seed_differences(findings, contrast).values()
            n_below, n_above = sum(d < 0 for d in deltas), sum(d > 0 for d in deltas)
            sign_texts.append(
                f"{step.label} is below {steps[0].label} for {n_below} of {len(deltas)} seeds and "
                f"above it for {n_above}"
            )
        return (
            f" {wording.capitalize_first('; '.join(sign_texts))}. Both have the same target "
            "strings, supervised tokens, exposures and steps, and as many problems of each gold "
            f"answer; this was checked.{describe_kept_slots(steps)}"
            f"{super().write_remark(findings, part_findings)}"
        )
