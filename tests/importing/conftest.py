"""A model folder and its tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from gapft_harness.hooks.protocols import SamplerSettings
from gapft_harness.lm_eval_bridge.samplers.retokenizer import Retokenizer
from tests.kit.tiny_models import write_byte_llama


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder; its tokenizer has one token per byte."""
    return write_byte_llama(tmp_path_factory.mktemp("byte_llama"))


@pytest.fixture(scope="session")
def tokenizer(model: Path) -> Retokenizer:
    """The model's tokenizer."""
    return Retokenizer(SamplerSettings("import", {"pretrained": str(model)}))
