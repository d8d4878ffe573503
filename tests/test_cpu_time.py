"""How long a dry run says that search, training and audit take on a CPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapft_harness.cli.cpu_time import Shape, Speed, Work, estimate_seconds
from gapft_harness.cli.dry_run import describe_dry_run
from gapft_harness.cli.options import Options
from tests.kit.tiny_models import write_byte_llama

SHAPE = Shape(body=1000, head=100, hidden=10)
WORK = Work(prompt_tokens=50, searched=30, responses=9, audited=40, exposures=20, new_tokens=6)
counts = st.integers(1, 10**6)


def test_estimate_counts_each_weight_and_token() -> None:
    seconds = estimate_seconds(SHAPE, WORK, Speed(passes=2.0, steps=4.0), Speed(8.0, 16.0))
    prompt = 50 * 2 * 1000 / 2
    response = 6 * 2 * (1000 + 100) / 4
    assert seconds == {
        "search": 30 * (prompt + 9 * response),
        "training": 20 * (56 * 4 * 1000 + 6 * 4 * 100) / 8,
        "audit": 40 * (prompt + response),
    }


@given(counts, counts, counts, st.integers(2, 9))
def test_each_stage_grows_with_its_own_count(
    searched: int, audited: int, exposures: int, times: int
) -> None:
    speed = Speed(1e9, 1e8)
    work = replace(WORK, searched=searched, audited=audited, exposures=exposures)
    before = estimate_seconds(SHAPE, work, speed, speed)
    for stage, count in (("search", "searched"), ("training", "exposures"), ("audit", "audited")):
        more = replace(work, **{count: times * getattr(work, count)})
        after = estimate_seconds(SHAPE, more, speed, speed)
        assert after.pop(stage) == pytest.approx(times * before[stage])
        assert after == {name: value for name, value in before.items() if name != stage}


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
        assert "on this CPU with 2 workers: search " in line
        assert ", training " in line
        assert ", audit " in line
