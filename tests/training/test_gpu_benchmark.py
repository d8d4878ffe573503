"""The GPU benchmark's scripts, run on a CPU with a tiny shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.benchmarks.gpu import invariances
from tests.benchmarks.gpu.__main__ import main
from tests.benchmarks.gpu.device import measure_matrix_peak
from tests.benchmarks.gpu.shapes import LLAMA_8B
from tests.benchmarks.gpu.ways import FUSED, LITERAL, OURS

STEPS = 3


def test_all_ways_train_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "figures.json"
    arguments = ["--shape", "tiny", "--steps", str(STEPS), "--dropout", "0", "--profile"]
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
        assert "aten::mm" in way["profile"]
    assert plain["losses"][0] != plain["losses"][-1], "other examples at every step"
    printed = capsys.readouterr().out
    assert all(way in printed for way in ways)


@pytest.mark.thorough
def test_invariances_hold_on_cpu(tmp_path: Path) -> None:
    output = tmp_path / "found.json"
    arguments = ["--device", "cpu", "--hidden", "32", "--layers", "1"]
    assert invariances.main([*arguments, "--output", str(output)]) == 0
    rows = {row["what"]: row for row in json.loads(output.read_text())}
    cuts = [row for what, row in rows.items() if "float32: " in what and "against 2 x 8" in what]
    assert len(cuts) == 4
    assert all(0 < row["adapter, largest"] < 1e-3 for row in cuts)
    resumed = rows["resumed against whole; twice the same bytes: True"]
    assert resumed["loss"] == resumed["adapter, largest"] == 0
    rounded = rows["cpu, 2 x 8: bfloat16 against float32"]
    assert rounded["adapter, mean"] > 1e-3, "16 bits are not 32"


def test_large_shape_is_llama_3_1_8b() -> None:
    model = LLAMA_8B.model(torch.device("meta"), None)
    assert sum(p.numel() for p in model.parameters()) == 8_030_261_248
    examples = LLAMA_8B.examples(16 * 15)
    lengths = [len(e.prompt_ids) + len(e.response_ids) for e in examples]
    assert 230 < sum(lengths) / len(lengths) < 250
    assert max(lengths) < 2048, "the recipe refuses longer ones"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_reports_missing_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "no CUDA device here" in capsys.readouterr().err


def test_measuring_peak_keeps_random_state() -> None:
    before = torch.get_rng_state()
    measure_matrix_peak.cache_clear()
    rate = measure_matrix_peak(torch.device("cpu"), torch.float32)
    assert rate > 0
    assert measure_matrix_peak(torch.device("cpu"), torch.float32) == rate, "measured once"
    assert torch.equal(before, torch.get_rng_state())
