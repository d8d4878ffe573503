"""Verify searches: task, problems, responses and seeds, and the recorded model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import describe_error
from gapft_harness.core.records import GREEDY
from gapft_harness.core.streams import SampleStreams
from gapft_harness.core.weights import WEIGHTS, combine_hashes
from gapft_harness.engine.outputs import Output
from gapft_harness.engine.run import RECORDS
from gapft_harness.engine.step import Step
from gapft_harness.hooks.manager import Plugins
from gapft_harness.lm_eval_bridge.samplers.retokenizer import replace_start_ids
from gapft_harness.recipe.recipe import Recipe
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import (
    CALIBRATION,
    RunDirectory,
    list_recorded_include_paths,
)
from gapft_harness.run_directory.parquet import read_ids
from gapft_harness.run_directory.recipe_changes import select_searched
from gapft_harness.run_directory.recorded import read_source
from gapft_harness.run_directory.tables import read_problems
from gapft_harness.stages.search.data import check_splits, hash_problems
from gapft_harness.stages.search.stage import find_searched_splits
from gapft_harness.stages.verify.differences import Differences, compare_ids, compare_values
from gapft_harness.stages.verify.judging import ExpectedResponses, TableJudge

#: How messages name the recorded task.
_TASK = f"{RECORDS}, task"

#: Keys of the recorded task that hold notices; they are not compared.
_NOTICE_KEYS = ("dropped", "warnings")

#: Parts of a sampler's description that are equal for every split, on every machine.
_MODEL_KEYS = (
    "backend", "architecture", "dtype", "max_length", "chat_template", "chat_template_sha256",
    "system_instruction", "start_ids", "end_ids", "generation_config_ignored", "adapter",
    "weights_sha256",
)  # fmt: skip


def check_task(run: RunDirectory, plugins: Plugins, findings: Differences) -> dict[str, Any]:
    """Compare the recorded task with that of the recipe.

    Returns:
        What ``hash_problems`` returns for each searched split; empty if the task or its data are
        not on this machine, where only the recipe's own settings are compared.
    """
    task: Mapping[str, Any] = run.facts()["task"]
    try:
        splits, read_task = check_splits(
            run.recipe, plugins, list_recorded_include_paths(run.path), find_searched_splits(run)
        )
    except Exception as error:  # damaged facts, a task and a verifier make it raise anything
        reason = f"task and data cannot be read here ({describe_error(error)})"
        findings.checked.append(f"not compared: {reason}")
        findings.collect(_TASK, lambda: _compare_with_recipe(task, run.recipe))
        return {}
    findings.checked.append("the task and its data are those of the search")
    expected = {key: value for key, value in read_task.items() if key not in _NOTICE_KEYS}
    findings.collect(_TASK, lambda: compare_values(_TASK, task, expected))
    return {split: hash_problems(read.problems) for split, read in splits.items()}


def _compare_with_recipe(task: Mapping[str, Any], recipe: Recipe) -> Iterator[str]:
    """Compare a task's verifier and recorded settings with those of the recipe."""
    expected: dict[str, Any] = {"recipe": select_searched(recipe)}
    if recipe.verifier.name is not None:
        expected["verifier"] = recipe.verifier.name
    yield from compare_values(_TASK, task, expected, "the recipe has")
    params = recipe.add_think_end_token(recipe.verifier.params)
    where = f"{_TASK}, verifier_params"
    yield from compare_values(where, task["verifier_params"], params, "the recipe has")


def check_search(run: RunDirectory, judge: TableJudge, step: Step, output: Output) -> Iterator[str]:
    """Yield the differences of a split's tables from its step and its record, judged again."""
    split = step.name
    facts = output.facts
    problems = layout.problems_path(split)
    responses = layout.responses_path(split)
    yield from _check_problems(run, split)
    ids = list(read_ids(run.path / problems))
    yield from compare_ids(responses, read_ids(run.path / responses), problems, ids)
    search = run.recipe.search
    expected = ExpectedResponses(
        split,
        [GREEDY] if split == CALIBRATION else [GREEDY, *range(search.k)],
        SampleStreams(search.seed, "search", split),
        search.deployment is not None,
    )
    yield from judge.check_table(run, responses, expected, facts)
    source = facts["source"]
    other = read_source(run)
    for key in _MODEL_KEYS:
        if key in source and key in other and source[key] != other[key]:
            yield (
                f"{RECORDS}, source of {split}: {key} is {source[key]}, but that of another split "
                f"is {other[key]}"
            )
    if "imported" not in facts:
        yield from compare_weights(
            responses, step.settings["sampler"]["model"], source.get("weights_sha256")
        )
    if start := source.get("start_ids"):
        yield from _check_start_tokens(run.path / problems, problems, start)


def _check_problems(run: RunDirectory, split: str) -> Iterator[str]:
    """Check a table of problems against the hash of prompts and golds in the key of its search."""
    table = layout.problems_path(split)
    ids = list(read_ids(run.path / table))
    if any(a >= b for a, b in pairwise(ids)):
        yield f"{table}: does not have each problem once, ordered by id"
    found = hash_problems(problem for problem, _ in read_problems(run.path / table))
    recorded = run.read_records()[split].made_from["settings"]["problems"]
    yield from compare_values(table, found, dict(recorded), "its key has")


def _check_start_tokens(path: Path, name: str, start: Sequence[int]) -> Iterator[str]:
    """Yield prompts with other start tokens; a prompt that did not fit has no ids."""
    for problem, ids in read_problems(path):
        if ids and list(ids) != replace_start_ids(ids, start):
            yield f"{name}: problem {problem.id} does not begin with just the start tokens {start}"


def compare_weights(where: str, model: Mapping[str, Any], weights: str | None) -> Iterator[str]:
    """Yield a fault if a described model does not have the recorded hash of weights."""
    if "files" not in model:
        return
    described = combine_hashes(
        {
            name: file_hash
            for name, file_hash in model["files"].items()
            if any(Path(name).match(pattern) for pattern in WEIGHTS)
        }
    )
    if weights is not None and described != weights:
        yield f"{where}: has a model with the weights {described}, but reports {weights}"
