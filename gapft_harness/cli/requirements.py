"""Estimate before a run what it needs: problems, responses, steps, memory, disk; list its progress.

Where a count depends on the search, an upper bound is given. Only the model's config is loaded.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapft_harness.core.errors import GapftError
from gapft_harness.core.records import Arm
from gapft_harness.hooks.manager import Plugins
from gapft_harness.recipe.recipe import Recipe, model_args
from gapft_harness.recipe.sections import Training
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import (
    SPLITS,
    RunDirectory,
    Split,
    splits_of,
)
from gapft_harness.stages.experiment import Cost, Experiment, View, count_made
from gapft_harness.stages.selection.stage import arms
from gapft_harness.stages.train.stored import foresee_shared
from gapft_harness.training.plan import Fitted, count_steps

if TYPE_CHECKING:
    from gapft_harness.training.memory import Estimate

_GB = 1e9
#: Bytes of a generated token in the store and in a table together; a generous estimate.
_BYTES_A_TOKEN = 16
#: The number of weights in a model's name, in billions: Llama-3.1-8B-Instruct, deepseek-coder-6.7b,
#: Mixtral-8x7B, my-8Bchat; model-8bit does not match.
_BILLIONS = re.compile(r"(?<![\d.])(?:(\d+)[xX])?(\d+(?:\.\d+)?)(?:B(?![iI][tT])|b(?![a-zA-Z]))")
#: Models whose weights have more bytes than this are too slow to train without a GPU.
LARGE = 4e9


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a model.

    Attributes:
        weights: bytes of its weights in the dtype of training.
        model: the model on torch's meta device; None if its config is not on this machine, so that
            the size comes from its name.
    """

    weights: float
    model: Any = None


def size_of(recipe: Recipe, config: Path | None) -> Size | None:
    """Find a model's size from its config or, without one, from its name; None if unknown.

    Args:
        recipe: the recipe that names the model.
        config: the folder of its config on this machine, or None.
    """
    width = 2 if recipe.training.dtype == "bfloat16" else 4
    if config is not None:
        from gapft_harness.training.model import without_weights

        try:
            local = {**model_args(recipe), "pretrained": str(config)}
            model = without_weights(local, recipe.training)
            return Size(sum(p.numel() for p in model.parameters()) * width, model)
        except (GapftError, ImportError, AttributeError, KeyError, RuntimeError):
            pass  # an unsupported kind of model: its name may still contain the size
    billions = _BILLIONS.findall(recipe.model.args["pretrained"])
    # the largest number: of the 30B weights of 30B-A3B, 3B are active at a time
    largest = max((int(times or 1) * float(each) for times, each in billions), default=None)
    return None if largest is None else Size(largest * 1e9 * width)


def list_requirements(
    recipe: Recipe,
    experiments: Sequence[Experiment],
    plugins: Plugins,
    problems: Mapping[Split, int],
    task: Mapping[str, Any],
    size: Size | None,
    run_dir: str,
    run: RunDirectory | None,
    refused: str,
    changed: str = "",
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
    """
    known = {} if run is None else run.manifest()
    unread = [split for split in splits_of(recipe) if split not in problems]
    counts = [f"{split} {problems[split]:,}" for split in splits_of(recipe) if split in problems]
    counts += [f"{', '.join(unread)}: cannot be read"] if unread else []
    sizes = {split: problems.get(split, 0) for split in splits_of(recipe)}
    costs = [each.cost(recipe, count_all(recipe, sizes)) for each in experiments]
    shared = foresee_shared(recipe, plugins)
    trained = [arm for arm in arms(recipe) if arm.condition not in shared]
    responses, total = _responses(recipe, sizes, costs, len(trained))
    kept = 1 + sum(cost.adapters for cost in costs)
    found = None if size is None else _estimate(recipe, task, size)
    topics = {
        "problems": [", ".join(counts)],
        "responses": [] if unread else responses,
        "steps": _steps(recipe, plugins, trained, problems.get("pool"), known),
        "memory": [_memory(recipe, size, found, len(trained))],
        "disk": [_disk(recipe, task, found, kept, None if unread else total, run_dir)],
        "done": [f"CANNOT CONTINUE: {refused}"]
        if refused
        else [*filter(None, [changed]), *_done(recipe, experiments, plugins, run)],
    }
    return [
        f"{topic if number == 0 else '':<11}{line}"
        for topic, lines in topics.items()
        for number, line in enumerate(lines)
    ]


def count_all(recipe: Recipe, problems: Mapping[Split, int]) -> dict[str, int]:
    """Count the problems of each split, and ``adapters``, for the costs of experiments."""
    sizes = {split: problems.get(split, 0) for split in splits_of(recipe)}
    return {**sizes, "adapters": len(arms(recipe))}


def _responses(
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
    audits = {name: sizes[layout.audit(name)] for name in recipe.further}
    searched = sum(sizes[split] for split in SPLITS) + sum(audits.values())
    lines = [f"search: {searched * (1 + k):,} = {searched:,} problems x (1 greedy + {k} samples)"]
    if recipe.search.stop == "first_pass":
        lines[0] += ", fewer in the pool where a sample passes"
    total = searched * (1 + k) + sizes["audit"] * adapters
    audited = sizes["audit"]
    lines.append(f"audit:  {audited * adapters:,} = {audited:,} x {adapters} adapters")
    for name, size in audits.items():
        lines.append(f"        {size * adapters:,} = {size:,} of {name} x {adapters} adapters")
        total += size * adapters
    for line, count in _rollouts(recipe):
        lines.append(line)
        total += count
    for cost in costs:
        lines += cost.decodes
        total += cost.responses
    return lines, total


def _rollouts(recipe: Recipe) -> Iterator[tuple[str, int]]:
    """Count the responses that training draws for each condition that is trained online.

    Conditions whose number of optimizer steps J depends on the search are left out.

    Yields:
        A line, and the number of responses.
    """
    for name in recipe.conditions:
        training, slots = recipe.training_of(name), recipe.slots(name)
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


def _steps(
    recipe: Recipe,
    plugins: Plugins,
    trained: Sequence[Arm],
    pool: int | None,
    known: Mapping[str, Any],
) -> list[str]:
    """Describe J, the optimizer steps of an adapter, or a bound; equal conditions share a line."""
    counts: dict[str, list[str]] = {}
    for name in dict.fromkeys(arm.condition for arm in trained):
        own = has_own_budget(recipe, name, plugins)
        counts.setdefault(_steps_of(recipe, name, pool, known, own), []).append(name)
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
    return plugins.selector_traits(recipe.conditions[name].selector).own_budget


def _steps_of(
    recipe: Recipe, name: str, pool: int | None, known: Mapping[str, Any], own_budget: bool
) -> str:
    """Format J, the optimizer steps of each adapter of a condition.

    Args:
        recipe: the recipe.
        name: the condition.
        pool: the number of problems in the pool; None: unknown.
        manifest: the run's manifest; empty: there is no run.
        own_budget: whether the condition is a reference: it has a slot for each verified problem
            of the pool, which only the search can count, and no replay.

    Returns:
        A text with the field ``{each}``, for whose steps these are.
    """
    training = recipe.training_of(name)
    wanted: int | str = "verified" if own_budget else recipe.slots(name)
    replay = 0 if own_budget else recipe.budget.replay
    if not isinstance(wanted, int) and (wanted, recipe.k(name)) == (
        recipe.budget.n,
        recipe.search.k,
    ):
        wanted = known.get("n") or wanted
    try:
        if isinstance(wanted, int):
            steps = count_steps(training.repetitions * (wanted + replay), training)
            return f"{steps:,} {{each}} (n = {wanted:,})"
        if pool is None:
            return "known after search"
        most = count_steps(training.repetitions * (pool + replay), training)
        return f"at most {most:,} {{each}} (n is at most the pool's {pool:,} problems)"
    except GapftError as error:
        return str(error).replace("{", "{{").replace("}", "}}")


def _memory(recipe: Recipe, size: Size | None, estimate: Estimate | None, adapters: int) -> str:
    """Describe the memory that training needs, the number of parallel jobs, and free memory.

    Args:
        recipe: the recipe.
        size: the model's size; None: unknown.
        estimate: the memory of one process; None: it cannot be estimated.
        adapters: how many adapters are trained.
    """
    from gapft_harness.core.memory import free_memory
    from gapft_harness.training.memory import fit_at_once

    device = _device(recipe)
    available = free_memory(device)
    free = f"{available / _GB:.3g} GB are free on {device}"
    if size is None:
        return f"not known, because the model's config is not on this machine; {free}"
    if estimate is None:
        whence = "from the model's name" if size.model is None else "training cannot be estimated"
        return f"about {size.weights / _GB:.3g} GB for the weights, {whence}; {free}"
    executor = recipe.executor
    here = executor.processes if device.type == "cpu" else 1
    count = min(executor.workers, adapters)
    fitting = fit_at_once(estimate, available, device, here, shared_base=False)
    most = f"at most {estimate.total / _GB:.3g} GB if sequences have training.max_length tokens"
    at_once = f", of which {count * here} train at once" if count * here > 1 else ""
    fewer = (
        f"; with such sequences memory allows {max(1, fitting)} of {count} workers"
        if fitting < count and not executor.address
        else ""
    )
    return (
        f"training: about {estimate.counted / _GB:.3g} GB a process for base and adapter, "
        f"{most}{at_once}; {free}{fewer}"
    )


def _device(recipe: Recipe) -> Any:
    """Return the device that this machine would train on."""
    import torch

    from gapft_harness.training.devices import asked_device

    try:
        return asked_device(recipe.model.args.get("device"))
    except GapftError:  # another check reports this mistake
        return torch.device("cpu")


def _estimate(recipe: Recipe, task: Mapping[str, Any], size: Size) -> Estimate | None:
    """Estimate the memory of the condition that needs most, with the longest sequences allowed."""
    if size.model is None:
        return None
    trained = dict.fromkeys(recipe.training_of(arm.condition) for arm in arms(recipe))
    each = [_estimate_of(recipe, settings, task, size) for settings in trained]
    known = [estimate for estimate in each if estimate is not None]
    return max(known, key=lambda e: e.total, default=None) if len(known) == len(each) else None


def _estimate_of(
    recipe: Recipe, settings: Training, task: Mapping[str, Any], size: Size
) -> Estimate | None:
    from gapft_harness.training.memory import estimate
    from gapft_harness.training.output_layer import is_last
    from gapft_harness.training.passes import MAX_TOKENS, Member

    longest = settings.max_length
    learned = min(longest - 1, _longest_response(recipe, task) or longest)
    sequence = Fitted("", (0,) * (longest - learned), (0,) * learned, False, False)
    device = _device(recipe)
    ceiling = settings.max_tokens or MAX_TOKENS[device.type]
    count = max(1, ceiling // longest) if settings.padding_free else settings.micro_batch
    shards = recipe.executor.processes if recipe.executor.fsdp else 1
    try:
        passes = [[Member(sequence, 1.0)] * count]
        return estimate(size.model, settings, passes, shards, is_last(size.model), device)
    except (GapftError, AttributeError, ValueError):
        return None


def _disk(
    recipe: Recipe,
    task: Mapping[str, Any],
    found: Estimate | None,
    adapters: int,
    responses: int | None,
    run_dir: str,
) -> str:
    parts: list[str] = []
    tokens = _longest_response(recipe, task)
    needed = 0.0
    if responses is not None and tokens:
        needed += responses * tokens * _BYTES_A_TOKEN
        parts.append(f"responses of {tokens:,} tokens")
    if found is not None:
        kept = len(arms(recipe)) * adapters
        # a quarter of it: training also holds gradients and two optimizer states per weight
        needed += found.adapters / 4 * kept
        parts.append(f"{kept} adapters")
    bound = f"at most about {needed / _GB:.2g} GB ({', '.join(parts)})" if parts else "not known"
    folder = Path(run_dir).absolute()
    while not folder.exists():
        folder = folder.parent
    return f"{bound}; {shutil.disk_usage(folder).free / _GB:.3g} GB are free at {folder}"


def _longest_response(recipe: Recipe, task: Mapping[str, Any]) -> int:
    """Return the most tokens of a response, with all attempts of an episode; 0: not known."""
    tokens = recipe.search.max_gen_toks or task.get("decoding", {}).get("max_gen_toks", 0)
    return int(tokens) * int(task.get("episode", {}).get("attempts", 1))


def _done(
    recipe: Recipe,
    experiments: Sequence[Experiment],
    plugins: Plugins,
    run: RunDirectory | None,
) -> list[str]:
    """List which files of each stage exist."""
    if run is None:
        return ["nothing yet"]
    manifest = run.manifest()
    files, wanted = manifest["files"], arms(recipe)

    def count(file: Callable[[Arm], str]) -> str:
        return f"{sum(file(arm) in files for arm in wanted)} of {len(wanted)}"

    searched = [s for s in splits_of(recipe) if layout.responses(s) in files]
    lines = [f"searched: {', '.join(searched) or 'no complete split'}"]
    lines.append("selected: " + count(layout.selection))
    lines.append("trained:  " + count(layout.adapter))
    lines.append("audited:  " + count(layout.decisions))
    for name in recipe.further:
        lines.append(f"          {count(partial(layout.decisions_on, audit=name))} on {name}")
    trained = [arm for arm in wanted if layout.adapter(arm) in files]
    for each in experiments if trained else ():
        made, known = count_made(each, View(RunDirectory(run.path, recipe), plugins, trained))
        if known:
            lines.append(f"{each.name}: {made} of {known} files")
    return lines
