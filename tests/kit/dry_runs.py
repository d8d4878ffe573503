"""Read what ``gapft run --dry-run`` prints."""

from __future__ import annotations

import re


def parse_requirements(text: str) -> dict[str, str]:
    """Return the section "what it takes", by topic."""
    lines = text.partition("# what it takes\n")[2].partition("\n\n")[0].splitlines()
    topics: dict[str, str] = {}
    for line in lines:
        topic = line[:11].strip()
        if topic:
            topics[topic] = line[11:]
        else:
            topics[[*topics][-1]] += "\n" + line[11:]
    return topics


def parse_new_work(text: str) -> dict[str, str]:
    """Return the section "what is new", by subject: ``search pool``, ``train``, ..."""
    section = text.partition("# what is new\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^([a-z ]+): (.*)$", section, flags=re.MULTILINE))
