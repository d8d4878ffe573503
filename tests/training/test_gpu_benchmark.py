"""The GPU benchmark's scripts, run on a CPU with a tiny shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.benchmarks.gpu.__main__ import main
from tests.benchmarks.gpu.ways import FUSED, LITERAL, OURS

STEPS = 3


def test_all_ways_train_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "figures.json"
    arguments = ["--shape", "tiny", "--steps", str(STEPS), "--dropout", "0"]
    assert main([*arguments, "--output", str(output)]) == 0
    written = json.loads(output.read_text())
    ways = {way["way"]: way for way in written["ways"]}
    assert list(ways) == [*(way for way in OURS if way != FUSED), LITERAL]
    plain = ways[LITERAL]
    assert len(plain["losses"]) == 3 + STEPS
    for way in ways.values():
        assert way["losses"] == pytest.approx(plain["losses"], rel=1e-5)
        for key in ("steps", "tokens", "supervised_tokens", "parameters"):
            assert way[key] == plain[key]
        assert way["tokens_per_second"] == pytest.approx(way["tokens"] / way["seconds"])
        flops = 4 * way["parameters"] * way["tokens_per_second"]
        peak = 1e12 * written["machine"]["matrix_peak_tflops"]
        assert way["share_of_peak"] == pytest.approx(flops / peak)
    assert plain["losses"][0] != plain["losses"][-1], "other examples at every step"
    printed = capsys.readouterr().out
    assert all(way in printed for way in ways)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_reports_missing_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "no CUDA device here" in capsys.readouterr().err
