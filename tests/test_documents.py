"""Generated pages are current, and links between pages are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gapft_harness.cli.reference import PAGES as GENERATED

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(DOCS.glob("*.md")),
    *sorted((ROOT / "gapft_harness").glob("demo/*/README.md")),
]


@pytest.mark.parametrize("page", GENERATED)
def test_generated_page_is_current(page: str) -> None:
    """``python -m gapft_harness.cli.reference`` writes the pages."""
    fresh = (DOCS / page).read_text() == GENERATED[page]()
    assert fresh, f"docs/{page}: run python -m gapft_harness.cli.reference"


def test_document_links_exist() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []
