"""How long a dry run says that search, training and audit take on a CPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from tests.kit.tiny_models import write_byte_llama


@pytest.mark.parametrize(("layers", "has_tokenizer"), [(2, True), (16, True), (16, False)])
def test_dry_run_states_time_of_larger_models(
    tmp_path: Path, layers: int, has_tokenizer: bool
) -> None:
    """Only the config says how large the model is: a dry run does not load weights."""
    model = write_byte_llama(tmp_path / "model")
    if not has_tokenizer:
        for file in model.glob("tokenizer*"):
            file.unlink()
    config = json.loads((model / "config.json").read_text())
    config |= {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": layers}
    (model / "config.json").write_text(json.dumps(config | {"head_dim": 128}))
    text = describe_dry_run(Options("demo", model_args=f"pretrained={model}"), None)
    (line,) = [line for line in text.splitlines() if line.startswith("time ")] or [""]
    if layers == 2 or not has_tokenizer:
        assert line == "", "the arithmetic is not what takes time, or prompts are not known"
    else:
        assert all(f"{stage} " in line for stage in ("search", "training", "audit"))
