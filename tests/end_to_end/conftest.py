"""Runs that several test modules look at: README's commands, and one to be killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import succeed
from tests.end_to_end.letters_run import Letters
from tests.end_to_end.readme import run_blocks


@pytest.fixture(scope="session")
def readme_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every file and command block of README.md was written and run."""
    folder = tmp_path_factory.mktemp("readme")
    succeed("demo", cwd=folder)  # as README's ``make demo`` does once it has installed
    run_blocks(Path(__file__).parents[2] / "README.md", folder)
    return folder


@pytest.fixture(scope="session")
def demo_run(readme_run: Path) -> Path:
    """The run directory of README's ``gapft demo``."""
    return readme_run / "runs" / "demo"


@pytest.fixture(scope="session")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Letters:
    """A small run, made once without interruption, and all that is needed to make it again."""
    return Letters.prepare(tmp_path_factory.mktemp("letters"))
