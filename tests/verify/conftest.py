"""A finished run to verify, created once, and a copy of it to change."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kit.command import succeed
from tests.kit.letters import prepare_letters_run
from tests.kit.tampering import SELECTOR


@pytest.fixture(scope="session")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a plugin and a finished run of four conditions, with replay and budget."""
    folder = tmp_path_factory.mktemp("verify")
    command = prepare_letters_run(folder)
    with (folder / "plugin.py").open("a") as plugin:
        plugin.write(SELECTOR)
    settings = (
        "budget.replay=2",
        "budget.n=4",
        "training.schedule=cosine",
        "training.repetitions=8",
        "statistics.replicates=20",
        "conditions=[gapft,uniform,all_verified,drawn]",
    )
    overrides = [part for setting in settings for part in ("--set", setting)]
    succeed(*command, "run", "--seed", 13, *overrides, cwd=folder)
    return folder


@pytest.fixture
def run(workspace: Path, tmp_path: Path) -> Path:
    """A copy of the run to change."""
    return Path(shutil.copytree(workspace / "run", tmp_path / "run"))
