"""Builds the site of the documents into build/site: ``make docs``.

README, CHANGELOG and CONTRIBUTING stand at the root and all other pages in docs/, where the links
between them work in the repository. Here they are laid side by side, with their links rewritten.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS, PAGES, SITE = ROOT / "docs", ROOT / "build" / "pages", ROOT / "build" / "site"
#: Pages of the root, by their names in the site.
AT_ROOT = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
#: A code block with a title, which the repository's pages write without quotes.
TITLED = re.compile(r"^(```\w+ title=)(\S+)$", re.M)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def pages() -> dict[str, Path]:
    """Every page of the site by its name in it."""
    return {new: ROOT / old for old, new in AT_ROOT.items()} | {
        path.name: path for path in sorted(DOCS.glob("*.md"))
    }


def listed(entries: Any) -> list[str]:
    """The pages that a navigation leads to, in order."""
    if isinstance(entries, str):
        return [entries]
    if isinstance(entries, dict):
        entries = list(entries.values())
    return [page for entry in entries for page in listed(entry)]


def navigation() -> list[str]:
    """The pages in the navigation of zensical.toml."""
    settings = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))
    return listed(settings["project"]["nav"])


def rewritten(text: str, folder: Path) -> str:
    """A page of a folder as in the site: its links, without those to files outside, and titles."""

    def link(match: re.Match[str]) -> str:
        picture, words, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or "://" in path:
            return match[0]
        file = (folder / path).resolve()
        if file.parent == ROOT and file.name in AT_ROOT:
            return f"{picture}[{words}]({AT_ROOT[file.name]}{hash_}{anchor})"
        if file.is_relative_to(DOCS):
            return f"{picture}[{words}]({file.relative_to(DOCS).as_posix()}{hash_}{anchor})"
        return words

    return TITLED.sub(r'\1"\2"', LINK.sub(link, text))


def lay_out() -> None:
    """Writes the pages, pictures and the notebook into build/pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(DOCS, PAGES, ignore=shutil.ignore_patterns("*.md", "site"))
    for name, page in pages().items():
        (PAGES / name).write_text(rewritten(page.read_text("utf-8"), page.parent), "utf-8")
    shutil.copy(DOCS / "site" / "site.css", PAGES)


def main() -> int:
    """Checks the navigation, lays the pages out and has Zensical build them strictly."""
    known, shown = set(pages()), navigation()
    wrong = sorted(known.symmetric_difference(shown)) + [p for p in known if shown.count(p) > 1]
    if wrong:
        text = f"zensical.toml: nav must list each page once: see {', '.join(wrong)}"
        print(text, file=sys.stderr)
        return 1
    lay_out()
    shutil.rmtree(SITE, ignore_errors=True)
    command = [Path(sys.executable).parent / "zensical", "build", "--strict", "--clean"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
