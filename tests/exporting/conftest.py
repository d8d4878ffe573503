"""A sealed run with planted outcomes and a report."""

from __future__ import annotations

import contextlib

import pytest

from gapft_harness.core.records import Arm
from gapft_harness.executors.local import LocalExecutor
from gapft_harness.run_directory import layout
from gapft_harness.run_directory.directory import RunDirectory
from gapft_harness.stages.context import Context
from gapft_harness.stages.report import run_report_stage
from tests.study.sealed import build_cell, write_run_directory


@pytest.fixture(scope="session")
def planted_run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A run with audited arms; two have adapter files with dummy content."""
    run = RunDirectory.open(
        write_run_directory(tmp_path_factory.mktemp("planted") / "run", build_cell())
    )
    for seed in (13, 21):
        folder = run.path / layout.adapter_path(Arm("gapft", seed))
        folder.mkdir(parents=True)
        for name in ("README.md", "adapter_config.json", "adapter_model.safetensors"):
            (folder / name).write_text(f"{name} of {seed}")
        run.seal(layout.adapter_path(Arm("gapft", seed)))
    with contextlib.closing(LocalExecutor(run.recipe.executor.build_settings())) as executor:
        run_report_stage(Context(run, executor))
    return run
