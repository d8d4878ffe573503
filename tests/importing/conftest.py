"""A model's folder, for its tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer
from tests.tiny_models import byte_llama


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte is one token."""
    return byte_llama(tmp_path_factory.mktemp("byte_llama"))


@pytest.fixture(scope="session")
def tokenizer(model: Path) -> Retokenizer:
    """Its tokenizer."""
    return Retokenizer(SamplerSettings("import", {"pretrained": str(model)}))
