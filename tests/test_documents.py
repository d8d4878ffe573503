"""The pages of recipe keys and of commands are current, and links between pages are valid."""

from __future__ import annotations

import re
from pathlib import Path

from gapft_harness.cli import reference
from gapft_harness.cli.main import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((ROOT / "gapft_harness").glob("demo/*/README.md")),
]


def test_generated_page_is_current() -> None:
    """``python -m gapft_harness.cli.reference`` writes the page."""
    assert reference.PAGE.read_text("utf-8") == reference.build_page()


def test_page_of_commands_has_every_command() -> None:
    headings = re.findall(r"^## gapft (\w+)$", (DOCS / "command-line.md").read_text(), re.M)
    assert headings == [command.name for command in app.registered_commands]


def test_document_links_exist() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []
