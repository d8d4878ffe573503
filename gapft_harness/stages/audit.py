"""Auditing one arm: the stage function that executors run per arm.

``audit_arm`` decodes the audit split greedily with an arm's adapter and writes
``decisions/ARM.parquet`` (Section 3.4); of a further audit, ``decisions/ARM@NAME.parquet``. Steps
of experiments decode other problems, samples, or with a scaled adapter.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Iterator, Sequence
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
    split: str = "audit",
    file: str = "",
    ids: Collection[str] | None = None,
    samples: int = 0,
    scale: float = 1.0,
) -> dict[str, Any]:
    """Decode a sealed split's problems with one arm's adapter, and verify: a job's function.

    What is there already is taken up.

    Args:
        run_path: the run directory.
        condition: the arm's; ``SOURCE`` for the model before training.
        seed: the arm's training seed.
        plugin_files: files given by ``--plugin``.
        progress: called with (0, 0) before the model is loaded, then with responses done and all.
        split: whose problems are decoded; a further audit is ``audit/NAME``.
        file: the table to write, relative to the run directory; empty: the arm's decisions.
        ids: of the problems those to decode; None: all of the split.
        samples: in place of one greedy decode so many samples of each problem, drawn as the search
            draws its own.
        scale: of the adapter's update; 1: as it was trained.

    Returns:
        The facts of ``sealing.write_responses``, which the table keeps (``read_facts``).

    Raises:
        UserError: a plugin was changed since the search.
    """
    run, arm = RunDirectory.open(run_path), Arm(condition, seed)
    path = run.path / (file or layout.decisions_on(arm, layout.further(split)))
    if path.exists():
        return take_up(path, progress)
    problems = [
        problem
        for problem, _ in read_problems(run.sealed(layout.problems(split)))
        if ids is None or problem.id in ids
    ]
    copy = run.path / layout.SCALED / f".{arm.name}-{scale:g}"
    with open_adapter(run, arm, scale, copy) as adapter:
        return decode_arm(
            run, arm, problems, path, plugin_files, progress, adapter, split=split, samples=samples
        )


@contextlib.contextmanager
def open_adapter(run: RunDirectory, arm: Arm, scale: float, copy: Path) -> Iterator[Adapter | None]:
    """Give an arm's sealed adapter, of ``SOURCE`` none.

    Args:
        run: the run directory.
        arm: whose adapter.
        scale: of its update.
        copy: the folder for the scaled one, if the scale is not 1; it is removed afterwards.
    """
    if arm.condition == SOURCE:
        yield None
        return
    trained = run.sealed(layout.adapter(arm))
    if scale == 1:
        yield Adapter(arm, str(trained))
        return
    from gapft_harness.training.adapter import scale_adapter

    shutil.rmtree(copy, ignore_errors=True)  # of a command that was killed
    scale_adapter(trained, copy, scale, {"scale": scale})
    try:
        yield Adapter(arm, str(copy))
    finally:
        shutil.rmtree(copy, ignore_errors=True)


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
