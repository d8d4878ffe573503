"""A model, and a run that waits for its training; tests copy the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.tiny_models import write_byte_llama
from tests.training.examples import select_letters


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_byte_llama(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="session")
def selected_letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run stopped after selection: one arm of 5 steps."""
    return select_letters(tmp_path_factory.mktemp("selected"), warmup_steps=2)
