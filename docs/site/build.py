"""Builds the site of the documents into build/site: ``make docs``.

README, CHANGELOG and CONTRIBUTING stand at the root and all other pages in docs/, where the links
between them work in the repository. Here they are laid side by side, with their links rewritten.
"""

from __future__ import annotations

import json
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
#: What a page would load from elsewhere.
OUTSIDE = re.compile(
    r"""<(?:script|img|iframe|link rel="stylesheet")[^>]*["'](?:https?:)?//[^>]*>"""
)
#: The script of zensical.toml's ``polyfills``.
WORKER = "iframe-worker.js"
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


def worker_in_page(code: str) -> str:
    """A script by which a page that was opened from a folder has a worker of this code.

    The search is a worker, and browsers start none from a file, but one from a page's own text.
    """
    return f"""if (location.protocol === "file:")
  window.Worker = class extends Worker {{
    constructor() {{
      super(URL.createObjectURL(new Blob([{json.dumps(code)}], {{type: "text/javascript"}})));
    }}
  }};
"""


def finish() -> int:
    """Writes the script for folders, and holds the pages to load nothing from elsewhere."""
    (search,) = SITE.glob("assets/javascripts/workers/search.*.js")
    (SITE / WORKER).write_text(worker_in_page(search.read_text("utf-8")), "utf-8")
    outside = {
        f"{page.name}: {found}"
        for page in SITE.rglob("*.html")
        for found in OUTSIDE.findall(page.read_text("utf-8"))
    }
    for line in sorted(outside):
        print(f"loads from elsewhere: {line}", file=sys.stderr)
    return 1 if outside else 0


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
    return subprocess.run(command, cwd=ROOT, check=False).returncode or finish()


if __name__ == "__main__":
    sys.exit(main())
