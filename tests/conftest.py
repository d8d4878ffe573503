"""What holds for every test."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.remote import Producer

    from tests.scheduling import Scheduling

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
    """On a worker of ``pytest -n``, what takes longest comes first."""
    if hasattr(config, "workerinput"):
        from tests.scheduling import place

        items.sort(key=lambda item: place(config.rootpath, item.nodeid.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """See ``tests.scheduling``."""
    from tests.scheduling import Scheduling

    return Scheduling(config, log)
