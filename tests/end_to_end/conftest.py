"""The run of README's commands and of the plugin page's selector, shared by test modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.readme import run_blocks, run_section
from tests.kit.command import succeed
from tests.kit.runs import make_once

ROOT = Path(__file__).parents[2]


def follow_readme(folder: Path) -> None:
    """Run README.md's commands in a folder, then those of docs/plugins.md on a selector."""
    succeed("run", "demo", cwd=folder)  # like README's ``make demo`` after installation
    run_blocks(ROOT / "README.md", folder)
    run_section(ROOT / "docs" / "plugins.md", "## A selector in one file", folder)


@pytest.fixture(scope="session")
def readme_run(shared_root: Path) -> Path:
    """A folder with README.md's files, in which its commands were run; tests do not change it."""
    return make_once(shared_root / "readme", follow_readme)


@pytest.fixture(scope="session")
def demo_run(readme_run: Path) -> Path:
    """The run directory of README's ``gapft run demo``."""
    return readme_run / "runs" / "demo"
