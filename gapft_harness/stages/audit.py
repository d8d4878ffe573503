"""Audit one arm: the function of the jobs that executors run for each arm.

``audit_arm`` decodes the audit split with an arm's adapter, greedily or sampled
(``search.deployment``), and writes ``decisions/ARM.parquet`` (Section 3.4).
Steps of experiments decode other problems, draw samples, or use a scaled adapter.
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
from gapft_harness.run_directory.tables import read_problems
from gapft_harness.stages.generation.generation import (
    build_deployment_phase,
    build_sample_phases,
    build_sampled_decoding,
    generate_and_judge,
    read_decoding,
)
from gapft_harness.stages.generation.sealing import report_existing_table
from gapft_harness.stages.integrity.inputs import (
    hash_components,
    list_search_components,
    require_same_inputs,
)


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
    """Decode and verify a sealed split's problems with one arm's adapter, as a job.

    An existing table is used as it is.

    Args:
        run_path: the run directory.
        condition: the arm's condition; ``SOURCE`` for the model before training.
        seed: the arm's training seed.
        plugin_files: files given by ``--plugin``.
        progress: called with (0, 0) before the model is loaded, then with the numbers of finished
            and of all responses.
        split: the split to decode.
        file: the table to write, relative to the run directory; empty for the arm's decisions.
        ids: the problems to decode; None for all problems of the split.
        samples: number of samples of each problem instead of its deployment decode, drawn as in the
            search.
        scale: factor of the adapter's update; 1 for the adapter as trained.

    Returns:
        The facts of ``sealing.write_responses``, which the table contains too (``read_facts``).

    Raises:
        UserError: a plugin was changed since the search.
    """
    run, arm = RunDirectory.open(run_path), Arm(condition, seed)
    path = run.path / (file or layout.decisions_path(arm))
    copy = run.path / layout.SCALED / f".{arm.name}-{scale:g}"
    if path.exists():
        shutil.rmtree(copy, ignore_errors=True)  # from a command killed after it wrote the table
        return report_existing_table(path, progress)
    problems = [
        problem
        for problem, _ in read_problems(run.sealed(layout.problems_path(split)))
        if ids is None or problem.id in ids
    ]
    with open_adapter(run, arm, scale, copy) as adapter:
        return decode_arm(
            run, arm, problems, path, plugin_files, progress, adapter, split=split, samples=samples
        )


@contextlib.contextmanager
def open_adapter(run: RunDirectory, arm: Arm, scale: float, copy: Path) -> Iterator[Adapter | None]:
    """Yield an arm's sealed adapter, or None for ``SOURCE``.

    Args:
        run: the run directory.
        arm: the arm.
        scale: factor of the adapter's update.
        copy: the folder for a scaled adapter, if the scale is not 1; it is removed afterwards.
    """
    if arm.condition == SOURCE:
        yield None
        return
    trained = run.sealed(layout.adapter_path(arm))
    if scale == 1:
        yield Adapter(arm, str(trained))
        return
    from gapft_harness.training.adapter import scale_adapter

    shutil.rmtree(copy, ignore_errors=True)  # from a killed command
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
    """Decode each problem with an arm's adapter, verify the responses, and seal the table.

    Args:
        run: the run directory.
        arm: the arm.
        problems: the problems to decode.
        path: the table to write.
        plugin_files: files given by ``--plugin``.
        progress: called with (0, 0) before the model is loaded, then as by ``generate``.
        adapter: the adapter; default: the arm's sealed adapter, or none for ``SOURCE``.
        split: the split of the problems.
        samples: number of samples of each problem instead of its deployment decode, drawn as in the
            search. Arms of the same training seed use the same random streams.

    Returns:
        The facts of ``sealing.write_responses``.
    """
    progress(0, 0)
    plugins = load_plugins(plugin_files)
    task = run.manifest()["task"]
    require_same_inputs(
        run, {"plugins": hash_components(plugins, list_search_components(run.recipe, task))}
    )
    greedy = read_decoding(task)
    search = run.recipe.search
    streams = SampleStreams(
        search.seed, "decode", split, None if arm.condition == SOURCE else arm.seed
    )
    if adapter is None and arm.condition != SOURCE:
        adapter = Adapter(arm, str(run.sealed(layout.adapter_path(arm))))
    return generate_and_judge(
        run,
        task,
        problems,
        build_sample_phases(build_sampled_decoding(greedy, search), samples)
        if samples
        else [build_deployment_phase(greedy, search)],
        path,
        plugins,
        plugins.create_verifier(task["verifier"], task["verifier_params"]),
        name=path.stem,
        streams=streams,
        progress=progress,
        extra=lambda source: {"source": source, "adapter": source.get("adapter")},
        adapter=adapter,
    )
