"""Settings for all tests."""

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

# No test or command uses Hugging Face's hub: without a network each would wait a minute. The
# libraries read the variable once, when they are imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# No property concerns time: a slow example on a busy machine is not a counterexample.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


def pytest_collection_finish() -> None:
    """Collect garbage rarely, and not in imported modules: it took a sixth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On a worker of ``pytest -n``, run files with expensive shared fixtures first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Distribute whole files (``--dist loadfile``), and files of one ``xdist_group`` together.

    xdist 3.8 loses the groups with pytest 9.2 (its issue 1386).
    """
    from xdist.scheduler import LoadFileScheduling

    class ByGroupOrFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            text = (config.rootpath / file).read_text("utf-8")
            group = re.search(r'xdist_group\("(\w+)"\)', text)
            return group[1] if group else file

    config.option.loadscopereorder = False  # it would put files with few tests last
    return ByGroupOrFile(config, log)
