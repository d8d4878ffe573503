"""Auditing one arm: the stage function that executors run per arm.

``audit_arm`` decodes the audit split greedily with an arm's adapter and writes
``decisions/ARM.parquet`` (Section 3.4); of a further audit, ``decisions/ARM@NAME.parquet``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gapft_harness.core.records import SOURCE, Adapter, Arm, Problem
from gapft_harness.core.streams import SampleStreams
from gapft_harness.hooks.manager import load_plugins
from gapft_harness.hooks.protocols import ReportProgress, report_nothing
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.run_directory.manifest import task_of
from gapft_harness.run_directory.tables import read_problems
from gapft_harness.stages.generation.generation import (
    answer,
    decoding_from,
    greedy_phase,
    sample_phases,
    sampled_decoding,
)
from gapft_harness.stages.generation.sealing import take_up
from gapft_harness.stages.integrity.rests_on import codes, named, require_same


def audit_arm(
    run_path: str,
    condition: str,
    seed: int,
    plugin_files: Sequence[str] = (),
    progress: ReportProgress = report_nothing,
    audit: str = "",
    file: str = "",
    samples: int = 0,
) -> dict[str, Any]:
    """Decode the audit problems with one arm's adapter, and verify the answers: a job's function.

    Args:
        run_path: the run directory.
        condition: the arm's; ``SOURCE`` for the model before training.
        seed: the arm's training seed.
        plugin_files: files given by ``--plugin``.
        progress: as ``decode_split`` takes it.
        audit: a further audit's name; empty: the run's own.
        file: the table to write, relative to the run directory; empty: the arm's decisions.
        samples: in place of one greedy decode so many samples of each problem.

    Returns:
        Facts for the manifest, those of ``sealing.write_responses``.
    """
    run, arm = RunDirectory.open(run_path), Arm(condition, seed)
    table = file or layout.decisions(replace(arm, variant=audit))
    split = layout.audit(audit)
    return decode_split(run, arm, split, table, plugin_files, progress, samples=samples)


def decode_split(
    run: RunDirectory,
    arm: Arm,
    split: str,
    file: str,
    plugin_files: Sequence[str],
    progress: ReportProgress,
    *,
    only: Callable[[], Collection[str]] | None = None,
    adapter: Callable[[], AbstractContextManager[Adapter]] | None = None,
    samples: int = 0,
) -> dict[str, Any]:
    """Decode a sealed split's problems with an arm's adapter; take up what is there already.

    Args:
        run: the run directory.
        arm: whose adapter it is.
        split: whose problems are decoded, such as ``audit``.
        file: the table to write, relative to the run directory.
        plugin_files: files given by ``--plugin``.
        progress: called with (0, 0) before the model is loaded, then with responses done and all.
        only: gives the ids of the problems to decode; default: all of the split.
        adapter: gives what to decode with; default: the arm's sealed one, and of ``SOURCE`` none.
        samples: in place of one greedy decode so many samples of each problem, drawn as the search
            draws its own.

    Returns:
        The facts of ``sealing.write_responses``, which the table keeps (``read_facts``).

    Raises:
        UserError: a plugin was changed since the search.
    """
    path = run.path / file
    if path.exists():
        return take_up(path, progress)
    wanted = None if only is None else set(only())
    problems = [
        problem
        for problem, _ in read_problems(run.sealed(layout.problems(split)))
        if wanted is None or problem.id in wanted
    ]
    with contextlib.nullcontext() if adapter is None else adapter() as made:
        return decode_arm(
            run, arm, problems, path, plugin_files, progress, made, split=split, samples=samples
        )


def decode_arm(
    run: RunDirectory,
    arm: Arm,
    problems: Sequence[Problem],
    path: Path,
    plugin_files: Sequence[str],
    progress: ReportProgress,
    adapter: Adapter | None = None,
    *,
    split: str = "audit",
    samples: int = 0,
) -> dict[str, Any]:
    """One deployment decode of each problem with an arm's adapter, verified and sealed.

    Args:
        path: the table to write.
        progress: called with (0, 0) before the model is loaded, then as ``generate`` does.
        adapter: what to decode with; default: the arm's sealed one, and of ``SOURCE`` none.
        split: whose problems they are: a further audit has its own task.
        samples: in place of that decode so many samples, drawn as the search draws its own. Arms
            of one training seed have the same random streams.

    Returns:
        The facts of ``sealing.write_responses``.
    """
    progress(0, 0)
    plugins = load_plugins(plugin_files)
    task = task_of(run.manifest(), split)
    require_same(run, {"plugins": codes(plugins, named(run.recipe, task))})
    greedy = decoding_from(task)
    search = run.recipe.search
    streams = SampleStreams(
        search.seed, "decode", split, None if arm.condition == SOURCE else arm.seed
    )
    if adapter is None and arm.condition != SOURCE:
        adapter = Adapter(arm, str(run.sealed(layout.adapter(arm))))
    return answer(
        run,
        task,
        problems,
        sample_phases(sampled_decoding(greedy, search), samples)
        if samples
        else [greedy_phase(greedy)],
        path,
        plugins,
        plugins.verifier(task["verifier"], task["verifier_params"]),
        name=path.stem,
        streams=streams,
        progress=progress,
        extra=lambda source: {"source": source, "adapter": source.get("adapter")},
        adapter=adapter,
    )
