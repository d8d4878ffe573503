"""Settings for all tests."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

    from tests.kit.runs import BaseRun

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


@pytest.fixture(scope="session")
def base_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the base runs, which all workers share; they must be unchanged at the end."""
    from tests.kit.runs import find_changed_base_runs

    own = tmp_path_factory.getbasetemp()
    root = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    yield root
    assert [*find_changed_base_runs(root)] == []


@pytest.fixture
def run_at(base_root: Path, tmp_path: Path) -> Callable[..., BaseRun]:
    """Return a function that copies a snapshot: ``run_at("trained", base="demo")``."""
    from tests.kit.runs import copy_snapshot, make_base_run

    def copy_run(snapshot: str, base: str = "letters") -> BaseRun:
        folder = make_base_run(base_root, base)
        return copy_snapshot(folder, snapshot, tmp_path / f"{base}-{snapshot}")

    return copy_run


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
