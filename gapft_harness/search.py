"""Search: one greedy decode and K samples for every problem of a split, verified.

Reads the task; writes ``SPLIT/problems.parquet`` and ``SPLIT/responses.parquet`` (Section 3.1:
d_src(x) and Y_K(x), every generation from the same prompt, without feedback).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gapft_harness.early_stop import check_early_stop, stops
from gapft_harness.episodes import episodes_of
from gapft_harness.errors import UserError
from gapft_harness.files import replace_file
from gapft_harness.generation import (
    ReportProgress,
    decoding_from,
    generate,
    greedy_phase,
    sample_phases,
)
from gapft_harness.journal import Journal
from gapft_harness.models import sampler_settings
from gapft_harness.plugin_manager import Plugins, load_plugins
from gapft_harness.protocols import Verifier
from gapft_harness.recipe import Recipe
from gapft_harness.records import Problem
from gapft_harness.run_directory import RunDirectory, Split
from gapft_harness.sealing import closing_verifier, read_facts, write_responses
from gapft_harness.streams import derive


def search(
    run_path: str,
    split: Split,
    plugin_files: Sequence[str] = (),
    include_paths: Sequence[str] = (),
    progress: ReportProgress = lambda done, total: None,
) -> dict[str, Any]:
    """Searches one split with the source model.

    Args:
        run_path: the run directory.
        split: ``pool`` or ``audit``.
        plugin_files: files given by ``--plugin``.
        include_paths: folders with task YAML given by ``--include-path``.
        progress: called with responses done and wanted.

    Returns:
        Facts for the manifest: ``task``, ``source``, and those of ``sealing.write_responses``.

    Raises:
        UserError: unknown task, malformed data, no such model, ...
    """
    run = RunDirectory.open(run_path)
    responses = run.path / split / "responses.parquet"
    if responses.exists():
        (run.path / split / "responses.jsonl").unlink(missing_ok=True)
        return read_facts(responses)
    plugins = load_plugins(plugin_files)
    problems, task, verifier = load_problems(run.recipe, split, plugins, include_paths)
    settings = run.recipe.search
    check_early_stop(settings, plugins.get("response rule", task["keep"]), task)
    decoding = decoding_from(task)
    phases = [
        greedy_phase(decoding),
        *sample_phases(decoding, settings, stops(settings, split)),
    ]
    journal = Journal(run.path / split / "responses.jsonl")
    with contextlib.closing(journal), closing_verifier(verifier):
        episodes = episodes_of(verifier, task["episode"]["attempts"], task["verifier"])
        sampler = plugins.sampler(sampler_settings(run.recipe), None)
        with contextlib.closing(sampler), plugins.blaming("sampler", run.recipe.model.backend):
            source = sampler.describe()
            generate(
                problems,
                phases,
                sampler,
                journal,
                purpose=f"search/{split}",
                source=source,
                seed=settings.seed,
                chunk=settings.chunk,
                progress=progress,
                episodes=episodes,
                verifier=verifier,
            )
        write_problems(run.path / split / "problems.parquet", problems, journal)
        facts = write_responses(
            responses,
            journal,
            problems,
            verifier,
            extra={"task": task, "source": source},
            episodes=episodes,
            executions=task["episode"]["executions"],
        )
    journal.path.unlink()
    return facts


def load_problems(
    recipe: Recipe, split: Split, plugins: Plugins, include_paths: Sequence[str]
) -> tuple[list[Problem], dict[str, Any], Verifier]:
    """Loads a split's problems, with the recipe's overrides of the task applied.

    Returns:
        The problems; the task's facts for the manifest; the verifier, which has accepted every
        gold answer. Close it.

    Raises:
        UserError: an unknown task or verifier, or data that are missing or malformed.
    """
    from gapft_harness.identities import is_repeat
    from gapft_harness.lm_eval_bridge.tasks import load_task

    task = load_task(recipe.data.task, [Path(path) for path in include_paths])
    problems = task.pool() if split == "pool" else task.audit()
    limit = recipe.data.pool_limit if split == "pool" else recipe.data.audit_limit
    dropped = list(task.dropped)
    if recipe.data.deduplicate:
        kept = [problem for problem in problems if not is_repeat(problem.id)]
        if len(kept) < len(problems):
            dropped.append(
                f"{split}: {len(problems) - len(kept)} repeated problems dropped (deduplicate)"
            )
        problems = kept
    if limit is not None and limit < len(problems):
        problems = sorted(problems, key=lambda p: derive("limit", p.id))[:limit]
    if not problems:
        raise UserError(f"task {recipe.data.task}: its {split} split has no problems")
    decoding = task.decoding()
    override = recipe.verifier
    renamed = override.name is not None and override.name != task.verifier
    name = override.name or task.verifier
    params = {**({} if renamed else task.verifier_params), **override.params}
    verifier = plugins.verifier(name, params)
    task.check_golds(verifier, split)
    facts = {
        "name": task.name,
        "version": task.version,
        "fingerprint": task.fingerprint,
        "dropped": dropped,
        "verifier": name,
        "verifier_params": params,
        "keep": recipe.evidence.keep or task.keep,
        "decoding": {
            "max_gen_toks": recipe.search.max_gen_toks or decoding.max_gen_toks,
            "until": list(decoding.until),
        },
        "episode": {
            "attempts": recipe.episode.attempts or task.episode.attempts,
            "executions": recipe.episode.executions or task.episode.executions,
        },
    }
    return problems, facts, verifier


def write_problems(path: Path, problems: Sequence[Problem], journal: Journal) -> None:
    """Writes problems.parquet (``schemas.PROBLEMS``) with the prompt ids that were generated on."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gapft_harness.schemas import PROBLEMS

    ordered = sorted(problems, key=lambda problem: problem.id)

    def write(beside: Path) -> None:
        with pq.ParquetWriter(beside, PROBLEMS, compression="zstd") as writer:
            for start in range(0, len(ordered), 1000):
                members = ordered[start : start + 1000]
                entries = journal.read([problem.id for problem in members])
                writer.write_table(
                    pa.table(
                        {
                            "problem_id": [p.id for p in members],
                            "prompt": [p.prompt for p in members],
                            "gold": [json.dumps(p.gold) for p in members],
                            "document": [json.dumps(dict(p.document)) for p in members],
                            "prompt_ids": [list(entry.prompt_ids) for entry in entries],
                        },
                        schema=PROBLEMS,
                    )
                )

    replace_file(path, write)
