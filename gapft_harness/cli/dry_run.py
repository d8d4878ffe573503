"""Describe a run (``gapft run --dry-run``): recipe, stages, cost, missing requirements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from gapft_harness.cli.options import Options
from gapft_harness.cli.requirements import (
    LARGE_MODEL_BYTES,
    ModelSize,
    bound_slots,
    count_all,
    find_device,
    find_model_size,
    has_own_budget,
    list_requirements,
)
from gapft_harness.cli.runs import map_keys_to_options, resolve_chat_template, resolve_recipe
from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.offline import force_offline
from gapft_harness.core.records import Problem
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.registration import Registration, SamplerTraits
from gapft_harness.recipe.called_plugins import check_names
from gapft_harness.recipe.conditions import find_own_settings
from gapft_harness.recipe.recipe import Recipe, build_sampler_settings, resolve_model_args
from gapft_harness.report.names import format_own_setting
from gapft_harness.report.reading.published import list_published
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import (
    CALIBRATION,
    SPLITS,
    RunDirectory,
    Split,
    list_splits,
)
from gapft_harness.run_directory.manifest import name_missing_plugins
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.experiment import Experiment, load_experiments
from gapft_harness.stages.integrity.inputs import (
    InputsChanged,
    compare_inputs,
    list_recorded_include_paths,
)
from gapft_harness.stages.search.data import check_splits, load_problems
from gapft_harness.stages.search.stage import compare_with_paper, foresee_search
from gapft_harness.stages.search.trainable import NotTrainable, check_trainable
from gapft_harness.stages.selection.budgets import describe_planned_budget
from gapft_harness.stages.selection.stage import list_arms, list_replicate_warnings
from gapft_harness.stages.train.job import list_missing_packages, read_searched_pool
from gapft_harness.stages.train.online import list_reward_warnings
from gapft_harness.stages.train.stage import explain_refused_kernels, find_end_tokens
from gapft_harness.stages.train.stored import compute_groups, is_stored, predict_shared
from gapft_harness.store.explain import explain_missing, summarize_reasons
from gapft_harness.store.store import Store
from gapft_harness.training.plan import budget

#: The last line of a dry run if the run itself can start.
NOTHING_MISSING = "nothing: this recipe can run"


@force_offline()
def describe_dry_run(choice: Options, run_dir: Path | None) -> str:
    """Return the text of a dry run. No model is loaded; nothing is written or downloaded.

    Args:
        choice: the command's options.
        run_dir: the run directory, which need not exist; None for ``runs/NAME``.

    Raises:
        UserError: the recipe is invalid, or names an unknown plugin or task.
    """
    if choice.recipe is None and not choice.task and run_dir is not None:
        RunDirectory.open(run_dir)
        choice = replace(
            choice, recipe=f"{run_dir}/{layout.RECIPE}"
        )  # as ``run_recipe`` continues a run
    recipe = resolve_recipe(choice)
    run_folder = str(run_dir or Path("runs", recipe.name))
    plugins = load_plugins(choice.plugin_files)
    warnings: list[str] = []
    try:
        recipe, template_note = resolve_chat_template(recipe, Path(run_folder), plugins)
        warnings += filter(None, [template_note])
    except GapftError as error:
        warnings.append(f"model.chat_template: cannot be determined: {error}")
    with name_missing_plugins(Path(run_folder)):
        check_names(recipe, plugins)
        experiments = load_experiments(recipe, plugins, map_keys_to_options(choice))
    include_paths = choice.include_paths or list_recorded_include_paths(Path(run_folder))
    problems_by_split, task, data_warnings, missing = _read_splits(recipe, plugins, include_paths)
    problems = {split: len(split_problems) for split, split_problems in problems_by_split.items()}
    warnings += data_warnings
    warnings += list_replicate_warnings(recipe)
    if task:
        warnings += list_reward_warnings(recipe, task, plugins)
    sampler = plugins.get("sampler", recipe.model.backend)
    config, model_faults = _examine_model(recipe, sampler)
    size = find_model_size(recipe, config)
    missing += [
        *model_faults,
        *_check_gpu(recipe, sampler, size),
        *list_missing_packages(recipe, plugins),
    ]
    missing += [
        *filter(None, [explain_refused_kernels(recipe, plugins)]),
    ]
    end_token_lines, end_token_faults = _describe_end_tokens(recipe, plugins, config)
    missing += end_token_faults
    run, extended_recipe, refusal, changes = _find_run(
        recipe, run_folder, plugins, choice.include_paths
    )
    missing += filter(None, [refusal])
    work = _describe_work(
        extended_recipe, run, refusal, run_folder, plugins, choice, problems_by_split, task
    )
    lines = [
        "# resolved recipe",
        yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False).rstrip(),
        "",
        "# stages",
        *_describe_stages(
            recipe, experiments, plugins, run_folder, task, end_token_lines, problems
        ),
        "",
        "# what it takes",
        *list_requirements(
            extended_recipe,
            experiments,
            plugins,
            problems,
            task,
            size,
            run_folder,
            run,
            refusal,
            changes,
            _describe_time(extended_recipe, plugins, problems_by_split, task, size, config, run),
        ),
        "",
        "# what is new",
        *work,
        *(["", "# warnings", *warnings] if warnings else []),
        *(
            ["", "# the paper's source", *_compare_with_paper(recipe, run_folder)]
            if recipe.paper
            else []
        ),
        "",
        "# missing here",
        *(dict.fromkeys(missing) or [NOTHING_MISSING]),
    ]
    return "\n".join(lines)


def _describe_time(
    recipe: Recipe,
    plugins: Plugins,
    problems: Mapping[Split, Sequence[Problem]],
    task: Mapping[str, Any],
    size: ModelSize | None,
    config: Path | None,
    run: RunDirectory | None,
) -> list[str]:
    """Describe how long the run takes on this CPU; empty if that is not known.

    It is known for a model of the ``hf`` sampler whose config and tokenizer are on this machine.
    """
    if size is None or size.model is None or config is None or set(SPLITS) - problems.keys():
        return []
    sampler, trainers = (
        recipe.model.backend,
        {t.trainer for t in map(recipe.resolve_training, recipe.conditions)},
    )
    if sampler != "hf" or trainers != {"lora"} or find_device(recipe).type != "cpu":
        return []
    from gapft_harness.cli.cpu_time import (
        LEAST_WEIGHTS,
        Shape,
        Work,
        count_prompt_tokens,
        describe_time,
    )
    from gapft_harness.training.model import load_tokenizer

    shape = Shape.of(size.model)
    if shape.body < LEAST_WEIGHTS:
        return []
    try:
        tokenizer = load_tokenizer(resolve_model_args(recipe))
        prompt_tokens = count_prompt_tokens(recipe, tokenizer, problems)
    except GapftError:  # reported by the checks of the tokenizer and of the chat template
        return []
    shared = predict_shared(recipe, plugins)
    arms = [arm for arm in list_arms(recipe) if arm.condition not in shared]
    manifest = {} if run is None else run.manifest()
    slots = [
        bound_slots(
            recipe, arm.condition, len(problems["pool"]), manifest,
            has_own_budget(recipe, arm.condition, plugins),
        )[0] or 0
        for arm in arms
    ]  # fmt: skip
    work = Work(
        prompt_tokens=prompt_tokens,
        searched=sum(map(len, problems.values())),
        responses=1 + recipe.search.k,
        audited=len(problems["audit"]) * len(arms),
        exposures=sum(
            count * recipe.resolve_training(arm.condition).repetitions
            for arm, count in zip(arms, slots, strict=True)
        ),
        new_tokens=recipe.search.max_gen_toks or task.get("decoding", {}).get("max_gen_toks", 0),
    )
    return describe_time(recipe, shape, work)


def _find_run(
    recipe: Recipe, run_dir: str, plugins: Plugins, include_paths: Sequence[str]
) -> tuple[RunDirectory | None, Recipe, str, str]:
    """Find an existing run, and compare it with the recipe.

    Returns:
        The run if it continues with its finished work, else None; the recipe with the conditions
        and seeds that the run already has; the reason why the run cannot continue, or ""; the
        changes that require work again, or "".
    """

    def read_inputs(paths: Sequence[str]) -> dict[str, Any]:
        return check_splits(recipe, plugins, paths)[2]

    path = Path(run_dir)
    try:
        extended_recipe, changes = RunDirectory.compare_recipe(path, recipe, plugins)
        if not (path / layout.RECIPE).exists():
            return None, recipe, "", ""
        run = RunDirectory(path, extended_recipe, changes=changes)
        if changes and not run.is_empty():
            run.require_stored()
        if changes.search_changes:
            return None, extended_recipe, "", _describe_changes(changes.search_changes)
        if (path / layout.MANIFEST).exists() and not run.is_empty():
            compare_inputs(run, run.manifest(), plugins, include_paths, read_inputs)
        return run, extended_recipe, "", _describe_changes(changes.selection_changes)
    except InputsChanged as error:
        return None, recipe, "", _describe_changes(error.changes)
    except GapftError as error:
        return None, recipe, str(error), ""


def _describe_work(
    recipe: Recipe,
    run: RunDirectory | None,
    refusal: str,
    run_dir: str,
    plugins: Plugins,
    choice: Options,
    problems: Mapping[Split, Sequence[Problem]],
    task: Mapping[str, Any],
) -> list[str]:
    """Describe the reused and the new work of each step, one line each, with reasons."""
    if refusal:
        return ["not known: the run cannot continue"]
    try:
        store = Store.for_run(Path(run_dir))
        return [
            *_describe_searches(recipe, run, problems, task, plugins, store),
            *_describe_trainings(recipe, run, choice),
        ]
    except GapftError as error:
        return [f"cannot be determined: {error}"]


def _describe_searches(
    recipe: Recipe,
    run: RunDirectory | None,
    problems: Mapping[Split, Sequence[Problem]],
    task: Mapping[str, Any],
    plugins: Plugins,
    store: Store,
) -> Iterator[str]:
    files = {} if run is None else run.manifest()["files"]
    for split in list_splits(recipe):
        if layout.responses_path(split) in files:
            yield f"search {split}: in the run"
            continue
        if split not in problems or not task:
            yield f"search {split}: not known, because its problems cannot be read"
            continue
        if logs := recipe.search.list_logs(split):
            yield f"search {split}: takes the responses of {', '.join(logs)}"
            continue
        forecast = foresee_search(recipe, split, problems[split], task, plugins, store)
        if forecast is None:
            yield (
                f"search {split}: known once the model is loaded: its files are not on this machine"
            )
        else:
            yield f"search {split}: {forecast.describe(Path('.'))}"


def _describe_trainings(recipe: Recipe, run: RunDirectory | None, choice: Options) -> Iterator[str]:
    """Describe which adapters are trained and decoded, for the arms that have a selection.

    Arms that will share the adapter of another condition are not counted.
    """
    plugins = load_plugins(choice.plugin_files)
    shared = predict_shared(recipe, plugins)
    all_arms = [arm for arm in list_arms(recipe) if arm.condition not in shared]
    if run is None or any(line.split(".")[0] != "training" for line in run.changes.all_changes):
        yield f"train: known after the search; at most {len(all_arms)} adapters"
        yield f"audit: known after training; at most {len(all_arms)} adapters"
        return
    files = run.manifest()["files"]
    trained_arms = (
        set() if run.changes else {arm for arm in all_arms if layout.adapter_path(arm) in files}
    )
    selected_arms = [
        arm for arm in all_arms if arm not in trained_arms and layout.selection_path(arm) in files
    ]
    pool = partial(read_searched_pool, run, plugins, choice.plugin_files)
    groups = compute_groups(run, selected_arms, plugins, pool)
    new_arms = {group.key: arm for arm, group in groups.items() if not is_stored(group)}
    reasons = summarize_reasons([explain_missing(groups[arm]) for arm in new_arms.values()])
    steps = 0
    for arm in new_arms.values():
        examples = read_examples(run.sealed(layout.selection_path(arm)))
        steps += budget(examples, recipe.resolve_training(arm.condition)).steps
    n_unselected = len(all_arms) - len(trained_arms) - len(selected_arms)
    parts = [f"{len(trained_arms)} in the run"] if trained_arms else []
    parts += (
        [f"{len(selected_arms) - len(new_arms)} reused"]
        if len(selected_arms) > len(new_arms)
        else []
    )
    parts += (
        [f"{len(new_arms)} new ({steps:,} steps){f': {reasons}' if reasons else ''}"]
        if new_arms
        else []
    )
    parts += [f"{n_unselected} known after selection"] if n_unselected else []
    yield f"train: {', '.join(parts)}"
    decoded_arms = [arm for arm in trained_arms if layout.decisions_path(arm) in files]
    n_undecoded = len(all_arms) - len(decoded_arms)
    undecoded_text = f"at most {n_undecoded} of {len(all_arms)} adapters new"
    yield f"audit: {undecoded_text if n_undecoded else 'in the run'}"


def _describe_changes(lines: Sequence[str]) -> str:
    """Describe changes of the recipe; results that depend on them are computed again."""
    return f"changed; dependent results are recomputed: {'; '.join(lines)}" if lines else ""


def _read_splits(
    recipe: Recipe, plugins: Plugins, include_paths: Sequence[str]
) -> tuple[dict[Split, Sequence[Problem]], dict[str, Any], list[str], list[str]]:
    """Read the data of each split.

    Returns:
        The problems of each readable split; the task's facts; warnings; faults, each with the
        splits that cannot be read.
    """
    from gapft_harness.lm_eval_bridge.benchmarks.splits import DataNotFound
    from gapft_harness.lm_eval_bridge.discovery import NoSuchTaskError

    try:
        data_by_split, task, _ = check_splits(recipe, plugins, include_paths)
        warning_lines = [
            f"{split}: {line}" for split, data in data_by_split.items() for line in data.warnings
        ]
        problems_by_split: dict[Split, Sequence[Problem]] = {
            split: data.problems for split, data in data_by_split.items()
        }
        return (
            problems_by_split,
            task,
            warning_lines,
            _check_trainability(recipe, plugins, data_by_split["pool"].problems, task),
        )
    except NoSuchTaskError:
        raise
    except GapftError as error:
        first_fault = str(error)
    counts: dict[Split, Sequence[Problem]] = {}
    warnings: list[str] = []
    missing: dict[str, list[str]] = {}
    task = {}
    for split in list_splits(recipe):  # find the splits that cannot be read
        try:
            problems, task, judge, _ = load_problems(recipe, split, plugins, include_paths)
            with judge:
                counts[split] = problems
            warnings += [f"{split}: {line}" for line in task["warnings"]]
        except GapftError as error:
            remark = "; a dry run downloads nothing, but the run itself will try to"
            fault = f"{error}{remark if isinstance(error, DataNotFound) else ''}"
            missing.setdefault(fault, []).append(split)
    lines = [f"{', '.join(splits)}: {fault}" for fault, splits in missing.items()]
    return counts, task, warnings, lines or [f"data: {first_fault}"]


def _check_trainability(
    recipe: Recipe, plugins: Plugins, pool: Sequence[Problem], task: Mapping[str, Any]
) -> list[str]:
    """List why the pool cannot be trained on; empty without a tokenizer on this machine."""
    try:
        check_trainable(recipe, plugins, pool, task)
    except NotTrainable as error:
        return [str(error)]
    except UserError:
        return []
    return []


def _compare_with_paper(recipe: Recipe, run_dir: str) -> list[str]:
    """List the paper's values of the source model, each compared if the search is finished."""
    run = RunDirectory(Path(run_dir), recipe)
    is_started = (run.path / layout.MANIFEST).exists()
    figures = [
        figure
        for figure in list_published(recipe.model_dump(mode="json"))
        if figure.subject in SPLITS
    ]
    pending_figures = [
        figure
        for figure in figures
        if not (is_started and run.is_sealed(layout.responses_path(figure.subject)))
    ]
    return [
        *(compare_with_paper(run) if is_started else ()),
        *(
            f"{figure.label}: {figure.format_value(figure.printed)} ({figure.table}); "
            + (
                f"not comparable: {figure.reason}"
                if figure.reason
                else "compared with the finished search"
            )
            for figure in pending_figures
        ),
    ]


def _check_gpu(recipe: Recipe, sampler: Registration, size: ModelSize | None) -> list[str]:
    """Report a large model that would be trained on the CPU because there is no GPU."""
    import torch

    is_remote = (
        recipe.executor.address is not None or not sampler.require_traits(SamplerTraits).generates
    )
    if (
        size is None
        or size.weights < LARGE_MODEL_BYTES
        or is_remote
        or "device" in recipe.model.args
    ):
        return []
    if torch.cuda.is_available():
        return []
    return [
        f"GPU: the model's weights take about {size.weights / 1e9:.3g} GB, and this machine has no "
        "GPU that torch can use, so training would run on the CPU; to allow that, set "
        "model.args.device: cpu"
    ]


def _examine_model(recipe: Recipe, sampler: Registration) -> tuple[Path | None, list[str]]:
    """Find the folder of the model's config on this machine, and list faults of the model.

    Returns:
        The folder, or None if the config is not on this machine; and faults of the model's
        arguments and config, or a line if the model would be downloaded.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    arguments = resolve_model_args(recipe)
    faults: list[str] = []
    try:
        if (check := sampler.require_traits(SamplerTraits).check) is not None:
            with sampler.wrap_errors():
                check(build_sampler_settings(recipe))
    except GapftError as error:
        faults.append(f"model: {error}")
    name, revision = arguments["pretrained"], str(arguments.get("revision", "main"))
    if Path(name).is_dir():
        return Path(name), faults or _check_config(recipe, Path(name))
    try:
        cached = try_to_load_from_cache(name, "config.json", revision=revision)
    except HFValidationError:
        return None, faults or [
            f"model {name}: expected a folder or the name of a model on the hub"
        ]
    if isinstance(cached, str):
        folder = Path(cached).parent
        return folder, faults or _check_config(recipe, folder)
    revision_text = f" at revision {revision}" if "revision" in arguments else ""
    absence = f"model {name}{revision_text}: not in the hub's cache; the run would download it"
    return None, faults or [absence]


def _check_config(recipe: Recipe, folder: Path) -> list[str]:
    """List why transformers cannot read a model's config, which training needs."""
    from gapft_harness.training.model import read_config

    try:
        read_config({**resolve_model_args(recipe), "pretrained": str(folder)})
    except GapftError as error:
        return [str(error)]
    return []


def _describe_end_tokens(
    recipe: Recipe, plugins: Plugins, config: Path | None
) -> tuple[list[str], list[str]]:
    """Describe which token ends a trained response, or why the model cannot be trained.

    Args:
        recipe: the recipe.
        plugins: the loaded plugins.
        config: the folder of the model's config on this machine; without one (None), the result is
            empty.

    Returns:
        The lines on end tokens, and the faults.
    """
    from gapft_harness.training.model import ModelNotLoaded

    if config is None:
        return [], []
    try:
        end_tokens = find_end_tokens(recipe, plugins)
    except ModelNotLoaded:  # reported by the checks of config and tokenizer
        return [], []
    except GapftError as error:
        return [], [str(error)]
    names: dict[str, list[str]] = {}
    for condition, end in end_tokens.items():
        token_text = "no end token is supervised" if end is None else f"{end.text!r} ({end.id})"
        names.setdefault(token_text, []).append(condition)
    return [
        f"        end token: {token_text}"
        + (f" in {', '.join(conditions)}" if len(names) > 1 else "")
        for token_text, conditions in names.items()
    ], []


def _describe_stages(
    recipe: Recipe,
    experiments: Sequence[Experiment],
    plugins: Plugins,
    run_dir: str,
    task: Mapping[str, Any],
    end_token_lines: Sequence[str],
    task_sizes: Mapping[Split, int],
) -> list[str]:
    k, recipe_json = recipe.search.k, recipe.model_dump(mode="json")
    slots, exposures, steps = describe_planned_budget(recipe)
    originals, deployment = recipe.map_replicates(), recipe.search.describe_deployment()
    condition_texts = []
    for name, condition in recipe.conditions.items():
        selector_names = [condition.selector] * (condition.selector != name)
        own = find_own_settings(recipe_json)[name]
        details = [*selector_names, *([f"n = {condition.n}"] if condition.n is not None else [])]
        details += [f"trains {originals[name]} again"] if name in originals else []
        details += [format_own_setting(key, value, k) for key, value in own.items()]
        if has_own_budget(recipe, name, plugins):
            details.append("its own budget")
        elif own or isinstance(condition.n, int):
            details.append(describe_planned_budget(recipe, name)[-1])
        condition_texts.append(f"{name} ({', '.join(details)})" if details else name)
    return [
        f"search  {recipe.data.task}: pool and audit, {deployment} + {k} samples per problem",
        f"        -> {run_dir}/{layout.responses_path('{pool,audit}')}",
        *_describe_calibration(recipe, run_dir),
        f"states  G, S, U -> {run_dir}/{layout.states_path('{pool,audit}')}",
        *(
            f"        pool, by the first {own} of the {k} samples -> "
            f"{run_dir}/{layout.states_path('pool', (0, own))}"
            for own in recipe.list_smaller_k()
        ),
        f"select  {', '.join(condition_texts)}; {slots}; {exposures}; {steps}",
        f"        -> {run_dir}/{layout.SELECTIONS}/",
        *_describe_adapters(recipe, plugins, run_dir),
        *_describe_online_training(recipe),
        *_describe_start_tokens(recipe),
        *end_token_lines,
        f"audit   {recipe.search.describe_deployment('one greedy decode')} per adapter and audit "
        f"problem -> {run_dir}/{layout.DECISIONS}/",
        *_describe_experiments(recipe, experiments, task_sizes, run_dir),
        f"report  -> {run_dir}/{layout.REPORT}/index.html",
    ]


def _describe_experiments(
    recipe: Recipe,
    experiments: Sequence[Experiment],
    problems: Mapping[Split, int],
    run_dir: str,
) -> Iterator[str]:
    """Describe the work and the output folders of experiments."""
    counts = count_all(recipe, problems)
    lines = [
        f"        {experiment.name}: {what} -> {run_dir}/{folder}/"
        for experiment in experiments
        for what, folder in experiment.cost(recipe, counts).work.items()
    ]
    if lines:
        yield from ("experiments", *lines)


def _describe_adapters(recipe: Recipe, plugins: Plugins, run_dir: str) -> list[str]:
    """Describe the number of adapters, and the conditions that share them."""
    shared, seeds = predict_shared(recipe, plugins), len(recipe.seeds)
    sharers: dict[str, list[str]] = {}
    for name, other in shared.items():
        sharers.setdefault(other, []).append(name)
    sharing_notes = [
        f"; {', '.join(names)} reuse those of {other}" for other, names in sharers.items()
    ]
    count = len(recipe.conditions) - len(shared)
    lines = [
        f"train   {count * seeds} adapters ({count} conditions x {seeds} seeds"
        f"{''.join(sharing_notes)}) -> {run_dir}/{layout.ADAPTERS}/"
    ]
    if count > 1:
        lines.append("        at most; conditions that select the same examples share adapters")
    return lines


def _describe_online_training(recipe: Recipe) -> Iterator[str]:
    """Describe the settings of each condition that is trained by GRPO."""
    for name in recipe.conditions:
        settings = recipe.resolve_training(name)
        if settings.trainer != "grpo":
            continue
        grpo = settings.grpo
        facts = [
            f"J updates of {grpo.prompts_per_update} prompts x {grpo.group_size} responses",
            "flat groups masked" if grpo.mask_flat else "flat groups not masked",
            f"reward {grpo.reward}",
            f"temperature {grpo.temperature:g}",
            f"KL {grpo.beta:g}" if grpo.beta else "no KL",
            f"loss {grpo.loss}",
            f"learning rate {settings.learning_rate:g}",
        ]
        yield f"        {name}: {', '.join(facts)}"


def _describe_start_tokens(recipe: Recipe) -> list[str]:
    """Describe numbers of start tokens in training that differ from those in search and audit."""
    search_count = recipe.model.start_tokens
    counts = {name: recipe.resolve_training(name).start_tokens for name in recipe.conditions}
    conditions_by_count = {
        n: [name for name in counts if counts[name] == n]
        for n in counts.values()
        if n not in (None, search_count)
    }
    lines = []
    for n, names in conditions_by_count.items():
        condition_text = f" of {', '.join(names)}" if len(names) < len(counts) else ""
        lines.append(
            f"        start tokens: {n} in the training prompt{condition_text}, "
            f"{search_count} in search and audit"
        )
    return lines


def _describe_calibration(recipe: Recipe, run_dir: str) -> list[str]:
    choice = recipe.calibration
    if choice is None:
        return []
    origin = (
        "the validation split"
        if choice == "validation"
        else f"{choice} problems of the training split, which the pool leaves out"
    )
    return [
        f"        calibration: {origin}, {recipe.search.describe_deployment()} per problem",
        f"        -> {run_dir}/{layout.responses_path(CALIBRATION)}",
    ]
