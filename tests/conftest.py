"""What holds for every test."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.remote import Producer

    from tests.scheduling import Scheduling

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


@pytest.fixture
def off_the_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data and models that are not on this machine are not asked for; a dry run needs none."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
