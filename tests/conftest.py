"""Settings for all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.kit.runs import BaseRun

# Failed checks of helpers show their values too.
pytest.register_assert_rewrite("tests.kit")

# No test or command uses Hugging Face's hub: without a network each would wait a minute. Progress
# bars are off, as in the command. The libraries read the variables once, when they are imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

# No test cuts the power: waiting for the disk was a fifth of a run's time.
os.fsync = lambda fd: None

# A suite in the background of a script ignores Ctrl-C, and so would every command that it starts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No property concerns time: a slow example on a busy machine is not a counterexample. ``make
# test-all`` asks for the second profile.
settings.register_profile("tests", deadline=None, max_examples=50)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with a browser or a second environment, before tests are chosen by marks.

    Files that use README's run come last but for one: workers would wait for it.
    """
    waiting = set()
    for item in items:
        fixtures = {*getattr(item, "fixturenames", ())}
        if {"browser", "installation"} & fixtures:
            item.add_marker(pytest.mark.thorough)
        if "readme_run" in fixtures and item.path.name != "test_demo.py":
            waiting.add(item.path)
    items.sort(key=lambda item: item.path in waiting)


def pytest_collection_finish() -> None:
    """Collect garbage rarely, and not in imported modules: it took a sixth of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.fixture(scope="session")
def shared_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The temporary folder that all workers of the session share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def base_root(shared_root: Path) -> Iterator[Path]:
    """The folder of the base runs; they must be unchanged at the end."""
    from tests.kit.runs import find_changed_base_runs

    yield shared_root
    assert [*find_changed_base_runs(shared_root)] == []


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The browser that all tests of pages share."""
    from tests.report.chromium import start_browser

    session = start_browser(tmp_path_factory.mktemp("chromium"))
    yield session
    session.quit()


@pytest.fixture
def run_at(base_root: Path, tmp_path: Path) -> Callable[..., BaseRun]:
    """Return a function that copies a snapshot: ``run_at("trained", base="demo")``."""
    from tests.kit.runs import copy_snapshot, make_base_run

    def copy_run(snapshot: str, base: str = "letters") -> BaseRun:
        folder = make_base_run(base_root, base)
        return copy_snapshot(folder, snapshot, tmp_path / f"{base}-{snapshot}")

    return copy_run
