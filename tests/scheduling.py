"""How ``pytest -n`` deals the tests out: what shares something costly to one worker, longest first.

``--dist loadgroup`` of xdist 3.8 puts a test's ``xdist_group`` into its node id, which pytest 9.2
ignores without a word (pytest-xdist's issue 1386): every worker then makes every costly thing.
Groups are therefore read from the test files themselves.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_MADE_ONCE = re.compile(
    r'^@pytest\.fixture\([^)]*scope="(?:module|package|session)".*?\ndef (\w+)', re.M | re.S
)

#: Groups and files in the order in which they are begun; the others follow as they are collected.
#: What takes minutes and begins last leaves the other worker idle.
LONGEST = (
    "demo",
    "resume",
    "train_command",
    "tests/sandbox/test_ordinary_user.py",
    "tests/end_to_end/test_real_data.py",
    "tests/test_audits.py",
    "tests/test_linear_time.py",
    "example",
    "trackers",
    "verify",
    "ray",
    "scaled_run",
)


@cache
def unit(file: Path) -> str | None:
    """What the tests of a file are dealt out with; None: each of them by itself.

    Returns:
        The file's ``xdist_group``; without one its name, if it has or uses a fixture that is made
        once for several tests.
    """
    text = file.read_text("utf-8")
    group = re.search(r'xdist_group\("(\w+)"\)', text)
    if group is not None:
        return group[1]
    beside = file.with_name("conftest.py")
    shared = _MADE_ONCE.findall(text)
    if beside.exists():
        shared += _MADE_ONCE.findall(beside.read_text("utf-8"))
    used = any(re.search(rf"^def \w+\([^)]*\b{name}\b", text, re.M) for name in shared)
    return str(file) if used else None


def place(root: Path, path: str) -> int:
    """How early the tests of a file, named from the root, are begun."""
    names = (path, unit(root / path))
    return next((i for i, name in enumerate(LONGEST) if name in names), len(LONGEST))


class Scheduling(LoadScopeScheduling):
    """Deals out units in the order in which their first tests are collected."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return unit(self.config.rootpath / nodeid.partition("::")[0]) or nodeid
