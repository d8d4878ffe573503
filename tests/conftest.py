"""What holds for every test."""

import gc

import pytest
from hypothesis import settings

# No law is a law of time: a busy machine's slow example is no counterexample.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


def pytest_collection_finish() -> None:
    """Garbage is looked for seldom, and not in what was imported: it took a sixth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.fixture
def off_the_net(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data and models that are not on this machine are not asked for; a dry run needs none."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
