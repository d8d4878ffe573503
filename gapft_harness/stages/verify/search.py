"""What ``gapft verify`` checks of a split: its tables, its task, its states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from gapft_harness.hooks.manager import Plugins
from gapft_harness.lm_eval_bridge.samplers.retokenizer import started
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import Manifest, task_of
from gapft_harness.run_directory.parquet import read_facts, read_ids
from gapft_harness.run_directory.tables import read_judged, read_problems, read_states
from gapft_harness.stages.generation.early_stop import stops
from gapft_harness.stages.integrity.differences import unequal, unequal_ids
from gapft_harness.stages.search.states import Window, state_row


def check_tables(run: RunDirectory, manifest: Manifest, split: str) -> Iterable[str]:
    """A split's tables hold the same problems, each once, of the task and model of the manifest."""
    problems, responses, states = (
        table(split) for table in (layout.problems, layout.responses, layout.states)
    )
    ids = list(read_ids(run.path / problems))
    if any(a >= b for a, b in pairwise(ids)):
        yield f"{problems}: does not hold each problem once, ordered by id"
    for table in (responses, states):
        if table == responses or (run.path / table).exists():
            yield from unequal_ids(table, read_ids(run.path / table), problems, ids)
    facts = read_facts(run.path / responses)
    task = task_of(manifest, split)
    where = f"manifest.json, task{_of(split)}: {responses} was made with another"
    # what was dropped, and warned of, is said of all splits together
    free = {"dropped", "warnings"}
    if run.recipe.evidence.keep is not None:
        free.add("keep")  # may have changed after the search; ``check_task`` compares it
    for key, value in facts["task"].items():
        if key not in free and task.get(key) != value:
            yield f"{where} {key}: {value!r}, not {task.get(key)!r}"
    if name := layout.further(split):
        said = {"said": manifest["audits"][name]["said"]}
        yield from unequal(responses, facts, said, "manifest.json, audits has")
    # who imported responses knows no weights
    for key in ("start_ids",) if "imported" in facts else ("weights_sha256", "start_ids"):
        before, now = facts["source"].get(key), manifest["source"].get(key)
        if before != now:
            yield (
                f"manifest.json, source: {key} is {now}, {responses} was generated with {before}"
            )
    if start := facts["source"].get("start_ids"):
        yield from _other_starts(run.path / problems, problems, start)


def _other_starts(path: Path, name: str, start: Sequence[int]) -> Iterable[str]:
    """The prompts that begin with other start tokens; one that did not fit has no ids."""
    for problem, ids in read_problems(path):
        if ids and list(ids) != started(ids, start):
            yield f"{name}: problem {problem.id} does not begin with the start tokens {start} alone"


def check_task(run: RunDirectory, manifest: Manifest, split: str) -> Iterable[str]:
    """What the recipe says of the verifier and the response rule is what the manifest records.

    Args:
        split: whose task; a further audit has its own.
    """
    name = layout.further(split)
    task, recipe = task_of(manifest, split), run.recipe.on(name)
    where = f"manifest.json, task{_of(split)}"
    if name:
        yield from unequal(where, task, {"name": recipe.data.task}, "the recipe has")
        said, choice = manifest["audits"][name], run.recipe.audits[name]
        yield from unequal(
            f"manifest.json, {split}", said, {"said": choice.said()}, "the recipe has"
        )
    asked: dict[str, Any] = {}
    if recipe.verifier.name is not None:
        asked["verifier"] = recipe.verifier.name
    if recipe.evidence.keep is not None:
        asked["keep"] = recipe.evidence.keep
    yield from unequal(where, task, asked, "the recipe has")
    yield from unequal(
        f"{where}, verifier_params",
        task["verifier_params"],
        dict(recipe.verifier.params),
        "the recipe has",
    )


def _of(split: str) -> str:
    return f" of {split}" if layout.further(split) else ""


def check_states(
    run: RunDirectory, manifest: Manifest, plugins: Plugins, table: str
) -> Iterable[str]:
    """A table's states and kept responses follow from its split's verdicts, by the frozen rule."""
    place = layout.read(table)
    assert place is not None
    split, window = place.split, Window(*place.window) if place.window else None
    keep = cast(str, manifest["task"].get("keep"))
    rule, search = plugins.get("response rule", keep), run.recipe.search
    stop = stops(search, split)
    judged = read_judged(run.path / layout.responses(split))
    for (problem_id, of_problem), stated in zip(judged, read_states(run.path / table), strict=True):
        for key, value in asdict(
            state_row(problem_id, of_problem, search.k, stop, rule, window)
        ).items():
            if (told := getattr(stated, key)) != value:
                yield (
                    f"{table}: problem {problem_id} has {key} {told!r}, its verdicts give {value!r}"
                )
