"""The train stage: train the adapters of the run's arms on the executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from gapft_harness.core.numerics import describe_environment
from gapft_harness.core.records import Arm
from gapft_harness.engine.outputs import Output, Unknown
from gapft_harness.engine.step import Input, Step
from gapft_harness.hooks.registration import ExecutorTraits, TrainerTraits
from gapft_harness.recipe.recipe import (
    build_sampler_settings,
    resolve_model_args,
    select_fixed_args,
)
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.recorded import read_budgets, read_source
from gapft_harness.stages.context import Context
from gapft_harness.stages.descriptions import (
    describe_accelerators,
    describe_argument,
    describe_libraries,
    describe_model,
)
from gapft_harness.stages.experiment.view import View
from gapft_harness.stages.generation.chunks import build_sampled_decoding, read_decoding
from gapft_harness.stages.train.job import train

#: Libraries whose minor versions may change the result of training.
_LIBRARIES = (
    "torch", "transformers", "tokenizers", "peft", "accelerate", "liger-kernel", "trl",
)  # fmt: skip

#: Arguments of a model that ``load_end_token`` reads besides the files of the base.
_END_ARGUMENTS = ("tokenizer", "chat_template_args")


def list_training_steps(view: View) -> list[Step]:
    """List the steps that train the adapters of the view's arms."""
    builder = _TrainingSteps(view)
    return [builder.build(arm) for arm in view.arms()]


@dataclass(frozen=True)
class _TrainingSteps:
    """Builds the steps that train a run's adapters."""

    view: View

    def build(self, arm: Arm) -> Step:
        """Build the step that trains an arm's adapter.

        Equal training sequences give equal keys. A trainer that is not ``as_documented`` may depend
        on the examples and on the arm's name.
        """
        view = self.view
        recipe = view.recipe
        selection = view.output(layout.selection_path(arm))
        budget = view.output(layout.budget_path(arm))
        training = recipe.resolve_training(arm.condition)
        # What every trainer sees
        settings: dict[str, Any] = {
            "trainer": training.trainer,
            "training": training.model_dump(mode="json"),
            "seed": arm.seed,
            "replicate": recipe.conditions[arm.condition].replicate,
            "device": str(self._arguments.get("device", "")).partition(":")[0],
            "chat_template": build_sampler_settings(recipe).chat_template,
            "base": self._base,
        }
        trainer = view.plugins.get("trainer", training.trainer)
        traits = trainer.require_traits(TrainerTraits)
        code = {"trainer": trainer.code_hash}
        inputs: dict[str, Input] = {}
        operational: dict[str, Any] = {}
        # The bundled trainer sees only token ids and the end token; others may read everything
        if traits.as_documented:
            inputs["selection"] = _see_sequences(selection, budget)
            settings["end"] = {  # with the base, these decide the token that ends responses
                key: self._described_arguments.get(key) for key in _END_ARGUMENTS
            }
        else:
            inputs["selection"] = selection
            settings |= {"name": arm.name, "arguments": self._described_arguments}
        # Online training searches itself
        if traits.needs_problems:
            inputs["problems"] = view.output(layout.problems_path("pool"))
            inputs["states"] = view.output(layout.states_path("pool"))
            rules = self._list_rules()
            decoding = build_sampled_decoding(
                read_decoding(view.run.task["decoding"]), recipe.search
            )
            settings["decoding"] = asdict(decoding)
            settings["verifiers"] = [[name, describe_argument(params)] for name, params in rules]
            code |= {
                f"verifier {name}": view.plugins.get("verifier", name).code_hash
                for name, _ in rules
            }
            operational["rules"] = [[name, dict(params)] for name, params in rules]
        return Step(
            layout.adapter_path(arm),
            train,
            settings,
            inputs,
            {name: part for name, part in code.items() if part},
            self._machine,
            {
                **operational,
                "arm": [arm.condition, arm.seed],
                "steps": budget.facts["steps"],
                "model_args": self._arguments,
                "base_sha256": self._source.get("weights_sha256"),
                "threads": recipe.executor.threads_per_worker,
                "checkpoint_steps": recipe.executor.checkpoint_steps,
                "tracker": recipe.tracker,
                "run": str(view.run.path.resolve()),
                "plugin_files": view.plugin_files,
            },
            together="one base",
            verb="train",
        )

    def _list_rules(self) -> list[tuple[str, dict[str, Any]]]:
        """List the task's verifier and its permissive rule, if it has one, with parameters."""
        task = self.view.run.task
        name = task["verifier"]
        params = task["verifier_params"]
        rules = [(name, params)]
        other = self.view.plugins.find_other_verifier(name, params)
        if other is not None and other.permissive:
            rules.append((other.name, dict(other.params)))
        return rules

    @cached_property
    def _source(self) -> dict[str, Any]:
        """The description of the model that the search used."""
        return read_source(self.view.run)

    @cached_property
    def _arguments(self) -> dict[str, Any]:
        return resolve_model_args(self.view.recipe)

    @cached_property
    def _described_arguments(self) -> dict[str, Any]:
        backend = self.view.recipe.model.backend
        fixed = select_fixed_args(backend, self._arguments, self.view.plugins)
        return {
            key: describe_argument(value) for key, value in fixed.items() if key != "pretrained"
        }

    @cached_property
    def _base(self) -> dict[str, Any]:
        base, is_known = describe_model(self._arguments)
        if not is_known:
            base["reported"] = {"weights_sha256": self._source.get("weights_sha256")}
        return base

    @cached_property
    def _machine(self) -> dict[str, Any]:
        return {
            "libraries": describe_libraries(_LIBRARIES),
            "accelerators": describe_accelerators(),
            "environment": describe_environment(),
        }


def _see_sequences(selection: Output | Unknown, budget: Output | Unknown) -> Output | Unknown:
    """Return a training set whose content is that of its sequences."""
    if isinstance(selection, Unknown):
        return selection
    return replace(selection, seen=str(budget.facts["sequences_sha256"]))


def divide_steps(context: Context, steps: Sequence[Step]) -> list[Step]:
    """Divide training steps among workers, with about equal numbers of tokens.

    The steps of a worker share a base that is loaded once. An executor that ignores ``workers``
    gets each step alone.

    Args:
        context: the run.
        steps: the steps whose adapters are trained.

    Returns:
        The steps, the longest first.
    """
    budgets = read_budgets(context.run)
    tokens = {step.name: budgets[Arm(*step.operational["arm"]).name]["tokens"] for step in steps}
    ordered = sorted(steps, key=lambda step: (-tokens[step.name], step.name))
    entry = context.plugins.get("executor", context.run.recipe.executor.name)
    follows_workers = entry.require_traits(ExecutorTraits).by_workers
    workers = context.run.recipe.executor.workers if follows_workers else len(ordered)
    loads = [0] * min(workers, len(ordered))
    divided = []
    for step in ordered:
        lightest = loads.index(min(loads))
        loads[lightest] += tokens[step.name]
        divided.append(replace(step, together=f"worker {lightest + 1}"))
    return divided
