"""The run of README's commands, which several test modules use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.readme import run_blocks
from tests.kit.command import succeed


@pytest.fixture(scope="session")
def readme_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with README.md's files, in which its commands were run."""
    folder = tmp_path_factory.mktemp("readme")
    succeed("run", "demo", cwd=folder)  # like README's ``make demo`` after installation
    run_blocks(Path(__file__).parents[2] / "README.md", folder)
    return folder


@pytest.fixture(scope="session")
def demo_run(readme_run: Path) -> Path:
    """The run directory of README's ``gapft run demo``."""
    return readme_run / "runs" / "demo"
