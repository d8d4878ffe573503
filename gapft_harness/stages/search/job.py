"""Search: one greedy decode and K samples for every problem of a split, verified.

The calibration split gets the greedy decode alone. Reads the task; writes
``SPLIT/problems.parquet`` and ``SPLIT/responses.parquet`` (Section 3.1: d_src(x) and Y_K(x), every
generation from the same prompt, without feedback).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.errors import UserError
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import ReportProgress
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import CALIBRATION, RunDirectory, Split
from gapft_harness.run_directory.parquet import read_facts
from gapft_harness.run_directory.shards import Shard, part_of, take_part
from gapft_harness.run_directory.tables import write_problems
from gapft_harness.stages.generation.generation import (
    answer,
    check_early_stop,
    decoding_from,
    greedy_phase,
    sample_phases,
    stops,
)
from gapft_harness.stages.integrity.rests_on import require_same
from gapft_harness.stages.search.data import load_problems


def search(
    run_path: str,
    split: Split,
    plugin_files: Sequence[str] = (),
    include_paths: Sequence[str] = (),
    progress: ReportProgress = lambda done, total: None,
    shard: str | None = None,
    recipe: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Searches one split with the source model, or one shard of a split.

    Args:
        split: one of ``splits_of``; ``calibration`` gets the greedy decode alone.
        progress: called with (0, 0) before data and model are loaded, then as ``generate`` does.
        shard: ``I/N`` searches the problems of that shard alone, into a folder of its own.

    Returns:
        Facts for the manifest: ``task``, ``source``, of a further audit ``said`` (what the recipe
        says of it), those of ``sealing.write_responses``, and of a shard those of
        ``shards.take_part``.

    Raises:
        UserError: unknown task, malformed data, no such model, another model than that of the
            splits that are searched already, ...
    """
    run = RunDirectory.open(run_path, recipe)
    one = Shard.parse(shard) if shard else None
    part = part_of(split, one)
    if (found := finished(run.path, part)) is not None:
        return found
    progress(0, 0)
    plugins = load_plugins(plugin_files)
    problems, task, verifier, rests = load_problems(run.recipe, split, plugins, include_paths)
    require_same(run, rests)
    problems, division = take_part(problems, one, run.recipe.identity(plugins))
    settings = run.recipe.search
    if not layout.further(split):
        check_early_stop(settings, plugins.get("response rule", task["keep"]), task)
    choice = run.recipe.audits.get(layout.further(split))
    said = {} if choice is None else {"said": choice.said()}
    phases = [greedy_phase(decoding_from(task))]
    if split != CALIBRATION:
        phases += sample_phases(decoding_from(task), settings, stops(settings, split))
    return answer(
        run,
        task,
        problems,
        phases,
        run.path / layout.responses(part),
        plugins,
        verifier,
        name=split,
        purpose=f"search/{split}",
        progress=progress,
        extra=lambda source: {"task": task, "source": source, **said, **division},
        generated=lambda journal: write_problems(
            run.path / layout.problems(part), problems, journal.prompt_ids
        ),
    )


def finished(run_path: Path, part: str) -> dict[str, Any] | None:
    """The facts of a part (``shards.part_of``) whose search has ended; None before that.

    What a kill left of its journal is taken away: the tables hold all of it; and what one left of
    an import, which begins anew.

    Raises:
        UserError: the table was damaged.
    """
    responses = run_path / layout.responses(part)
    responses.with_name(layout.IMPORTED).unlink(missing_ok=True)
    if not responses.exists():
        return None
    try:
        facts = read_facts(responses)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{responses}: is damaged ({type(error).__name__}: {' '.join(str(error).split())}); "
            "restore it, or start a new run directory"
        ) from error
    (run_path / layout.journal(layout.responses(part))).unlink(missing_ok=True)
    return facts
