"""Describe a run without making anything (``gapft run --dry-run``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapft_harness.cli.options import Options
from gapft_harness.cli.runs import map_keys_to_options, resolve_chat_template, resolve_run
from gapft_harness.core.cpu import describe_slow_dtype
from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.offline import force_offline
from gapft_harness.core.pretrained import build_meta_model, load_config
from gapft_harness.core.records import Arm, Problem
from gapft_harness.core.weights import find_weights_folder
from gapft_harness.engine.outputs import NotKnownYet
from gapft_harness.engine.planner import Planner
from gapft_harness.engine.run import RECORDS, Run
from gapft_harness.engine.step import Step
from gapft_harness.engine.store import open_store
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.registration import SamplerTraits, SelectorTraits
from gapft_harness.recipe.called_plugins import check_names
from gapft_harness.recipe.conditions import find_own_settings
from gapft_harness.recipe.reading import format_recipe
from gapft_harness.recipe.recipe import Recipe, build_sampler_settings, resolve_model_args
from gapft_harness.report.names import format_own_setting
from gapft_harness.run_directory.directory import (
    RunDirectory,
    Split,
    list_arms,
    list_recorded_include_paths,
    list_splits,
    name_missing_plugins,
)
from gapft_harness.stages.decode import build_decoder
from gapft_harness.stages.experiment.loading import load_experiments
from gapft_harness.stages.experiment.protocol import Experiment
from gapft_harness.stages.experiment.view import View
from gapft_harness.stages.search.data import check_splits, hash_problems
from gapft_harness.stages.search.stage import (
    build_search_step,
    describe_stored_parts,
    needs_model,
)
from gapft_harness.stages.search.trainable import NotTrainable, check_trainable
from gapft_harness.stages.selection.budgets import describe_planned_budget
from gapft_harness.stages.selection.stage import list_replicate_warnings
from gapft_harness.stages.steps import (
    follow_experiment,
    list_audit_steps,
    make_selections,
    make_states,
)
from gapft_harness.stages.train.requirements import (
    describe_adapted_modules,
    explain_refused_kernels,
    find_end_tokens,
    list_missing_packages,
    list_reward_warnings,
)
from gapft_harness.stages.train.stage import list_training_steps

#: The last line of a dry run if the run itself can start.
NOTHING_MISSING = "nothing: this recipe can run"
#: A model whose weights have more bytes than this is too slow to train without a GPU.
_LARGE_MODEL_BYTES = 4e9


@dataclass
class _DryRun:
    """The inputs of a dry run, and what it found so far.

    Attributes:
        recipe: the recipe, with the conditions and seeds that the run already has.
        path: the run directory, which need not exist.
        plugins: the loaded plugins.
        options: the command's options.
        problems: the problems by split; empty if the data cannot be read.
        task: the task's settings, as ``check_splits`` returns them; empty without data.
        warnings: sentences on settings and data.
        missing: what the run needs and this machine does not have.
    """

    recipe: Recipe
    path: Path
    plugins: Plugins
    options: Options
    problems: dict[Split, Sequence[Problem]] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def has_run(self) -> bool:
        """Whether the run exists."""
        return (self.path / RECORDS).exists()

    def build_planner(self) -> Planner:
        """Build a planner of the run's outputs."""
        return Planner(Run(self.path), open_store(self.path))


@force_offline()
def describe_dry_run(options: Options, run_dir: Path | None) -> str:
    """Return the text of a dry run. No model is loaded; nothing is written or downloaded.

    Args:
        options: the command's options.
        run_dir: the run directory, which need not exist; None for ``runs/NAME``.

    Raises:
        UserError: the recipe is invalid, it names an unknown plugin or task, or the run directory
            cannot be used.
    """
    recipe, path = resolve_run(options, run_dir)
    plugins = load_plugins(options.plugin_files)
    with name_missing_plugins(path):
        warnings = list_replicate_warnings(recipe)
        try:
            recipe, note = resolve_chat_template(recipe, path, plugins)
            warnings += filter(None, [note])
        except GapftError as error:
            warnings.append(f"model.chat_template: cannot be determined: {error}")
        # the run's recipe also has the conditions and seeds that are already trained
        recipe, changes = RunDirectory.compare_recipe(path, recipe, plugins)
        check_names(recipe, plugins)
        experiments = load_experiments(recipe, plugins, map_keys_to_options(options))
    dry_run = _DryRun(recipe, path, plugins, options, warnings=warnings)
    _read_data(dry_run)
    model_lines = _examine_model(dry_run)
    dry_run.missing += list_missing_packages(recipe, plugins)
    dry_run.missing += filter(None, [explain_refused_kernels(recipe, plugins)])
    if changes:
        dry_run.warnings.append(f"dependent results are recomputed: {'; '.join(changes)}")
    sections = {
        "resolved recipe": [format_recipe(recipe)],
        "conditions": [*_describe_conditions(dry_run), *model_lines],
        "steps": [*_describe_steps(dry_run, experiments)],
        "warnings": dry_run.warnings,
        "missing here": [*dict.fromkeys(dry_run.missing)] or [NOTHING_MISSING],
    }
    return "\n\n".join(
        "\n".join([f"# {title}", *lines]).rstrip() for title, lines in sections.items() if lines
    )


def _read_data(dry_run: _DryRun) -> None:
    """Read the data of all splits, or note why this is impossible."""
    from gapft_harness.lm_eval_bridge.benchmarks.splits import DataNotFound
    from gapft_harness.lm_eval_bridge.discovery import TaskNotFound

    paths = dry_run.options.include_paths or list_recorded_include_paths(dry_run.path)
    try:
        split_data, dry_run.task = check_splits(dry_run.recipe, dry_run.plugins, paths)
    except TaskNotFound:
        raise
    except DataNotFound as error:
        dry_run.missing.append(
            f"data: {error}; a dry run downloads nothing, but the run will try to"
        )
        return
    except GapftError as error:
        dry_run.missing.append(f"data: {error}")
        return
    dry_run.problems = {split: data.problems for split, data in split_data.items()}
    dry_run.warnings += [
        f"{split}: {warning}" for split, data in split_data.items() for warning in data.warnings
    ]
    dry_run.warnings += list_reward_warnings(dry_run.recipe, dry_run.task, dry_run.plugins)
    try:
        check_trainable(dry_run.recipe, dry_run.plugins, dry_run.problems["pool"], dry_run.task)
    except NotTrainable as error:
        dry_run.missing.append(str(error))
    except UserError:  # without a tokenizer on this machine, which is noted elsewhere
        pass


def _examine_model(dry_run: _DryRun) -> list[str]:
    """Note what is wrong with the model; describe end tokens and memory of training."""
    from gapft_harness.training.devices import resolve_device

    recipe = dry_run.recipe
    arguments = resolve_model_args(recipe)
    # The sampler's own check
    sampler = dry_run.plugins.get("sampler", recipe.model.backend)
    try:
        if (check := sampler.require_traits(SamplerTraits).check) is not None:
            with sampler.wrap_errors():
                check(build_sampler_settings(recipe))
    except GapftError as error:
        dry_run.missing.append(f"model: {error}")
        return []
    try:
        find_weights_folder(arguments)
    except (OSError, ValueError):
        revision = f" at revision {arguments['revision']}" if "revision" in arguments else ""
        dry_run.missing.append(
            f"model {arguments['pretrained']}{revision}: neither a folder nor in the hub's cache; "
            "the run would download it from the hub"
        )
        return []
    try:
        # End tokens, adapted modules and memory, from the configuration alone
        ends = find_end_tokens(recipe, dry_run.plugins)
        model = build_meta_model(arguments, dtype=recipe.training.dtype)
        lines, warnings = describe_adapted_modules(recipe, dry_run.plugins, model)
        dry_run.warnings += warnings
        if recipe.model.backend == "hf":
            device = resolve_device(recipe.model.args.get("device")).type
            dtype = arguments.get("dtype") or "auto"
            dtype = str(load_config(arguments).dtype if dtype == "auto" else dtype)
            dry_run.warnings += filter(
                None, [describe_slow_dtype(device, dtype, "--model-args dtype=float32")]
            )
        return [*_describe_end_tokens(ends), *lines, _describe_memory(dry_run, model)]
    except GapftError as error:
        dry_run.missing.append(str(error))
        return []


def _describe_end_tokens(ends: Mapping[str, Any]) -> Iterator[str]:
    """Describe which token ends the trained responses of each condition."""
    conditions: dict[str, list[str]] = {}
    for condition, end in ends.items():
        text = "no end token is supervised" if end is None else f"{end.text!r} ({end.id})"
        conditions.setdefault(text, []).append(condition)
    for text, names in conditions.items():
        yield f"end token: {text}" + (f" in {', '.join(names)}" if len(conditions) > 1 else "")


def _describe_memory(dry_run: _DryRun, model: Any) -> str:
    """Describe the memory of a training process; note a large model without a GPU."""
    from gapft_harness.training.devices import resolve_device
    from gapft_harness.training.memory import estimate_memory, measure_usable_memory

    recipe = dry_run.recipe
    settings = [recipe.resolve_training(name) for name in recipe.conditions]
    largest = max((estimate_memory(model, s) for s in settings), key=lambda e: e.total)
    device = resolve_device(recipe.model.args.get("device"))
    chooses_device_here = recipe.executor.address is None and "device" not in recipe.model.args
    if largest.weights > _LARGE_MODEL_BYTES and device.type == "cpu" and chooses_device_here:
        dry_run.missing.append(
            "GPU: torch finds none, so that this model would be trained on the CPU; to allow that, "
            "set model.args.device: cpu"
        )
    usable = measure_usable_memory(device) / 1e9
    return f"memory: training holds {largest}; {usable:.3g} GB may be used on {device}"


def _describe_conditions(dry_run: _DryRun) -> Iterator[str]:
    """Describe each condition with n, N and J; equal descriptions share a line."""
    recipe = dry_run.recipe
    names_by_text: dict[str, list[str]] = {}
    own_settings = find_own_settings(recipe.model_dump(mode="json"))
    originals = recipe.map_replicates()
    for name, condition in recipe.conditions.items():
        details = [] if condition.selector == name else [condition.selector]
        if name in originals:
            details.append(f"trains {originals[name]} again")
        details += [
            format_own_setting(*item, recipe.search.k) for item in own_settings[name].items()
        ]
        selector = dry_run.plugins.get("selector", condition.selector)
        if selector.require_traits(SelectorTraits).budget == "own":
            details.append("a slot for each verified problem, as a reference")
        else:
            has_own = bool(own_settings[name]) or condition.n is not None
            details += describe_planned_budget(recipe, name if has_own else None)
        names_by_text.setdefault("; ".join(details), []).append(name)
    for text, names in names_by_text.items():
        yield f"{', '.join(names)}: {text}"


def _describe_steps(dry_run: _DryRun, experiments: Sequence[Experiment]) -> Iterator[str]:
    """Describe the reused and the new work of each stage, with reasons."""
    if not dry_run.problems:
        yield "not known, because the data cannot be read"
        return
    view = View(
        RunDirectory(dry_run.path, dry_run.recipe),
        dry_run.plugins,
        list_arms(dry_run.recipe),
        dry_run.options.plugin_files,
    )
    sizes = [f"{split} {len(problems):,}" for split, problems in dry_run.problems.items()]
    yield f"problems: {', '.join(sizes)}"
    try:
        yield from _describe_searches(dry_run, view)
        yield from _describe_arms(dry_run, view)
        counts = {split: len(problems) for split, problems in dry_run.problems.items()}
        for experiment in experiments:
            yield from _describe_experiment(dry_run, experiment, counts, view)
    except GapftError as error:
        yield f"cannot be determined: {error}"


def _describe_searches(dry_run: _DryRun, view: View) -> Iterator[str]:
    """Describe the search of each split, and add its output to the view."""
    recipe = dry_run.recipe
    planner = dry_run.build_planner()
    builder = build_decoder(recipe, dry_run.task, {}, dry_run.path, dry_run.options.plugin_files)
    for split in list_splits(recipe):
        problems = dry_run.problems[split]
        step = build_search_step(builder, split, hash_problems(problems))
        view.add(planner([step]))
        subject = f"search {split}"
        if split not in planner.new:
            yield f"{subject}: {'in the run' if split in planner.in_run else 'reused'}"
        elif logs := recipe.search.list_logs(split):
            yield f"{subject}: takes the responses of {', '.join(logs)}"
        elif needs_model(step):
            yield f"{subject}: known once the model is loaded: its files are not on this machine"
        else:
            text = describe_stored_parts(step, problems, open_store(dry_run.path))
            reason = planner.new[split]
            yield f"{subject}: {text}{f' ({reason})' if reason else ''}"


def _describe_arms(dry_run: _DryRun, view: View) -> Iterator[str]:
    """Describe which adapters are trained and decoded; of equal keys one is counted."""
    arms = view.arms()
    count = len(dry_run.problems["audit"])
    arms_with_adapter: list[Arm] = []
    try:
        planner, steps = _plan_trainings(dry_run, view)
    except NotKnownYet:
        yield f"train: known after selection; at most {len(arms)} adapters"
    else:
        new = [step for step in steps if step.name in planner.new]
        work = sum(int(step.operational["steps"]) for step in new)
        yield f"train: {_describe_outputs(planner, f' ({work:,} steps)')}"
        arms_with_adapter = [Arm(*step.operational["arm"]) for step in steps if step not in new]
    most = f"at most {len(arms)} x {count:,} = {len(arms) * count:,} responses"
    if not arms_with_adapter:
        yield f"audit: known after training; {most}"
        return
    planner = dry_run.build_planner()
    planner(list_audit_steps(view.with_arms(arms_with_adapter)))
    missing_count = len(steps) - len(arms_with_adapter)
    rest = f", {missing_count} not trained yet" if missing_count else ""
    yield f"audit: {_describe_outputs(planner)}{rest}"


def _plan_trainings(dry_run: _DryRun, view: View) -> tuple[Planner, list[Step]]:
    """Plan the trainings of a view's arms; of steps with equal keys the first is returned.

    Raises:
        NotKnownYet: states or selections are not made yet.
    """
    if not dry_run.has_run:
        raise NotKnownYet("the run does not exist yet")
    planner = dry_run.build_planner()
    make_states(view, planner)
    make_selections(view, planner)
    # reversed twice: of equal keys the first step is kept, in order
    steps = {step.key: step for step in reversed(list_training_steps(view))}
    planner = dry_run.build_planner()
    view.add(planner(steps.values()))
    return planner, [*reversed(steps.values())]


def _describe_experiment(
    dry_run: _DryRun, experiment: Experiment, counts: Mapping[str, int], view: View
) -> Iterator[str]:
    """Describe the steps of an experiment that are known, or else its cost."""
    planner = dry_run.build_planner()
    if dry_run.has_run:
        with suppress(NotKnownYet):
            follow_experiment(view, planner, experiment)
    if known := _describe_outputs(planner):
        yield f"{experiment.name}: {known}"
    elif costs := experiment.cost(dry_run.recipe, {**counts, "adapters": len(view.arms())}):
        yield f"{experiment.name}: {'; '.join(costs)}"


def _describe_outputs(planner: Planner, work: str = "") -> str:
    """Describe how many outputs are in the run, in the store, or new.

    ``work`` describes the new ones.
    """
    reasons = "; ".join(filter(None, dict.fromkeys(planner.new.values())))
    parts = [
        f"{len(planner.in_run)} in the run" if planner.in_run else "",
        f"{len(planner.stored)} reused" if planner.stored else "",
        f"{len(planner.new)} new{work}{f': {reasons}' if reasons else ''}" if planner.new else "",
    ]
    return ", ".join(filter(None, parts))
