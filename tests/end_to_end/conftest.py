"""The run of README's commands and of the plugin page's selector, shared by test modules."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.end_to_end.readme import run_blocks, run_section
from tests.kit.command import succeed
from tests.kit.runs import copy_snapshot, make_base_run, make_once

ROOT = Path(__file__).parents[2]


def follow_readme(folder: Path, base_root: Path) -> None:
    """Run README.md's commands in a folder, then those of docs/plugins.md on a selector.

    The demo finds what the base run of its recipe has made: its search and two of twelve adapters.
    """
    base = copy_snapshot(make_base_run(base_root, "demo"), "reported", folder / "base")
    (folder / "runs").mkdir()
    base.path.with_name(".store").rename(folder / "runs" / ".store")
    succeed("run", "demo", cwd=folder)  # like README's ``make demo`` after installation
    run_blocks(ROOT / "README.md", folder)
    run_section(ROOT / "docs" / "plugins.md", "## A selector in one file", folder)


@pytest.fixture(scope="session")
def readme_run(base_root: Path) -> Path:
    """A folder with README.md's files, in which its commands were run; tests do not change it."""
    return make_once(base_root / "readme", partial(follow_readme, base_root=base_root))


@pytest.fixture(scope="session")
def demo_run(readme_run: Path) -> Path:
    """The run directory of README's ``gapft run demo``."""
    return readme_run / "runs" / "demo"
