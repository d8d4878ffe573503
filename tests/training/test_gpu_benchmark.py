"""The GPU benchmark's script, run on a CPU with a tiny shape so that it cannot rot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.benchmarks.gpu.__main__ import main
from tests.benchmarks.gpu.shapes import LLAMA_8B
from tests.benchmarks.gpu.ways import LITERAL, OURS

STEPS = 3


def test_all_ways_train_the_same_and_figures_follow_from_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "figures.json"
    arguments = ["--shape", "tiny", "--steps", str(STEPS), "--dropout", "0", "--profile"]
    assert main([*arguments, "--output", str(output)]) == 0
    written = json.loads(output.read_text())
    ways = {way["way"]: way for way in written["ways"]}
    assert list(ways) == [*OURS, LITERAL]
    plain = ways[LITERAL]
    assert len(plain["losses"]) == 3 + STEPS
    for way in ways.values():
        assert way["losses"] == pytest.approx(plain["losses"], rel=1e-5)
        for same in ("steps", "tokens", "supervised_tokens", "parameters"):
            assert way[same] == plain[same]
        assert way["tokens_per_second"] == pytest.approx(way["tokens"] / way["seconds"])
        flops = 4 * way["parameters"] * way["tokens_per_second"]
        peak = 1e12 * written["machine"]["matrix_peak_tflops"]
        assert way["share_of_peak"] == pytest.approx(flops / peak)
        assert "aten::mm" in way["profile"]
    assert plain["losses"][0] != plain["losses"][-1], "other examples at every step"
    shown = capsys.readouterr().out
    assert all(way in shown for way in ways)


def test_the_large_shape_is_llama_3_1_8b_s_with_about_240_tokens_a_sequence() -> None:
    model = LLAMA_8B.model(torch.device("meta"), None)
    assert sum(p.numel() for p in model.parameters()) == 8_030_261_248
    examples = LLAMA_8B.examples(16 * 15)
    lengths = [len(e.prompt_ids) + len(e.response_ids) for e in examples]
    assert 230 < sum(lengths) / len(lengths) < 250
    assert max(lengths) < 2048, "the recipe refuses longer ones"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "no CUDA device here" in capsys.readouterr().err
