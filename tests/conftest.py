"""What holds for every test."""

import gc

from hypothesis import settings

# No law is a law of time: a busy machine's slow example is no counterexample.
settings.register_profile("tests", deadline=None)
settings.load_profile("tests")


def pytest_collection_finish() -> None:
    """Garbage is looked for seldom, and not in what was imported: it took a sixth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)
