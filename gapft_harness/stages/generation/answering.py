"""Problems answered by a model, judged, and written as one table: what search and audit share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gapft_harness.core.records import Adapter, Problem
from gapft_harness.hooks.manager import Plugins
from gapft_harness.hooks.protocols import ReportProgress, Verifier
from gapft_harness.recipe.recipe import sampler_settings
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.journal import Journal
from gapft_harness.run_directory.recording import require_same_model, require_same_rules
from gapft_harness.stages.generation.episodes import episodes_of
from gapft_harness.stages.generation.generation import Phase, generate
from gapft_harness.stages.generation.sealing import (
    closing_verifier,
    description_of,
    write_responses,
)


def answer(
    run: RunDirectory,
    task: Mapping[str, Any],
    problems: Sequence[Problem],
    phases: Sequence[Phase],
    path: Path,
    plugins: Plugins,
    verifier: Verifier,
    *,
    name: str,
    purpose: str,
    progress: ReportProgress,
    extra: Callable[[Mapping[str, Any]], dict[str, Any]],
    adapter: Adapter | None = None,
    generated: Callable[[Journal], object] = lambda journal: None,
) -> dict[str, Any]:
    """Generates what the table's journal lacks, and writes the table.

    Args:
        task: its facts, as the manifest has them.
        path: the table to write; its journal stands beside it until then.
        verifier: judges the responses, and is closed.
        purpose: names the random streams.
        extra: gives further facts, from what the sampler says of itself.
        generated: called with the journal before responses are judged.

    Returns:
        The facts of ``sealing.write_responses``.

    Raises:
        UserError: another model or edition of rules than that of the run's other tables.
    """
    settings = run.recipe.search
    journal = Journal(path.with_suffix(".jsonl"))
    with contextlib.closing(journal), closing_verifier(verifier):
        if not plugins.rejudges(task["verifier"]):
            said = description_of(verifier)
            require_same_rules(run.manifest(), name, task["verifier"], said)
        episodes = episodes_of(verifier, task["episode"]["attempts"], task["verifier"])
        sampler = plugins.sampler(sampler_settings(run.recipe), adapter)
        with contextlib.closing(sampler):
            source = sampler.describe()
            require_same_model(run.manifest(), name, source)
            generate(
                problems,
                phases,
                sampler,
                journal,
                purpose=purpose,
                source=source,
                seed=settings.seed,
                chunk=settings.chunk,
                progress=progress,
                episodes=episodes,
                verifier=verifier,
            )
        generated(journal)
        facts = write_responses(
            path,
            journal,
            problems,
            verifier,
            extra=extra(source),
            episodes=episodes,
            executions=task["episode"]["executions"],
            progress=progress,
        )
    journal.path.unlink()
    return facts
