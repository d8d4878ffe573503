"""The search: a step makes a folder with the problems and the responses of each split.

It generates and verifies the deployment decode and K samples for every problem of a split, or only
the deployment decode for the calibration split (Section 3.1: d_src(x) and Y_K(x), every generation
from the same prompt, without feedback).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from gapft_harness.core.errors import UserError
from gapft_harness.core.identities import content_hash
from gapft_harness.core.records import Problem
from gapft_harness.core.streams import SampleStreams
from gapft_harness.engine.outputs import NOT_HERE, Output
from gapft_harness.engine.planner import Planner
from gapft_harness.engine.step import Step
from gapft_harness.engine.store import Store, open_store
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import Job, ReportProgress, SamplerSettings, report_nothing
from gapft_harness.lm_eval_bridge.samplers.endings import format_ignored_entries
from gapft_harness.recipe.reading import check_recipe
from gapft_harness.recipe.recipe import build_sampler_settings
from gapft_harness.recipe.sections import Search
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import (
    CALIBRATION,
    SPLITS,
    RunDirectory,
    Split,
    list_splits,
    read_recipe,
)
from gapft_harness.run_directory.facts import TaskFacts
from gapft_harness.run_directory.recipe_changes import list_differences, list_setting_changes
from gapft_harness.run_directory.recorded import read_searches
from gapft_harness.run_directory.tables import write_problems
from gapft_harness.stages.context import Context, is_selected
from gapft_harness.stages.decode import MACHINE, DecodeBuilder, build_decoder
from gapft_harness.stages.descriptions import describe_verifier, require_described
from gapft_harness.stages.generation.chunks import (
    DecodePhase,
    build_deployment_decoding,
    build_sample_phases,
    build_sampled_decoding,
    build_single_phase,
    read_decoding,
)
from gapft_harness.stages.generation.generation import (
    Decodes,
    describe_stored,
    generate_and_judge,
)
from gapft_harness.stages.search.data import check_data, check_splits, hash_problems
from gapft_harness.stages.search.disjoint import check_searched_splits
from gapft_harness.stages.search.recorded import (
    build_search_settings,
    describe_logs,
    record_responses,
)

#: The settings of a search that decide the deployment decode; the others decide samples.
_DEPLOYMENT_KEYS = ("seed", "chunk", "deployment")


def build_search_step(
    builder: DecodeBuilder, split: Split, problems: Any, include_paths: Sequence[str] = ()
) -> Step:
    """Build the step that searches a split.

    Args:
        builder: describes sampler and verifier.
        split: the split.
        problems: what ``hash_problems`` returned for its problems; ``NOT_HERE`` if they were not
            read.
        include_paths: folders with task YAML.
    """
    recipe = builder.recipe
    task = builder.task
    settings = build_search_settings(recipe, split)
    logs = describe_logs(recipe, split, builder.plugins)
    if logs is not None:  # what replays them does not report the model
        builder = replace(builder, source={})
    search = recipe.search.model_dump(mode="json", exclude={"max_gen_toks", "responses"})
    if split == CALIBRATION:
        search = {key: search[key] for key in _DEPLOYMENT_KEYS if key in search}
    return builder.build(
        split,
        search_split,
        {
            "split": split,
            "problems": problems,
            "decoding": dict(task["decoding"]),
            "search": search,
            "episode": dict(task["episode"]),
            "logs": logs,
        },
        {},
        settings,
        {
            "recipe": recipe.model_dump(mode="json"),
            "include_paths": [str(path) for path in include_paths],
        },
        verb="search",
    )


def search_split(
    output: Path | None = None,
    *,
    split: Split,
    problems: Mapping[str, Any],
    decoding: Mapping[str, Any],
    search: Mapping[str, Any],
    episode: Mapping[str, Any],
    logs: Mapping[str, Any] | None,
    sampler: Mapping[str, Any],
    verifier: Mapping[str, Any],
    described: Mapping[str, Mapping[str, Any]],
    sampler_settings: Mapping[str, Any],
    recipe: Mapping[str, Any],
    include_paths: Sequence[str],
    plugin_files: Sequence[str],
    store: str,
    run: str,
    progress: ReportProgress = report_nothing,
    share: tuple[int, int] = (0, 1),
) -> dict[str, Any]:
    """Search one split: the function of a step; see ``build_search_step``.

    Args:
        output: the folder to write, with the tables of problems and responses; None to store
            chunks only.
        split: the split; ``calibration`` is only decoded greedily.
        problems: the number and the hash of its problems.
        decoding: the limit and the stop strings of a response.
        search: the settings of the samples, or of the deployment decode alone.
        episode: attempts and executions of an episode.
        logs: the logs that responses are taken from; None if they are generated.
        sampler: the sampler's part of the key; ``described`` has all parts.
        verifier: the verifier's part of the key; ``described`` has all parts.
        described: the descriptions of sampler and verifier for the keys of stored parts.
        sampler_settings: the fields of the ``SamplerSettings``.
        recipe: the recipe, which names the task.
        include_paths: folders with task YAML.
        plugin_files: files given by ``--plugin``.
        store: the folder of the store.
        run: the run directory that responses are generated for.
        progress: called with (0, 0) before data and model are loaded, then with the numbers of
            finished and of all responses.
        share: (worker number from 0, number of workers) among which the chunks are divided.

    Returns:
        The facts of the responses, and the model's description as ``source``; empty without an
        output.

    Raises:
        UserError: the task or its data changed meanwhile, or the model is not the described one.
    """
    progress(0, 0)
    # Read the problems, and check that they and the verifier are those of the key
    plugins = load_plugins(plugin_files)
    checked = check_recipe(dict(recipe), "the run's recipe")
    splits, task = check_splits(checked, plugins, include_paths, [split])
    members = splits[split].problems
    plugins.require_code(part["code"] for part in described.values())
    verifier_now = {**described["verifier"], **describe_verifier(task, plugins)}
    is_same_verifier = content_hash(verifier_now) == content_hash(described["verifier"])
    if hash_problems(members) != problems or not is_same_verifier:
        raise UserError(
            f"{split}: its problems or verifier have just changed; run the same command again"
        )
    # Take the responses of logs, or of the model
    settings = SamplerSettings(**sampler_settings)
    log_facts = dict[str, Any]()
    if logs is not None and output is not None:
        path = output.with_name(".responses.jsonl")  # hidden: the store does not keep it
        log_facts = record_responses(checked, path, split, members, task, plugin_files)
        settings = build_search_settings(checked, split, path)
    if output is not None:
        output.mkdir()
    # Generate and judge
    facts, source, responses = generate_and_judge(
        build_decodes(split, search, episode, logs, described),
        members,
        build_phases(split, decoding, search),
        None if output is None else output / "responses.parquet",
        store=Store(Path(store)),
        run=run,
        load_sampler=lambda: plugins.create_sampler(settings, None),
        require_same_model=partial(require_described, described=described["sampler"], name=split),
        judge=plugins.create_verifier(task["verifier"], task["verifier_params"]),
        progress=progress,
        share=(share[0], share[1]),
        keeps_verdicts=log_facts.get("imported", {}).get("verdicts") == "file",
    )
    if output is None:
        return {}
    write_problems(output / "problems.parquet", members, responses.iterate_prompt_ids)
    return {
        **facts,
        "source": _describe_log_model(source) if log_facts else source,
        **log_facts,
        "warnings": [*log_facts.get("warnings", ()), *facts["warnings"]],
    }


def build_decodes(
    split: Split,
    search: Mapping[str, Any],
    episode: Mapping[str, Any],
    logs: Mapping[str, Any] | None,
    described: Mapping[str, Mapping[str, Any]],
) -> Decodes:
    """Describe what a split's responses and verdicts depend on; see ``search_split``."""
    return Decodes(
        described["sampler"],
        described["verifier"],
        search["chunk"],
        SampleStreams(search["seed"], "search", split),
        episode["attempts"],
        episode["executions"],
        logs,
    )


def _describe_log_model(source: Mapping[str, Any]) -> dict[str, Any]:
    """Keep of a description of ``recorded`` what describes the model of the responses."""
    return {
        key: source[key]
        for key in ("pretrained", "tokenizer", "start_ids", "responses_sha256")
        if key in source
    }


def build_phases(
    split: Split, decoding: Mapping[str, Any], search: Mapping[str, Any]
) -> list[DecodePhase]:
    """Build the phases of a split's search: the deployment decode, and samples in blocks.

    Args:
        split: the split; ``calibration`` has no samples.
        decoding: see ``search_split``.
        search: see ``search_split``.
    """
    greedy = read_decoding(decoding)
    settings = Search.model_validate(dict(search))
    return [
        build_single_phase(build_deployment_decoding(greedy, settings)),
        *build_sample_phases(
            build_sampled_decoding(greedy, settings), 0 if split == CALIBRATION else settings.k
        ),
    ]


def describe_stored_parts(step: Step, problems: Sequence[Problem], store: Store) -> str:
    """Describe which parts of a split's search the store has.

    Args:
        step: the step of the search.
        problems: the problems of the split.
        store: the store.
    """
    values = {**step.settings, **step.operational}
    names = ("split", "search", "episode", "logs", "described")
    decodes = build_decodes(**{name: values[name] for name in names})
    phases = build_phases(step.name, values["decoding"], values["search"])
    return describe_stored(decodes, store, problems, phases)


def run_search_stage(context: Context) -> None:
    """Search all splits of the context, after the data of all of them are checked.

    Raises:
        UserError: a problem is in two splits.
    """
    data = read_data(context)
    run = context.run
    task = _describe_task(context, data)
    builder = build_decoder(run.recipe, task, {}, run.path, context.plugin_files, context.executor)
    context.cache[MACHINE] = builder.machine
    problems = {split: data["splits"][split] for split in context.splits}
    paths = context.include_paths
    steps = _build_steps(builder, problems, paths)
    planner = context.plan(steps)
    if any(needs_model(step) for step in steps if step.name in planner.new):
        builder = replace(builder, source=_ask_model(context))
        steps = _build_steps(builder, problems, paths)
        planner = context.plan(steps)
    runner = context.build_runner()
    if missing := [step for step in steps if step.name in planner.new]:
        others = [split for split in find_searched_splits(run) if split not in problems]
        _require_same_searches(run, _build_steps(builder, dict.fromkeys(others, NOT_HERE), paths))
        # mistakes in logs show before anything is generated
        runner([step for step in missing if step.settings["logs"] is not None])
        _search_shares(context, missing)
    for name in planner.stored:
        context.report_line(f"search {name}: reused")
    outputs = runner(steps)
    folders = [str(Path(path).resolve()) for path in paths]
    run.update_facts(lambda facts: facts.update({"task": task, "include_paths": folders}))
    if not list_setting_changes(read_recipe(run.path), run.recipe):
        context.warn(run.record_changes(runner.changes))  # else recorded with those of the recipe
    warnings = check_searched_splits(context.run, find_searched_splits(context.run))
    _report_search(context, outputs, data, warnings)
    for line in compare_with_paper(context.run):
        context.report_line(line)


def needs_model(step: Step) -> bool:
    """Return whether a step generates with a model that is not known on this machine."""
    reported = step.settings["sampler"]["model"].get("reported")
    return step.settings["logs"] is None and reported == NOT_HERE


def _build_steps(
    builder: DecodeBuilder, problems: Mapping[str, Any], include_paths: Sequence[str]
) -> list[Step]:
    return [
        build_search_step(builder, split, item, include_paths) for split, item in problems.items()
    ]


def _require_same_searches(run: RunDirectory, steps: Sequence[Step]) -> None:
    """Require that splits which this command does not search were searched in the same way."""
    planner = Planner(run)
    planner(steps)
    for name, reason in planner.new.items():
        raise UserError(
            f"{name}: was searched with other settings or another model ({reason}); all splits "
            "need the same: restore them, or search all splits again (without --split)"
        )


def find_searched_splits(run: RunDirectory) -> list[Split]:
    """Find the splits of a run's recipe that are searched."""
    return [*read_searches(run)]


def describe_source(
    settings: Mapping[str, Any],
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
) -> dict[str, Any]:
    """Load the source model, or ask its server, and return its description, as a job.

    This downloads a model from the hub.
    """
    progress(0, 1)
    sampler = load_plugins(plugin_files).create_sampler(SamplerSettings(**settings), None)
    try:
        return sampler.describe()
    finally:
        sampler.close()
        progress(1, 1)


def _ask_model(context: Context) -> dict[str, Any]:
    """Return the description of a model whose files are not on this machine."""
    settings = asdict(build_sampler_settings(context.run.recipe))
    files = list(context.plugin_files)
    job = Job.of("load model", describe_source, settings=settings, plugin_files=files)
    job = replace(job, own_process=context.has_own_process)
    (source,) = context.executor.run([job], context.progress)
    return source


def _search_shares(context: Context, steps: Sequence[Step]) -> None:
    """Divide the chunks of splits among workers, which store them; logs are not divided.

    One worker for each split needs no division, unless another command has claimed the split: here
    a chunk is claimed at a time, so that several commands share the work of a search.
    """
    divided = [step for step in steps if step.settings["logs"] is None]
    workers = context.run.recipe.executor.workers // max(1, len(divided))
    if workers < 2:
        workers = 1
        store = open_store(context.run.path)
        divided = [step for step in divided if store.is_claimed(step.place)]
    jobs = [
        Job.of(
            step.label if workers == 1 else f"{step.label}, {number + 1} of {workers}",
            search_split,
            **step.settings,
            **step.operational,
            share=(number, workers),
        )
        for step in divided
        for number in range(workers)
    ]
    jobs = [replace(job, own_process=context.has_own_process) for job in jobs]
    if jobs:
        context.executor.run(jobs, context.progress)


def read_data(context: Context) -> dict[str, Any]:
    """Read and check all splits of a run before any is searched.

    A job does so if the run is not searched yet: its worker then searches with what it has loaded.

    Returns:
        As ``data.check_data``.

    Raises:
        UserError: as ``data.check_data``.
    """
    run = context.run
    only = None
    searched = find_searched_splits(run)
    if context.only_these_splits:  # with the searched splits, since splits must be disjoint
        only = [s for s in list_splits(run.recipe) if s in context.splits or s in searched]
    arguments: dict[str, Any] = {
        "recipe": run.recipe.model_dump(mode="json"),
        "plugin_files": list(context.plugin_files),
        "include_paths": [str(path) for path in context.include_paths],
        "only": only,
        "will_train": "pool" in context.splits and not context.only_these_splits,
    }
    if not searched:
        (data,) = context.executor.run(
            [Job.of("read data", check_data, **arguments)], context.progress
        )
        return data
    return check_data(**arguments, progress=partial(context.progress, "read data"))


def _describe_task(context: Context, data: Mapping[str, Any]) -> TaskFacts:
    """Return the task's facts, with notices on splits that were searched before."""
    task = cast(TaskFacts, {key: value for key, value in data["task"].items() if key != "warnings"})
    recorded = context.run.facts()["task"]
    earlier = recorded.get("dropped", []) if context.only_these_splits else []
    task["dropped"] = [*dict.fromkeys([*earlier, *task["dropped"]])]
    return task


def _report_search(
    context: Context,
    outputs: Mapping[str, Output],
    data: Mapping[str, Any],
    warnings: Sequence[str],
) -> None:
    """Record and print the notices on the data and on the responses."""
    sources = [output.facts["source"] for output in outputs.values()]
    ignored = next(filter(None, (s.get("generation_config_ignored") for s in sources)), None)
    pretrained = context.run.recipe.model.args["pretrained"]
    # the sampler reports ignored settings while it generates; the report needs them too
    recorded = [format_ignored_entries(pretrained, ignored)] if ignored else []
    shown = [*data["task"]["warnings"], *warnings]
    earlier = context.run.facts()["warnings"].get("search", []) * context.only_these_splits
    lines = [*dict.fromkeys([*earlier, *shown, *recorded])]
    context.run.update_facts(lambda facts: facts["warnings"].update(search=lines))
    for line in data["task"]["dropped"]:
        context.report_line(line)
    context.warn(shown)
    for split, output in outputs.items():
        context.warn(output.facts["warnings"], split)


def compare_with_paper(run: RunDirectory) -> list[str]:
    """Compare the searched splits with the source's figures that the recipe gives from a paper.

    Args:
        run: the run; without a search the list is empty.

    Raises:
        UserError: the responses were changed after they were made.
    """
    from gapft_harness.report.reading.published import describe_differences, measure_search

    recipe = run.recipe.model_dump(mode="json")
    searched_splits = [split for split in find_searched_splits(run) if split in SPLITS]
    for split in searched_splits:
        run.file(layout.responses_path(split))
    figures = [
        figure for split in searched_splits for figure in measure_search(run.path, recipe, split)
    ]
    return list(describe_differences(figures))


def store_searched_recipe(context: Context) -> None:
    """Store the recipe of a separate search command, since later stages use it.

    If the run has selected, its recipe stays, since another selection needs a separate command.
    """
    run = context.run
    earlier = RunDirectory.open(run.path)
    if not is_selected(earlier):
        context.warn(run.record_recipe())
        run.write_recipe()
        return
    if pending_changes := list_differences(
        earlier.recipe.model_dump(mode="json"), run.recipe.model_dump(mode="json")
    ):
        context.report_line(
            f"these settings apply when gapft run selects again: {'; '.join(pending_changes)}"
        )
