"""What the manifest tells about arms: their budgets and trainings, from the facts of outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gapft_harness.core.records import Arm
from gapft_harness.engine.outputs import Output
from gapft_harness.engine.step import Step
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.manifest import Manifest
from gapft_harness.stages.experiment.view import View
from gapft_harness.stages.selection.stage import build_condition_facts, read_budget
from gapft_harness.stages.steps import Selections

#: Facts of a training set beside its budget.
_SET_FACTS = ("matched", "ends_unknown", "unverified")

#: In the manifest's facts of an adapter: the arm of this run whose adapter it reuses.
TRAINED_AS = "trained_as"


def record_selections(manifest: Manifest, selections: Selections, recipe: Recipe) -> None:
    """Record n and the budgets of a run's arms; those of arms with an adapter stay."""
    adapters = filter(None, map(layout.parse_path, manifest["files"]))
    trained = {place.arm.name for place in adapters if place.kind == layout.ADAPTERS and place.arm}
    budgets: dict[str, Any] = {
        name: entry for name, entry in manifest["budgets"].items() if name in trained
    }
    for arm, facts in selections.facts.items():
        budgets[arm.name] = {
            **asdict(read_budget(facts)),
            **{
                key: facts[key] for key in ("matched", "ends_unknown", "unverified") if key in facts
            },
            **build_condition_facts(recipe, arm),
        }
    manifest["n"] = selections.n
    manifest["budgets"] = budgets


def describe_training(
    steps: Sequence[Step], outputs: Mapping[str, Output], view: View
) -> dict[str, dict[str, Any]]:
    """Return the trainers' facts on each arm, for the manifest.

    Of arms with equal keys, the one that the manifest had first is the one that was trained. If the
    run's responses may depend on an arm's name, such arms are not named.
    """
    first_by_key: dict[str, str] = {}
    training: dict[str, dict[str, Any]] = {}
    by_name = {Arm(*step.operational["arm"]).name: step for step in steps}
    known = [name for name in view.manifest()["training"] if name in by_name]
    for name in dict.fromkeys([*known, *by_name]):
        step = by_name[name]
        facts = dict(outputs[step.name].facts)
        original = first_by_key.setdefault(step.key, name)
        if original != name:
            facts.pop("seconds", None)
            if view.generates():
                facts = {TRAINED_AS: original, **facts}
        training[name] = facts
    return training
