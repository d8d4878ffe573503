"""A model folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.tiny_models import write_byte_llama


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder; its tokenizer has one token per byte."""
    return write_byte_llama(tmp_path_factory.mktemp("byte_llama"))
