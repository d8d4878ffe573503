"""``gapft run --dry-run``: show the recipe, the stages, their costs, and missing requirements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from gapft_harness.cli.options import Options
from gapft_harness.cli.requirements import (
    LARGE,
    Size,
    count_all,
    has_own_budget,
    list_requirements,
    size_of,
)
from gapft_harness.cli.runs import resolve_recipe, set_by, settle_chat_template
from gapft_harness.core.errors import GapftError, UserError
from gapft_harness.core.offline import offline
from gapft_harness.core.records import Problem
from gapft_harness.hooks.manager import Plugins, load_plugins
from gapft_harness.hooks.registered import Registered, SamplerTraits
from gapft_harness.recipe.called_plugins import check_names
from gapft_harness.recipe.conditions import own_settings
from gapft_harness.recipe.recipe import Recipe, model_args, sampler_settings
from gapft_harness.report.reading.paper import printed
from gapft_harness.report.rendering import wording
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import (
    CALIBRATION,
    SPLITS,
    RunDirectory,
    Split,
    splits_of,
)
from gapft_harness.run_directory.manifest import naming_plugins
from gapft_harness.run_directory.tables import read_examples
from gapft_harness.stages.experiment import Experiment, asked
from gapft_harness.stages.generation.generation import check_early_stop
from gapft_harness.stages.generation.sealing import closing_verifier
from gapft_harness.stages.integrity.rests_on import Changed, hold, searched_in
from gapft_harness.stages.integrity.subsets import told
from gapft_harness.stages.search.data import check_splits, load_problems
from gapft_harness.stages.search.stage import foresee_search, held_to_paper
from gapft_harness.stages.search.trainable import NotTrainable, check_trainable
from gapft_harness.stages.selection.budgets import foreseen
from gapft_harness.stages.selection.other_runs import check_sources
from gapft_harness.stages.selection.stage import arms, replicate_warnings
from gapft_harness.stages.train.job import missing_packages, searched_pool
from gapft_harness.stages.train.online import reward_warnings
from gapft_harness.stages.train.stage import find_end_tokens, refused_kernels
from gapft_harness.stages.train.stored import foresee_shared, groups_of, is_stored
from gapft_harness.store.explain import explain, summarize
from gapft_harness.store.store import Store
from gapft_harness.training.plan import budget

#: The last line of a dry run if the run itself can start.
NOTHING_MISSING = "nothing: this recipe can run"


@offline()
def describe(choice: Options, run_dir: Path | None) -> str:
    """Return the text of a dry run. Nothing is generated, loaded, written or downloaded.

    Args:
        choice: the command's options.
        run_dir: the run directory, which need not exist; None is ``runs/NAME``.

    Raises:
        UserError: the recipe is invalid, or names an unknown plugin or task.
    """
    if choice.recipe is None and not choice.task and run_dir is not None:
        RunDirectory.open(run_dir)
        choice = replace(
            choice, recipe=f"{run_dir}/{layout.RECIPE}"
        )  # as ``run_recipe`` continues a run
    recipe = resolve_recipe(choice)
    place = str(run_dir or Path("runs", recipe.name))
    plugins = load_plugins(choice.plugin_files)
    warnings: list[str] = []
    try:
        recipe, applied = settle_chat_template(recipe, Path(place), plugins)
        warnings += filter(None, [applied])
    except GapftError as error:
        warnings.append(f"model.chat_template: cannot be determined: {error}")
    with naming_plugins(Path(place)):
        check_names(recipe, plugins)
        experiments = asked(recipe, plugins, set_by(choice))
    include_paths = choice.include_paths or searched_in(Path(place))
    read, task, said, missing = _read(recipe, plugins, include_paths)
    problems = {split: len(of) for split, of in read.items()}
    warnings += said
    warnings += replicate_warnings(recipe)
    if task:
        warnings += reward_warnings(recipe, task, plugins)
    sampler = plugins.get("sampler", recipe.model.backend)
    config, of_model = _model(recipe, sampler)
    size = size_of(recipe, config)
    missing += [*of_model, *_no_gpu(recipe, sampler, size), *missing_packages(recipe, plugins)]
    missing += [
        *_sources(recipe, plugins, place),
        *filter(None, [refused_kernels(recipe, plugins)]),
    ]
    ends, untrainable = _end_tokens(recipe, plugins, config)
    missing += untrainable
    run, with_trained, refused, changed = _there(recipe, place, plugins, choice.include_paths)
    missing += filter(None, [refused])
    work = _describe_work(with_trained, run, refused, place, plugins, choice, read, task)
    lines = [
        "# resolved recipe",
        yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False).rstrip(),
        "",
        "# stages",
        *_stages(recipe, experiments, plugins, place, task, ends, problems),
        "",
        "# what it takes",
        *list_requirements(
            with_trained, experiments, plugins, problems, task, size, place, run, refused, changed
        ),
        "",
        "# what is new",
        *work,
        *(["", "# warnings", *warnings] if warnings else []),
        *(["", "# the paper's source", *_paper(recipe, place)] if recipe.paper else []),
        "",
        "# missing here",
        *(dict.fromkeys(missing) or [NOTHING_MISSING]),
    ]
    return "\n".join(lines)


def _there(
    recipe: Recipe, place: str, plugins: Plugins, include_paths: Sequence[str]
) -> tuple[RunDirectory | None, Recipe, str, str]:
    """Find an existing run, and compare it with the recipe.

    Returns:
        The run if its work is kept, else None; the recipe, extended by conditions and seeds that
        the run has trained; why the run cannot continue, or ""; and which changes cause work to be
        repeated, or "".
    """

    def read(paths: Sequence[str]) -> dict[str, Any]:
        return check_splits(recipe, plugins, paths)[2]

    path = Path(place)
    try:
        fitted, changes = RunDirectory.compare(path, recipe, plugins)
        if not (path / layout.RECIPE).exists():
            return None, recipe, "", ""
        run = RunDirectory(path, fitted, changes=changes)
        if changes and not run.is_empty():
            run.require_stored()
        if changes.of_search:
            return None, fitted, "", _made_anew(changes.of_search)
        if (path / layout.MANIFEST).exists() and not run.is_empty():
            hold(run, run.manifest(), plugins, include_paths, read)
        return run, fitted, "", _made_anew(changes.of_selection)
    except Changed as error:
        return None, recipe, "", _made_anew(error.lines)
    except GapftError as error:
        return None, recipe, str(error), ""


def _describe_work(
    recipe: Recipe,
    run: RunDirectory | None,
    refused: str,
    place: str,
    plugins: Plugins,
    choice: Options,
    problems: Mapping[Split, Sequence[Problem]],
    task: Mapping[str, Any],
) -> list[str]:
    """Describe, in a line for each step, what is reused and what is new and why, if known."""
    if refused:
        return ["not known: the run cannot continue"]
    try:
        store = Store.beside(Path(place))
        return [
            *_searches(recipe, run, problems, task, plugins, store),
            *_trainings(recipe, run, choice),
        ]
    except GapftError as error:
        return [f"cannot be determined: {error}"]


def _searches(
    recipe: Recipe,
    run: RunDirectory | None,
    problems: Mapping[Split, Sequence[Problem]],
    task: Mapping[str, Any],
    plugins: Plugins,
    store: Store,
) -> Iterator[str]:
    files = {} if run is None else run.manifest()["files"]
    for split in splits_of(recipe):
        if layout.responses(split) in files:
            yield f"search {split}: in the run"
            continue
        audit = task.get("audits", {}).get(layout.further(split), task)
        if split not in problems or not task:
            yield f"search {split}: not known, because its problems cannot be read"
            continue
        found = foresee_search(recipe, split, problems[split], audit, plugins, store)
        if found is None:
            yield (
                f"search {split}: known once the model is loaded: its files are not on this machine"
            )
        else:
            yield f"search {split}: {found.describe(Path('.'))}"


def _trainings(recipe: Recipe, run: RunDirectory | None, choice: Options) -> Iterator[str]:
    """Describe which adapters are trained and decoded, as far as the run has selected."""
    wanted = arms(recipe)
    if run is None or any(line.split(".")[0] != "training" for line in run.changes.lines):
        yield f"train: known after the search; at most {len(wanted)}"
        yield f"audit: known after training; at most {len(wanted)} arms"
        return
    files, plugins = run.manifest()["files"], load_plugins(choice.plugin_files)
    kept = set() if run.changes else {arm for arm in wanted if layout.adapter(arm) in files}
    asked = [arm for arm in wanted if arm not in kept and layout.selection(arm) in files]
    pool = partial(searched_pool, run, plugins, choice.plugin_files)
    groups = groups_of(run, asked, plugins, pool)
    new = {group.key: arm for arm, group in groups.items() if not is_stored(group)}
    why = summarize([explain(groups[arm]) for arm in new.values()])
    steps = 0
    for arm in new.values():
        examples = read_examples(run.sealed(layout.selection(arm)))
        steps += budget(examples, recipe.training_of(arm.condition)).steps
    later = len(wanted) - len(kept) - len(asked)
    parts = [f"{len(kept)} in the run"] if kept else []
    parts += [f"{len(asked) - len(new)} reused"] if len(asked) > len(new) else []
    parts += [f"{len(new)} new ({steps:,} steps){f': {why}' if why else ''}"] if new else []
    parts += [f"{later} known after selection"] if later else []
    yield f"train: {', '.join(parts)}"
    decoded = [arm for arm in kept if layout.decisions(arm) in files]
    left = len(wanted) - len(decoded)
    yield f"audit: {f'at most {left} of {len(wanted)} arms new' if left else 'in the run'}"


def _made_anew(lines: Sequence[str]) -> str:
    """Describe changes whose results are computed again unless they are stored."""
    return f"changed; dependent results are recomputed: {'; '.join(lines)}" if lines else ""


def _read(
    recipe: Recipe, plugins: Plugins, include_paths: Sequence[str]
) -> tuple[dict[Split, Sequence[Problem]], dict[str, Any], list[str], list[str]]:
    """Read the problems of each split, the task's facts, and warnings; list what is unreadable."""
    from gapft_harness.lm_eval_bridge.benchmarks.splits import DataNotFound
    from gapft_harness.lm_eval_bridge.discovery import NoSuchTaskError

    try:
        read, task, _ = check_splits(recipe, plugins, include_paths)
        check_early_stop(recipe.search, plugins.get("response rule", task["keep"]), task)
        said = [f"{split}: {line}" for split, of in read.items() for line in of.warnings]
        known: dict[Split, Sequence[Problem]] = {split: of.problems for split, of in read.items()}
        return known, task, said, _untrainable(recipe, plugins, read["pool"].problems, task)
    except NoSuchTaskError:
        raise
    except GapftError as error:
        of_all = str(error)
    counts: dict[Split, Sequence[Problem]] = {}
    warnings: list[str] = []
    missing: dict[str, list[str]] = {}
    task = {}
    for split in splits_of(recipe):  # find out which splits cannot be read
        try:
            problems, task, verifier, _ = load_problems(recipe, split, plugins, include_paths)
            with closing_verifier(verifier):
                counts[split] = problems
            warnings += [f"{split}: {line}" for line in task["warnings"]]
        except GapftError as error:
            later = "; a dry run downloads nothing, but the run itself will try to"
            why = f"{error}{later if isinstance(error, DataNotFound) else ''}"
            missing.setdefault(why, []).append(split)
    lines = [f"{', '.join(splits)}: {why}" for why, splits in missing.items()]
    return counts, task, warnings, lines or [f"data: {of_all}"]


def _untrainable(
    recipe: Recipe, plugins: Plugins, pool: Sequence[Problem], task: Mapping[str, Any]
) -> list[str]:
    """List problems that training cannot use; empty without a tokenizer on this machine."""
    try:
        check_trainable(recipe, plugins, pool, task)
    except NotTrainable as error:
        return [str(error)]
    except UserError:
        return []
    return []


def _paper(recipe: Recipe, place: str) -> list[str]:
    """Compare the paper's values of the source model with the run's search, if it is finished."""
    run = RunDirectory(Path(place), recipe)
    there = (run.path / layout.MANIFEST).exists()
    figures = [of for of in printed(recipe.model_dump(mode="json")) if of.of in SPLITS]
    ahead = [of for of in figures if not (there and run.is_sealed(layout.responses(of.of)))]
    return [
        *(held_to_paper(run) if there else ()),
        *(
            f"{of.label}: {of.shown(of.printed)} ({of.where}); "
            + (f"not comparable: {of.why}" if of.why else "compared with the finished search")
            for of in ahead
        ),
    ]


def _no_gpu(recipe: Recipe, sampler: Registered, size: Size | None) -> list[str]:
    """Report a large model that would be trained on the CPU although no device was set."""
    import torch

    elsewhere = recipe.executor.address is not None or not sampler.declared(SamplerTraits).generates
    if size is None or size.weights < LARGE or elsewhere or "device" in recipe.model.args:
        return []
    if torch.cuda.is_available():
        return []
    return [
        f"GPU: the model's weights take about {size.weights / 1e9:.3g} GB, and this machine has no "
        "GPU that torch can use, so training would run on the CPU"
    ]


def _model(recipe: Recipe, sampler: Registered) -> tuple[Path | None, list[str]]:
    """Find the folder of the model's config on this machine; list what is wrong with the model.

    Returns:
        The folder, or None if the config is not on this machine; faults of the model's arguments
        and config, and a line if the model would be downloaded.
    """
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    arguments = model_args(recipe)
    problems: list[str] = []
    try:
        if (check := sampler.declared(SamplerTraits).check) is not None:
            with sampler.blamed():
                check(sampler_settings(recipe))
    except GapftError as error:
        problems.append(f"model: {error}")
    name, revision = arguments["pretrained"], str(arguments.get("revision", "main"))
    if Path(name).is_dir():
        return Path(name), problems or _refused_config(recipe, Path(name))
    try:
        cached = try_to_load_from_cache(name, "config.json", revision=revision)
    except HFValidationError:
        return None, problems or [
            f"model {name}: expected a folder or the name of a model on the hub"
        ]
    if isinstance(cached, str):
        folder = Path(cached).parent
        return folder, problems or _refused_config(recipe, folder)
    at = f" at revision {revision}" if "revision" in arguments else ""
    absent = f"model {name}{at}: not in the hub's cache; the run would download it"
    return None, problems or [absent]


def _refused_config(recipe: Recipe, folder: Path) -> list[str]:
    """List why transformers cannot read a model's config, which training needs."""
    from gapft_harness.training.model import read_config

    try:
        read_config({**model_args(recipe), "pretrained": str(folder)})
    except GapftError as error:
        return [str(error)]
    return []


def _end_tokens(
    recipe: Recipe, plugins: Plugins, config: Path | None
) -> tuple[list[str], list[str]]:
    """Describe which token ends a trained response, or why the model cannot be trained.

    Args:
        recipe: the recipe.
        plugins: the loaded plugins.
        config: the folder of the model's config on this machine; None: nothing is described.

    Returns:
        Lines on the end tokens; faults.
    """
    from gapft_harness.training.model import ModelNotLoaded

    if config is None:
        return [], []
    try:
        found = find_end_tokens(recipe, plugins)
    except ModelNotLoaded:  # reported by the checks of config and tokenizer
        return [], []
    except GapftError as error:
        return [], [str(error)]
    names: dict[str, list[str]] = {}
    for condition, end in found.items():
        told = "no end token is supervised" if end is None else f"{end.text!r} ({end.id})"
        names.setdefault(told, []).append(condition)
    return [
        f"        end token: {told}" + (f" in {', '.join(of)}" if len(names) > 1 else "")
        for told, of in names.items()
    ], []


def _stages(
    recipe: Recipe,
    experiments: Sequence[Experiment],
    plugins: Plugins,
    run_dir: str,
    task: Mapping[str, Any],
    ends: Sequence[str],
    task_sizes: Mapping[Split, int],
) -> list[str]:
    k, dumped = recipe.search.k, recipe.model_dump(mode="json")
    slots, exposures, steps = foreseen(recipe)
    stop = recipe.search.stop == "first_pass"
    early = "; of the pool, none after one that passes" if stop else ""
    originals = recipe.replicates()
    named = []
    for name, of in recipe.conditions.items():
        chosen = [of.selector] * (of.selector != name)
        own = own_settings(dumped)[name]
        said = [*chosen, *([f"n = {of.n}"] if of.n is not None else [])]
        said += [f"trains {originals[name]} again"] if name in originals else []
        said += [wording.own_setting(key, value, k) for key, value in own.items()]
        if has_own_budget(recipe, name, plugins):
            said.append("a budget of its own")
        elif own or isinstance(of.n, int):
            said.append(foreseen(recipe, name)[-1])
        named.append(f"{name} ({', '.join(said)})" if said else name)
    return [
        f"search  {recipe.data.task}: pool and audit, 1 greedy + {k} samples a problem{early}",
        f"        -> {run_dir}/{layout.responses('{pool,audit}')}",
        *_calibration(recipe, run_dir),
        *(line for name in recipe.further for line in _further(recipe, name, task, run_dir)),
        f"states  G, S, U -> {run_dir}/{layout.states('{pool,audit}')}",
        *(
            f"        pool, by the first {own} of the {k} samples -> "
            f"{run_dir}/{layout.states('pool', (0, own))}"
            for own in recipe.windows()
        ),
        f"select  {', '.join(named)}; {slots}; {exposures}; {steps}",
        f"        -> {run_dir}/{layout.SELECTIONS}/",
        *_adapters(recipe, plugins, run_dir),
        *_online(recipe),
        *_prompts(recipe),
        *ends,
        f"audit   one greedy decode per adapter and audit problem -> {run_dir}/{layout.DECISIONS}/",
        *(f"        -> {run_dir}/{layout.DECISIONS}/*@{name}.parquet" for name in recipe.further),
        *(
            f"        {name}: {told(choice)}, scored again"
            for name, choice in recipe.subsets.items()
        ),
        *_steps(recipe, experiments, task_sizes, run_dir),
        f"report  -> {run_dir}/{layout.REPORT}/index.html",
    ]


def _steps(
    recipe: Recipe,
    experiments: Sequence[Experiment],
    problems: Mapping[Split, int],
    run_dir: str,
) -> Iterator[str]:
    """Describe the work and the output folders of experiments."""
    counts = count_all(recipe, problems)
    lines = [
        f"        {each.name}: {what} -> {run_dir}/{folder}/"
        for each in experiments
        for what, folder in each.cost(recipe, counts).work.items()
    ]
    if lines:
        yield from ("experiments", *lines)


def _adapters(recipe: Recipe, plugins: Plugins, run_dir: str) -> list[str]:
    """Describe how many adapters are trained, and which conditions share adapters."""
    shared, seeds = foresee_shared(recipe, plugins), len(recipe.seeds)
    named: dict[str, list[str]] = {}
    for name, other in shared.items():
        named.setdefault(other, []).append(name)
    reused = [f"; {', '.join(names)} reuse those of {other}" for other, names in named.items()]
    count = len(recipe.conditions) - len(shared)
    lines = [
        f"train   {count * seeds} adapters ({count} conditions x {seeds} seeds{''.join(reused)}) "
        f"-> {run_dir}/{layout.ADAPTERS}/"
    ]
    if count > 1:
        lines.append("        at most; conditions that select the same examples share adapters")
    return lines


def _online(recipe: Recipe) -> Iterator[str]:
    """Describe the settings of each condition that is trained by GRPO."""
    for name in recipe.conditions:
        settings = recipe.training_of(name)
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


def _further(recipe: Recipe, name: str, task: Mapping[str, Any], run_dir: str) -> list[str]:
    """Describe a further audit: its task, and its verifier if the task can be read."""
    facts = task.get("audits", {}).get(name)
    verified = f", verified by {facts['verifier']} {facts['verifier_params']}" if facts else ""
    return [
        f"        audit {name}: {recipe.audits[name].task}, 1 greedy + {recipe.search.k} samples a "
        f"problem{verified}",
        f"        -> {run_dir}/{layout.responses(layout.audit(name))}",
    ]


def _sources(recipe: Recipe, plugins: Plugins, place: str) -> list[str]:
    """Report the first training set of another run that cannot be used."""
    try:
        check_sources(RunDirectory(Path(place), recipe), plugins, {})
    except GapftError as error:
        return [str(error)]
    return []


def _prompts(recipe: Recipe) -> list[str]:
    """Describe start tokens of prompts in training that differ from search and audit."""
    seen = recipe.model.start_tokens
    own = {name: recipe.training_of(name).start_tokens for name in recipe.conditions}
    of = {
        n: [name for name in own if own[name] == n] for n in own.values() if n not in (None, seen)
    }
    lines = []
    for n, names in of.items():
        whose = f" of {', '.join(names)}" if len(names) < len(own) else ""
        lines.append(
            f"        start tokens: {n} in the training prompt{whose}, {seen} in search and audit"
        )
    return lines


def _calibration(recipe: Recipe, run_dir: str) -> list[str]:
    taken = recipe.calibration
    if taken is None:
        return []
    whence = (
        "the validation split"
        if taken == "validation"
        else f"{taken} problems of the training split, which the pool leaves out"
    )
    return [
        f"        calibration: {whence}, 1 greedy a problem",
        f"        -> {run_dir}/{layout.responses(CALIBRATION)}",
    ]
