"""What a run will take, before it begins: problems, responses, steps, memory, disk; what is done.

Bounds where only the search can tell more. Nothing is loaded but a model's config.
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
#: Bytes that a generated token takes in the store and in a table; rather too many.
_BYTES_A_TOKEN = 16
#: How many weights a model has, as names say it: Llama-3.1-8B-Instruct, deepseek-coder-6.7b,
#: Mixtral-8x7B, my-8Bchat; not model-8bit.
_BILLIONS = re.compile(r"(?<![\d.])(?:(\d+)[xX])?(\d+(?:\.\d+)?)(?:B(?![iI][tT])|b(?![a-zA-Z]))")
#: A model whose weights take more is no pleasure without a GPU.
LARGE = 4e9


@dataclass(frozen=True, slots=True)
class Size:
    """How large a model is.

    Attributes:
        weights: bytes of its weights in the dtype that is trained in.
        model: it on torch's meta device; None where its config is not on this machine, and the
            size is the one that its name says.
    """

    weights: float
    model: Any = None


def size_of(recipe: Recipe, config: Path | None) -> Size | None:
    """A model's size by its config, else by its name; None where neither is known.

    Args:
        config: the folder on this machine that holds its config.
    """
    width = 2 if recipe.training.dtype == "bfloat16" else 4
    if config is not None:
        from gapft_harness.training.model import without_weights

        try:
            local = {**model_args(recipe), "pretrained": str(config)}
            model = without_weights(local, recipe.training)
            return Size(sum(p.numel() for p in model.parameters()) * width, model)
        except (GapftError, ImportError, AttributeError, KeyError, RuntimeError):
            pass  # of a kind that is not known here: the name may still say it
    billions = _BILLIONS.findall(recipe.model.args["pretrained"])
    # the largest: of 30B-A3B, three are active
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
    """The lines, a topic each.

    Args:
        problems: of each split whose data can be read here.
        task: the task's facts; empty where its data cannot be read here.
        refused: why what is there does not fit the recipe.
        changed: what of it is made again.
    """
    known = {} if run is None else run.manifest()
    unread = [split for split in splits_of(recipe) if split not in problems]
    counts = [f"{split} {problems[split]:,}" for split in splits_of(recipe) if split in problems]
    counts += [f"{', '.join(unread)}: cannot be read here"] if unread else []
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
        "done": [f"REFUSED: {refused}"]
        if refused
        else [*filter(None, [changed]), *_done(recipe, experiments, plugins, run)],
    }
    return [
        f"{topic if number == 0 else '':<11}{line}"
        for topic, lines in topics.items()
        for number, line in enumerate(lines)
    ]


def count_all(recipe: Recipe, problems: Mapping[Split, int]) -> dict[str, int]:
    """Count what the costs of experiments depend on: problems by split, and ``adapters``."""
    sizes = {split: problems.get(split, 0) for split in splits_of(recipe)}
    return {**sizes, "adapters": len(arms(recipe))}


def _responses(
    recipe: Recipe, sizes: Mapping[Split, int], costs: Sequence[Cost], adapters: int
) -> tuple[list[str], int]:
    """By stage; and all together.

    Args:
        adapters: how many are trained; the others reuse the answers of these.
    """
    k = recipe.search.k
    audits = {name: sizes[layout.audit(name)] for name in recipe.further}
    searched = sum(sizes[split] for split in SPLITS) + sum(audits.values())
    lines = [f"search: {searched * (1 + k):,} = {searched:,} problems x (1 greedy + {k} samples)"]
    if recipe.search.stop == "first_pass":
        lines[0] += ", of the pool fewer where one passes"
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
    """Yield, for each condition trained online, a line and how many responses training draws.

    Without a line where only search tells J.
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
    """J of an adapter, or a bound: a line for all conditions that agree in it."""
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
    """Whether a condition is a reference, whose selector sets its own number of examples.

    One that a run has trained already by a plugin that is not given now is taken for none.
    """
    return plugins.selector_traits(recipe.conditions[name].selector).own_budget


def _steps_of(
    recipe: Recipe, name: str, pool: int | None, known: Mapping[str, Any], own_budget: bool
) -> str:
    """J of one condition's adapters.

    Args:
        own_budget: whether it is a reference: its slots are the pool's verified problems, which
            search tells, and no replay is added.
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
    """Tell what training needs, how much of it at once, and what is free.

    Args:
        adapters: how many are trained.
    """
    from gapft_harness.core.memory import free_memory
    from gapft_harness.training.memory import fit_at_once

    device = _device(recipe)
    available = free_memory(device)
    free = f"{available / _GB:.3g} GB are free on {device}"
    if size is None:
        return f"not known, the model's config is not on this machine; {free}"
    if estimate is None:
        whence = "by the model's name" if size.model is None else "of a kind that is not counted"
        return f"about {size.weights / _GB:.3g} GB for the weights, {whence}; {free}"
    executor = recipe.executor
    here = executor.processes if device.type == "cpu" else 1
    count = min(executor.workers, adapters)
    fitting = fit_at_once(estimate, available, device, here, shared_base=False)
    most = f"at most {estimate.total / _GB:.3g} GB where sequences have training.max_length tokens"
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
    except GapftError:  # a mistake that is reported elsewhere
        return torch.device("cpu")


def _estimate(recipe: Recipe, task: Mapping[str, Any], size: Size) -> Estimate | None:
    """The largest estimate that training makes, with the longest sequences that it would take."""
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
        # their weights, of which training holds gradients and the optimizer's states besides
        needed += found.adapters / 4 * kept
        parts.append(f"{kept} adapters")
    bound = f"at most about {needed / _GB:.2g} GB ({', '.join(parts)})" if parts else "not known"
    folder = Path(run_dir).absolute()
    while not folder.exists():
        folder = folder.parent
    return f"{bound}; {shutil.disk_usage(folder).free / _GB:.3g} GB are free at {folder}"


def _longest_response(recipe: Recipe, task: Mapping[str, Any]) -> int:
    """Most tokens that a response has, those of an episode's earlier attempts too; 0: not known."""
    tokens = recipe.search.max_gen_toks or task.get("decoding", {}).get("max_gen_toks", 0)
    return int(tokens) * int(task.get("episode", {}).get("attempts", 1))


def _done(
    recipe: Recipe,
    experiments: Sequence[Experiment],
    plugins: Plugins,
    run: RunDirectory | None,
) -> list[str]:
    """What is there already, by stage."""
    if run is None:
        return ["nothing yet"]
    manifest = run.manifest()
    files, wanted = manifest["files"], arms(recipe)

    def count(file: Callable[[Arm], str]) -> str:
        return f"{sum(file(arm) in files for arm in wanted)} of {len(wanted)}"

    searched = [s for s in splits_of(recipe) if layout.responses(s) in files]
    lines = [f"searched: {', '.join(searched) or 'nothing whole'}"]
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
