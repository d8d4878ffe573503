"""Read what ``gapft run --dry-run`` prints."""

from __future__ import annotations


def parse_section(text: str, title: str) -> dict[str, str]:
    """Return the lines of a section by their subject; several names may share a line."""
    section = f"\n{text}\n\n".partition(f"\n# {title}\n")[2].partition("\n\n")[0]
    rows = [line.partition(": ") for line in section.splitlines()]
    return {name: value for names, _, value in rows for name in names.split(", ")}
