"""What holds for every test."""

from __future__ import annotations

import gc
import os
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

# No test asks Hugging Face's hub, nor does a command that it starts: without a net each waits a
# minute. The libraries read it once, at their import, which is later.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# No law is a law of time: a busy machine's slow example is no counterexample.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


def pytest_collection_finish() -> None:
    """Garbage is looked for seldom, and not in what was imported: it took a sixth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a worker of ``pytest -n``, files that share something costly come first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Deal out whole files (``--dist loadfile``), and files of one ``xdist_group`` together.

    xdist 3.8 itself loses the groups with pytest 9.2 (its issue 1386).
    """
    from xdist.scheduler import LoadFileScheduling

    class ByGroupOrFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            text = (config.rootpath / file).read_text("utf-8")
            group = re.search(r'xdist_group\("(\w+)"\)', text)
            return group[1] if group else file

    config.option.loadscopereorder = False  # which would put files of few tests last
    return ByGroupOrFile(config, log)
