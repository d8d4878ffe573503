"""Estimate before a run what it needs: problems, responses, steps, memory, disk; list its progress.

Where a count depends on the search, an upper bound is given. Only the model's config is loaded.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import Plugins
from gapft_harness.recipe.recipe import Recipe, resolve_model_args
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import (
    SPLITS,
    RunDirectory,
    Split,
    list_arms,
    list_splits,
)
from gapft_harness.stages.context import find_slots
from gapft_harness.stages.experiment import Cost, Experiment, View, count_finished_steps
from gapft_harness.stages.train.requirements import predict_shared
from gapft_harness.training.plan import TrainingSequence, count_steps

if TYPE_CHECKING:
    from gapft_harness.training.memory import MemoryEstimate

_GB = 1e9
#: Bytes of a generated token in the store and in a table together; a generous estimate.
_BYTES_A_TOKEN = 16
#: The number of weights in a model's name, in billions: Llama-3.1-8B-Instruct, deepseek-coder-6.7b,
#: Mixtral-8x7B, my-8Bchat; model-8bit does not match.
_BILLIONS = re.compile(r"(?<![\d.])(?:(\d+)[xX])?(\d+(?:\.\d+)?)(?:B(?![iI][tT])|b(?![a-zA-Z]))")
#: Models whose weights have more bytes than this are too slow to train without a GPU.
LARGE_MODEL_BYTES = 4e9


@dataclass(frozen=True, slots=True)
class ModelSize:
    """The size of a model.

    Attributes:
        weights: bytes of its weights in the dtype of training.
        model: the model on torch's meta device; None if its config is not on this machine, so that
            the size comes from its name.
    """

    weights: float
    model: Any = None


def find_model_size(recipe: Recipe, config: Path | None) -> ModelSize | None:
    """Find a model's size from its config or, without one, from its name; None if unknown.

    Args:
        recipe: the recipe that names the model.
        config: the folder of its config on this machine, or None.
    """
    width = 2 if recipe.training.dtype == "bfloat16" else 4
    if config is not None:
        from gapft_harness.training.model import build_meta_model

        try:
            local = {**resolve_model_args(recipe), "pretrained": str(config)}
            model = build_meta_model(local, recipe.training)
            return ModelSize(sum(p.numel() for p in model.parameters()) * width, model)
        except (GapftError, ImportError, AttributeError, KeyError, RuntimeError):
            pass  # an unsupported kind of model: its name may still contain the size
    billions = _BILLIONS.findall(recipe.model.args["pretrained"])
    # the largest number: of the 30B weights of 30B-A3B, 3B are active at a time
    largest = max((int(times or 1) * float(number) for times, number in billions), default=None)
    return None if largest is None else ModelSize(largest * 1e9 * width)


def list_requirements(
    recipe: Recipe,
    experiments: Sequence[Experiment],
    plugins: Plugins,
    problems: Mapping[Split, int],
    task: Mapping[str, Any],
    size: ModelSize | None,
    run_dir: str,
    run: RunDirectory | None,
    refusal: str,
    changes: str = "",
    times: Sequence[str] = (),
) -> list[str]:
    """Return lines on the requirements, ordered by topic.

    Args:
        recipe: the recipe.
        experiments: those that the recipe asks for.
        plugins: the loaded plugins.
        problems: the number of problems by split, without splits that cannot be read.
        task: the task's facts; empty if its data cannot be read.
        size: the model's size; None: unknown.
        run_dir: the run directory, which need not exist.
        run: the existing run; None: there is none, or nothing of it is kept.
        refusal: why the existing run does not match the recipe; empty: it does.
        changes: which changes cause work to be repeated; empty: none.
        times: how long the stages take; empty: not known.
    """
    slots = None if run is None else find_slots(run)
    unreadable_splits = [split for split in list_splits(recipe) if split not in problems]
    counts = [f"{split} {problems[split]:,}" for split in list_splits(recipe) if split in problems]
    counts += [f"{', '.join(unreadable_splits)}: cannot be read"] if unreadable_splits else []
    sizes = {split: problems.get(split, 0) for split in list_splits(recipe)}
    costs = [experiment.cost(recipe, count_all(recipe, sizes)) for experiment in experiments]
    shared = predict_shared(recipe, plugins)
    trained = [arm for arm in list_arms(recipe) if arm.condition not in shared]
    responses, total = _count_responses(recipe, sizes, costs, len(trained))
    n_adapters = len(trained) * (1 + sum(cost.adapters for cost in costs))
    memory_estimate = None if size is None else _estimate_largest(recipe, task, size)
    topics = {
        "problems": [", ".join(counts)],
        "responses": [] if unreadable_splits else responses,
        "steps": _describe_optimizer_steps(recipe, plugins, trained, problems.get("pool"), slots),
        "time": [*times],
        "memory": [_describe_memory(recipe, size, memory_estimate, len(trained))],
        "disk": [
            _describe_disk(
                recipe,
                task,
                memory_estimate,
                n_adapters,
                None if unreadable_splits else total,
                run_dir,
            )
        ],
        "done": [f"CANNOT CONTINUE: {refusal}"]
        if refusal
        else [*filter(None, [changes]), *_describe_progress(recipe, experiments, plugins, run)],
    }
    return [
        f"{topic if number == 0 else '':<11}{line}"
        for topic, lines in topics.items()
        for number, line in enumerate(lines)
    ]


def count_all(recipe: Recipe, problems: Mapping[Split, int]) -> dict[str, int]:
    """Count the problems of each split, and ``adapters``, for the costs of experiments."""
    sizes = {split: problems.get(split, 0) for split in list_splits(recipe)}
    return {**sizes, "adapters": len(list_arms(recipe))}


def _count_responses(
    recipe: Recipe, sizes: Mapping[Split, int], costs: Sequence[Cost], adapters: int
) -> tuple[list[str], int]:
    """Count the responses of each stage.

    Args:
        recipe: the recipe.
        sizes: the number of problems by split.
        costs: the costs of experiments.
        adapters: how many adapters are trained; other arms reuse their responses.

    Returns:
        A line for each stage; the number of all responses.
    """
    k = recipe.search.k
    n_searched = sum(sizes[split] for split in SPLITS)
    lines = [
        f"search: {n_searched * (1 + k):,} = {n_searched:,} problems x "
        f"({recipe.search.describe_deployment()} + {k} samples)"
    ]
    n_audited = sizes["audit"]
    total = n_searched * (1 + k) + n_audited * adapters
    lines.append(f"audit:  {n_audited * adapters:,} = {n_audited:,} x {adapters} adapters")
    for line, count in _count_rollouts(recipe):
        lines.append(line)
        total += count
    for cost in costs:
        lines += cost.decodes
        total += cost.responses
    return lines, total


def _count_rollouts(recipe: Recipe) -> Iterator[tuple[str, int]]:
    """Count the responses that training draws for each condition that is trained online.

    Conditions whose number of optimizer steps J depends on the search are left out.

    Yields:
        A line, and the number of responses.
    """
    for name in recipe.conditions:
        training, slots = recipe.resolve_training(name), recipe.find_slots(name)
        if training.trainer != "grpo" or not isinstance(slots, int):
            continue
        steps = count_steps(training.repetitions * (slots + recipe.budget.replay), training)
        size = training.grpo.prompts_per_update * training.grpo.group_size
        count = steps * size * len(recipe.seeds)
        yield (
            f"train:  {count:,} = {steps:,} updates x {size} rollouts x {len(recipe.seeds)} "
            f"adapters of {name}",
            count,
        )


def _describe_optimizer_steps(
    recipe: Recipe,
    plugins: Plugins,
    trained: Sequence[Arm],
    pool: int | None,
    known_slots: int | None,
) -> list[str]:
    """Describe J, the optimizer steps of an adapter, or a bound; equal conditions share a line."""
    counts: dict[str, list[str]] = {}
    for name in dict.fromkeys(arm.condition for arm in trained):
        own_budget = has_own_budget(recipe, name, plugins)
        text = _format_steps(recipe, name, pool, known_slots, own_budget)
        counts.setdefault(text, []).append(name)
    if len(counts) == 1:
        names = ["an adapter"]
    else:
        names = [f"an adapter of {', '.join(conditions)}" for conditions in counts.values()]
    return [
        count.format(each=f"{name}, of {len(trained)} adapters")
        for count, name in zip(counts, names, strict=True)
    ]


def has_own_budget(recipe: Recipe, name: str, plugins: Plugins) -> bool:
    """Return whether a condition's selector sets its own number of examples.

    Such a condition is a reference. False if the selector's plugin is not loaded, as it may be for
    a condition that the run trained earlier.
    """
    return plugins.find_selector_traits(recipe.conditions[name].selector).has_own_budget


def bound_slots(
    recipe: Recipe, name: str, pool: int | None, known_slots: int | None, own_budget: bool
) -> tuple[int | None, bool]:
    """Find the number of a condition's examples, with replay, or the most that it can be.

    Args:
        recipe: the recipe.
        name: the condition.
        pool: the number of problems in the pool; None: unknown.
        known_slots: n as the run's states give it; None: there are none.
        own_budget: whether the condition is a reference: it has a slot for each verified problem
            of the pool, which only the search can count, and no replay.

    Returns:
        The number, None if it is known only after the search; and whether it is exact.
    """
    slots: int | str = "verified" if own_budget else recipe.find_slots(name)
    replay = 0 if own_budget else recipe.budget.replay
    if not isinstance(slots, int) and (slots, recipe.find_k(name)) == (
        recipe.budget.n,
        recipe.search.k,
    ):
        slots = known_slots or slots
    if isinstance(slots, int):
        return slots + replay, True
    return None if pool is None else pool + replay, False


def _format_steps(
    recipe: Recipe, name: str, pool: int | None, known_slots: int | None, own_budget: bool
) -> str:
    """Format J, the optimizer steps of each adapter of a condition.

    Returns:
        A text with the field ``{each}``, for whose steps these are.
    """
    training = recipe.resolve_training(name)
    slots, is_exact = bound_slots(recipe, name, pool, known_slots, own_budget)
    replay = 0 if own_budget else recipe.budget.replay
    if slots is None:
        return "known after search"
    try:
        steps = count_steps(training.repetitions * slots, training)
        if is_exact:
            return f"{steps:,} {{each}} (n = {slots - replay:,})"
        return f"at most {steps:,} {{each}} (n is at most the pool's {pool:,} problems)"
    except GapftError as error:
        return str(error).replace("{", "{{").replace("}", "}}")


def _describe_memory(
    recipe: Recipe, size: ModelSize | None, estimate: MemoryEstimate | None, adapters: int
) -> str:
    """Describe the memory that training needs, the number of parallel jobs, and free memory.

    Args:
        recipe: the recipe.
        size: the model's size; None: unknown.
        estimate: the memory of one process; None: it cannot be estimated.
        adapters: how many adapters are trained.
    """
    from gapft_harness.core.memory import measure_free_memory
    from gapft_harness.executors.local import list_gpus
    from gapft_harness.training.memory import count_fitting

    device = find_device(recipe)
    available = measure_free_memory(device)
    free = f"{available / _GB:.3g} GB are free on {device}"
    if size is None:
        return f"not known, because the model's config is not on this machine; {free}"
    if estimate is None:
        basis = "from the model's name" if size.model is None else "training cannot be estimated"
        return f"about {size.weights / _GB:.3g} GB for the weights, {basis}; {free}"
    executor = recipe.executor
    count = min(executor.workers, adapters)
    n_fitting = count_fitting(estimate, available, device, shared_base=False)
    if device.type == "cuda":
        n_fitting *= max(1, len(list_gpus()))
    most = f"at most {estimate.total / _GB:.3g} GB if sequences have training.max_length tokens"
    at_once = f", of which {count} train at once" if count > 1 else ""
    workers_note = (
        f"; with such sequences memory allows {max(1, n_fitting)} of {count} workers"
        if n_fitting < count and not executor.address
        else ""
    )
    return (
        f"training: about {estimate.certain / _GB:.3g} GB a process for base and adapter, "
        f"{most}{at_once}; {free}{workers_note}"
    )


def find_device(recipe: Recipe) -> Any:
    """Return the device that this machine would train on."""
    import torch

    from gapft_harness.training.devices import resolve_device

    try:
        return resolve_device(recipe.model.args.get("device"))
    except GapftError:  # another check reports this mistake
        return torch.device("cpu")


def _estimate_largest(
    recipe: Recipe, task: Mapping[str, Any], size: ModelSize
) -> MemoryEstimate | None:
    """Estimate the memory of the condition that needs most, with the longest sequences allowed."""
    if size.model is None:
        return None
    settings_list = dict.fromkeys(
        recipe.resolve_training(arm.condition) for arm in list_arms(recipe)
    )
    estimates = [_estimate_memory(recipe, settings, task, size) for settings in settings_list]
    counted_estimates = [estimate for estimate in estimates if estimate is not None]
    return (
        max(counted_estimates, key=lambda e: e.total, default=None)
        if len(counted_estimates) == len(estimates)
        else None
    )


def _estimate_memory(
    recipe: Recipe, settings: Training, task: Mapping[str, Any], size: ModelSize
) -> MemoryEstimate | None:
    from gapft_harness.training.memory import estimate_memory
    from gapft_harness.training.output_layer import is_output_layer_last
    from gapft_harness.training.passes import MAX_TOKENS, Member

    longest = settings.max_length
    learned = min(longest - 1, _count_longest_response(recipe, task) or longest)
    sequence = TrainingSequence("", (0,) * (longest - learned), (0,) * learned, False, False)
    device = find_device(recipe)
    ceiling = settings.max_tokens or MAX_TOKENS[device.type]
    count = max(1, ceiling // longest) if settings.padding_free else settings.micro_batch
    try:
        passes = [[Member(sequence, 1.0)] * count]
        return estimate_memory(
            size.model, settings, passes, is_output_layer_last(size.model), device
        )
    except (GapftError, AttributeError, ValueError):
        return None


def _describe_disk(
    recipe: Recipe,
    task: Mapping[str, Any],
    memory_estimate: MemoryEstimate | None,
    adapters: int,
    responses: int | None,
    run_dir: str,
) -> str:
    parts: list[str] = []
    tokens = _count_longest_response(recipe, task)
    needed = 0.0
    if responses is not None and tokens:
        needed += responses * tokens * _BYTES_A_TOKEN
        parts.append(f"responses of {tokens:,} tokens")
    if memory_estimate is not None:
        # a quarter of it: training also holds gradients and two optimizer states per weight
        needed += memory_estimate.adapters / 4 * adapters
        parts.append(f"{adapters} adapters")
    bound = f"at most about {needed / _GB:.2g} GB ({', '.join(parts)})" if parts else "not known"
    folder = Path(run_dir).absolute()
    while not folder.exists():
        folder = folder.parent
    return f"{bound}; {shutil.disk_usage(folder).free / _GB:.3g} GB are free at {folder}"


def _count_longest_response(recipe: Recipe, task: Mapping[str, Any]) -> int:
    """Return the most tokens of a response, with all attempts of an episode; 0: not known."""
    tokens = recipe.search.max_gen_toks or task.get("decoding", {}).get("max_gen_toks", 0)
    return int(tokens) * int(task.get("episode", {}).get("attempts", 1))


def _describe_progress(
    recipe: Recipe,
    experiments: Sequence[Experiment],
    plugins: Plugins,
    run: RunDirectory | None,
) -> list[str]:
    """List which files of each stage exist."""
    if run is None:
        return ["nothing yet"]
    all_arms = list_arms(recipe)

    def count_files(file: Callable[[Arm], str]) -> str:
        return f"{sum(run.has(file(arm)) for arm in all_arms)} of {len(all_arms)}"

    searched_splits = [s for s in list_splits(recipe) if run.has(layout.responses_path(s))]
    lines = [f"searched: {', '.join(searched_splits) or 'no complete split'}"]
    lines.append("selected: " + count_files(layout.selection_path))
    lines.append("trained:  " + count_files(layout.adapter_path))
    lines.append("audited:  " + count_files(layout.decisions_path))
    trained = [arm for arm in all_arms if run.has(layout.adapter_path(arm))]
    for experiment in experiments if trained else ():
        n_made, n_files = count_finished_steps(
            experiment, View(RunDirectory(run.path, recipe), plugins, trained)
        )
        if n_files:
            lines.append(f"{experiment.name}: {n_made} of {n_files} files")
    return lines
